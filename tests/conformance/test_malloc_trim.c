/* malloc_trim: glibc. 1 if memory was given back, and it is. */
#include "blocks.h"

#if defined(HAK_NO_INTERPOSE)
int main(void)
{
    return test_skip("malloc_trim is the C library's in this build");
}
#else

static int (*volatile trim_function)(size_t) = malloc_trim;

int main(void)
{
    test_start(60);
    enum { size = 500, count = 64 << 20 >> 9 };
    static void *block[count];
    for (size_t i = 0; i < count; i++) {
        block[i] = malloc(size);
        REQUIRE(block[i] != NULL);
        memset(block[i], 1, size);
    }
    size_t full = test_resident_bytes();
    for (size_t i = 0; i < count; i++) {
        free(block[i]);
    }
    int result;
    CHECK_KEEPS_ERRNO(result = trim_function(0));
    CHECK(result == 0 || result == 1);
    if (!TEST_SANITIZED)
        CHECK(test_resident_bytes() + TEST_MIB(48) <= full);
    /* With nothing to give, it says so or not, and does no harm. */
    for (int i = 0; i < 10; i++) {
        result = trim_function(TEST_MIB(1));
        CHECK(result == 0 || result == 1);
    }
    void *after = malloc(size);
    CHECK(after != NULL);
    free(after);
    return test_result();
}
#endif
