/* memalign: as glibc has it. An alignment that is not a power of two is rounded up to the next. */
#include "blocks.h"

#if defined(HAK_NO_INTERPOSE)
int main(void)
{
    return test_skip("memalign is the sanitizer's in this build");
}
#else

static void *(*volatile memalign_function)(size_t, size_t) = memalign;

static void *allocate(size_t alignment, size_t size)
{
    return memalign_function(alignment, size);
}

static void *allocate_64(size_t size)
{
    return memalign_function(64, size);
}

static void check_rounding(void)
{
    for (size_t alignment = 0; alignment <= 5000; alignment++) {
        void *block;
        CHECK_KEEPS_ERRNO(block = memalign_function(alignment, 40));
        REQUIRE(block != NULL);
        size_t rounded = 16;
        while (rounded < alignment)
            rounded *= 2;
        CHECK_ALIGNED(block, rounded);
        free(block);
    }
}

int main(void)
{
    test_start(60);
    check_alignments(allocate);
    check_realloc_of_aligned(allocate);
    check_zero_size(allocate_64);
    check_no_overlap(allocate_64);
    check_impossible_sizes(allocate_64);
    check_rounding();
    /* There is no power of two to round these up to. */
    CHECK_FAILS(memalign_function(SIZE_MAX, 1), EINVAL);
    CHECK_FAILS(memalign_function(((size_t)1 << 63) + 1, 1), EINVAL);
    CHECK_FAILS(memalign_function((size_t)1 << 62, 1), ENOMEM);
    return test_result();
}
#endif
