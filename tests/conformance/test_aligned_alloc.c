/* aligned_alloc: C17 7.22.3.1 with DR 460: any size, alignments that are powers of two; others fail
 * with EINVAL, as glibc has it from 2.38 on. */
#include "blocks.h"

static void *allocate(size_t alignment, size_t size)
{
    return aligned_alloc(alignment, size);
}

static void *allocate_16(size_t size)
{
    return aligned_alloc(16, size);
}

static void *allocate_4096(size_t size)
{
    return aligned_alloc(4096, size);
}

static void check_small_alignments(void)
{
    for (size_t alignment = 1; alignment <= 16; alignment *= 2) {
        for (size_t s = 0; s < TEST_COUNT_OF(test_sizes); s++) {
            void *block;
            CHECK_KEEPS_ERRNO(block = aligned_alloc(alignment, test_sizes[s]));
            CHECK(block != NULL);
            CHECK_ALIGNED(block, 16);
            free(block);
        }
    }
}

static void check_invalid_alignments(void)
{
#if !defined(HAK_TEST_GLIBC) || __GLIBC_PREREQ(2, 38)
    static const size_t invalid[] = {0, 3, 6, 24, 48, 100, 4095, 4097, SIZE_MAX, SIZE_MAX - 1};
    for (size_t i = 0; i < TEST_COUNT_OF(invalid); i++) {
        CHECK_FAILS(aligned_alloc(invalid[i], 64), EINVAL);
        CHECK_FAILS(aligned_alloc(invalid[i], TEST_MIB(4)), EINVAL);
    }
#endif
}

/* Alignment and size each possible, together not. */
static void check_too_large(void)
{
    for (size_t alignment = 16; alignment <= (size_t)1 << 40; alignment *= 4) {
        CHECK_FAILS(aligned_alloc(alignment, TEST_SIZE_LIMIT), ENOMEM);
        CHECK_FAILS(aligned_alloc(alignment, SIZE_MAX - alignment + 1), ENOMEM);
        CHECK_FAILS(aligned_alloc(alignment, SIZE_MAX), ENOMEM);
    }
    CHECK_FAILS(aligned_alloc((size_t)1 << 62, 1), ENOMEM);
}

int main(void)
{
    test_start(120);
    check_alignments(allocate);
    check_realloc_of_aligned(allocate);
    check_zero_size(allocate_16);
    check_zero_size(allocate_4096);
    check_no_overlap(allocate_16);
    check_no_overlap(allocate_4096);
    check_impossible_sizes(allocate_16);
    check_impossible_sizes(allocate_4096);
    check_small_alignments();
    check_invalid_alignments();
    check_too_large();
    return test_result();
}
