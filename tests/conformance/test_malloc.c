/* malloc: C11 7.22.3.4, POSIX malloc(3p). */
#include "blocks.h"

static void *allocate(size_t size)
{
    return malloc(size);
}

/* Freed memory serves again: a loop over one block does not grow. */
static void check_reuse(void)
{
    for (size_t s = 0; s < TEST_COUNT_OF(test_sizes); s++) {
        size_t size = test_sizes[s];
        size_t before = test_resident_bytes();
        for (size_t i = 0, n = TEST_MIB(256) / size; i < n && i < 100000; i++) {
            char *block = malloc(size);
            REQUIRE(block != NULL);
            for (size_t j = 0; j < size; j += 4096) {
                block[j] = 1;
            }
            free(block);
        }
        size_t after = test_resident_bytes();
        if (!TEST_SANITIZED)
            CHECK(after <= before + TEST_MIB(16));
    }
}

/* A size that no machine has, though C allows it: no memory, and the program goes on. */
static void check_too_large_for_the_machine(void)
{
    CHECK_FAILS(malloc((size_t)1 << 60), ENOMEM);
    CHECK_FAILS(malloc((size_t)1 << 48), ENOMEM);
}

int main(void)
{
    test_start(120);
    check_alignment_of_all_sizes(allocate);
    check_no_overlap(allocate);
    check_zero_size(allocate);
    check_success_keeps_errno(allocate);
    check_impossible_sizes(allocate);
    check_too_large_for_the_machine();
    check_reuse();
    return test_result();
}
