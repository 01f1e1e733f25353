/* free_aligned_sized: C23 7.24.3.5. As free, for blocks of aligned_alloc. */
#include "blocks.h"

#if defined(HAK_NO_INTERPOSE)
static void (*volatile free_function)(void *, size_t, size_t) = hak_free_aligned_sized;
#else
extern void free_aligned_sized(void *block, size_t alignment, size_t size) __attribute__((weak));
static void (*volatile free_function)(void *, size_t, size_t) = free_aligned_sized;
#endif

int main(void)
{
    test_start(60);
    if (free_function == NULL) {
#if !defined(HAK_TEST_GLIBC)
        test_fail(__FILE__, __LINE__, "there is no free_aligned_sized");
        return test_result();
#endif
        return test_skip("the C library has no free_aligned_sized");
    }
    CHECK_KEEPS_ERRNO(free_function(NULL, 16, 100));
    size_t before = test_resident_bytes();
    for (size_t alignment = 16; alignment <= TEST_MIB(4); alignment *= 2) {
        for (size_t s = 0; s < TEST_COUNT_OF(test_sizes); s++) {
            for (int i = 0; i < 4; i++) {
                void *block = aligned_alloc(alignment, test_sizes[s]);
                REQUIRE(block != NULL);
                test_fill(block, test_sizes[s], s);
                CHECK_EQ(test_intact(block, test_sizes[s], s), test_sizes[s]);
                CHECK_KEEPS_ERRNO(free_function(block, alignment, test_sizes[s]));
            }
        }
    }
    if (!TEST_SANITIZED)
        CHECK(test_resident_bytes() <= before + TEST_MIB(256));
    return test_result();
}
