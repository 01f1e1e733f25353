/* free_sized: C23 7.24.3.4. As free, with the size that was asked for. */
#include "blocks.h"

#if defined(HAK_NO_INTERPOSE)
static void (*volatile free_sized_function)(void *, size_t) = hak_free_sized;
#else
extern void free_sized(void *block, size_t size) __attribute__((weak));
static void (*volatile free_sized_function)(void *, size_t) = free_sized;
#endif

int main(void)
{
    test_start(60);
    if (free_sized_function == NULL) {
#if !defined(HAK_TEST_GLIBC)
        test_fail(__FILE__, __LINE__, "there is no free_sized");
        return test_result();
#endif
        return test_skip("the C library has no free_sized");
    }
    CHECK_KEEPS_ERRNO(free_sized_function(NULL, 0));
    CHECK_KEEPS_ERRNO(free_sized_function(NULL, 100));
    size_t before = test_resident_bytes();
    for (int round = 0; round < 20; round++) {
        for (size_t s = 0; s < TEST_COUNT_OF(test_sizes); s++) {
            void *block[10];
            for (size_t i = 0; i < TEST_COUNT_OF(block); i++) {
                block[i] = i % 2 == 0 ? malloc(test_sizes[s]) : calloc(1, test_sizes[s]);
                REQUIRE(block[i] != NULL);
                test_fill(block[i], test_sizes[s], i);
            }
            for (size_t i = 0; i < TEST_COUNT_OF(block); i++) {
                CHECK_EQ(test_intact(block[i], test_sizes[s], i), test_sizes[s]);
                CHECK_KEEPS_ERRNO(free_sized_function(block[i], test_sizes[s]));
            }
        }
    }
    void *empty = malloc(0);
    CHECK_KEEPS_ERRNO(free_sized_function(empty, 0));
    /* They are freed indeed: 20 rounds of it would be 2 GiB. */
    if (!TEST_SANITIZED)
        CHECK(test_resident_bytes() <= before + TEST_MIB(256));
    return test_result();
}
