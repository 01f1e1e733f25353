/* posix_memalign: POSIX.1-2024. The error is the result; a success leaves errno alone. */
#include "blocks.h"

static void *allocate(size_t alignment, size_t size)
{
    void *block = NULL;
    int result;
    CHECK_KEEPS_ERRNO(result = posix_memalign(&block, alignment, size));
    CHECK_EQ(result, 0);
    return block;
}

static void *allocate_8(size_t size)
{
    return allocate(sizeof(void *), size);
}

static void *allocate_256(size_t size)
{
    return allocate(256, size);
}

/* A failure leaves the caller's pointer alone. */
static void check_failure(size_t alignment, size_t size, int expected)
{
    char marker;
    void *block = &marker;
    CHECK_EQ(posix_memalign(&block, alignment, size), expected);
    CHECK(block == &marker);
}

int main(void)
{
    test_start(120);
    check_alignments(allocate);
    check_realloc_of_aligned(allocate);
    check_zero_size(allocate_8);
    check_zero_size(allocate_256);
    check_no_overlap(allocate_8);
    check_no_overlap(allocate_256);

    /* Not a power of two, or not a multiple of sizeof(void *). */
    static const size_t invalid[] = {0,  1,  2,   3,    4,    6,    7,        9,
                                     12, 24, 100, 4095, 4097, 4104, SIZE_MAX, SIZE_MAX - 7};
    for (size_t i = 0; i < TEST_COUNT_OF(invalid); i++) {
        check_failure(invalid[i], 64, EINVAL);
        check_failure(invalid[i], TEST_MIB(4), EINVAL);
        check_failure(invalid[i], 0, EINVAL);
    }
    for (size_t alignment = 8; alignment <= (size_t)1 << 40; alignment *= 2) {
        check_failure(alignment, TEST_SIZE_LIMIT, ENOMEM);
        check_failure(alignment, TEST_SIZE_LIMIT + 1, ENOMEM);
        check_failure(alignment, SIZE_MAX - alignment + 1, ENOMEM);
        check_failure(alignment, SIZE_MAX, ENOMEM);
    }
    check_failure((size_t)1 << 62, 1, ENOMEM);
    return test_result();
}
