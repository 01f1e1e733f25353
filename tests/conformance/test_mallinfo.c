/* mallinfo: glibc. Its fields are ints; hakmem's and glibc's wrap where they do not suffice. */
#include "blocks.h"

#if defined(HAK_NO_INTERPOSE)
int main(void)
{
    return test_skip("mallinfo is the C library's in this build");
}
#else

#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
static struct mallinfo (*volatile mallinfo_function)(void) = mallinfo;

int main(void)
{
    test_start(60);
    struct mallinfo before, after;
    CHECK_KEEPS_ERRNO(before = mallinfo_function());
    enum { count = 1000, size = 20000 };
    static void *block[count];
    for (size_t i = 0; i < count; i++) {
        block[i] = malloc(size);
        REQUIRE(block[i] != NULL);
    }
    after = mallinfo_function();
    /* In use: small memory and mappings of their own together. */
    CHECK(after.uordblks + after.hblkhd >= before.uordblks + before.hblkhd + count * size);
    CHECK(after.arena + after.hblkhd >= after.uordblks);
    for (size_t i = 0; i < count; i++) {
        free(block[i]);
    }
    before = mallinfo_function();
    CHECK(before.uordblks + before.hblkhd < after.uordblks + after.hblkhd);
    return test_result();
}
#endif
