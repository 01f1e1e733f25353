/* reallocarray: POSIX.1-2024, glibc. */
#include "blocks.h"

static void *allocate(size_t size)
{
    return reallocarray(NULL, 1, size);
}

static void check_overflow(void)
{
    static const size_t pairs[][2] = {
        {SIZE_MAX, 2},           {2, SIZE_MAX},        {(size_t)1 << 32, (size_t)1 << 32},
        {SIZE_MAX / 16 + 2, 16}, {(size_t)1 << 61, 8}, {TEST_SIZE_LIMIT / 2 + 1, 2},
    };
    void *block = malloc(100);
    REQUIRE(block != NULL);
    test_fill(block, 100, 1);
    for (size_t i = 0; i < TEST_COUNT_OF(pairs); i++) {
        CHECK_FAILS(reallocarray(block, pairs[i][0], pairs[i][1]), ENOMEM);
        CHECK_FAILS(reallocarray(NULL, pairs[i][0], pairs[i][1]), ENOMEM);
    }
    CHECK_EQ(test_intact(block, 100, 1), 100);
    free(block);
}

static void check_contents_kept(void)
{
    for (size_t s = 0; s < TEST_COUNT_OF(test_sizes); s++) {
        size_t size = test_sizes[s];
        void *block = malloc(size);
        REQUIRE(block != NULL);
        test_fill(block, size, s);
        CHECK_KEEPS_ERRNO(block = reallocarray(block, 3, size));
        REQUIRE(block != NULL);
        CHECK(malloc_usable_size(block) >= 3 * size);
        CHECK_EQ(test_intact(block, size, s), size);
        free(block);
    }
}

/* As realloc(block, 0). */
static void check_zero_frees(void)
{
    void *result;
    CHECK_KEEPS_ERRNO(result = reallocarray(malloc(100), 0, 8));
    CHECK(result == NULL);
    CHECK_KEEPS_ERRNO(result = reallocarray(malloc(100), 8, 0));
    CHECK(result == NULL);
}

int main(void)
{
    test_start(60);
    check_alignment_of_all_sizes(allocate);
    check_no_overlap(allocate);
    check_zero_size(allocate);
    check_impossible_sizes(allocate);
    check_overflow();
    check_contents_kept();
    check_zero_frees();
    return test_result();
}
