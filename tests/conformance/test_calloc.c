/* calloc: C11 7.22.3.2. */
#include "blocks.h"

static void *allocate(size_t size)
{
    return calloc(1, size);
}

static void *allocate_bytes(size_t size)
{
    return calloc(size, 1);
}

/* Memory that was used and freed comes back as zeros, in every tier and however it is counted. */
static void check_zero_on_reuse(void)
{
    enum { count = 24 };
    static void *block[count];
    for (size_t s = 0; s < TEST_COUNT_OF(test_sizes); s++) {
        size_t size = test_sizes[s];
        for (int round = 0; round < 4; round++) {
            for (size_t i = 0; i < count; i++) {
                block[i] = round % 2 != 0 ? malloc(size) : calloc(1, size);
                REQUIRE(block[i] != NULL);
                if (round % 2 == 0)
                    CHECK(test_is_zero(block[i], size));
                memset(block[i], 0xa5, malloc_usable_size(block[i]));
            }
            for (size_t i = 0; i < count; i++) {
                free(block[i]);
            }
        }
    }
}

/* Zeros up to the usable size are not promised, up to count * size they are. */
static void check_zero_of_products(void)
{
    for (size_t count = 1; count <= 4096; count *= 3) {
        for (size_t size = 1; size <= 4096; size *= 5) {
            unsigned char *block = calloc(count, size);
            REQUIRE(block != NULL);
            CHECK(malloc_usable_size(block) >= count * size);
            CHECK(test_is_zero(block, count * size));
            memset(block, 0xff, count * size);
            free(block);
        }
    }
}

static void check_overflow(void)
{
    static const size_t pairs[][2] = {
        {SIZE_MAX, 2},
        {2, SIZE_MAX},
        {SIZE_MAX, SIZE_MAX},
        {(size_t)1 << 32, (size_t)1 << 32},
        {((size_t)1 << 32) + 1, ((size_t)1 << 32)},
        {SIZE_MAX / 16 + 2, 16}, /* wraps to 16 */
        {16, SIZE_MAX / 16 + 2},
        {(size_t)1 << 61, 8}, /* wraps to 0 */
        {TEST_SIZE_LIMIT / 2 + 1, 2},
        {TEST_SIZE_LIMIT, 1},
    };
    for (size_t i = 0; i < TEST_COUNT_OF(pairs); i++) {
        CHECK_FAILS(calloc(pairs[i][0], pairs[i][1]), ENOMEM);
    }
}

static void check_zero_counts(void)
{
    static const size_t pairs[][2] = {{0, 0}, {0, 8}, {8, 0}, {0, SIZE_MAX}, {SIZE_MAX, 0}};
    for (size_t i = 0; i < TEST_COUNT_OF(pairs); i++) {
        void *block;
        CHECK_KEEPS_ERRNO(block = calloc(pairs[i][0], pairs[i][1]));
        CHECK(block != NULL);
        free(block);
    }
}

/* Large zeroed memory that nobody touches costs no memory. */
static void check_untouched_is_not_resident(void)
{
    size_t before = test_resident_bytes();
    void *block = calloc(1, TEST_MIB(256));
    REQUIRE(block != NULL);
    if (!TEST_SANITIZED)
        CHECK(test_resident_bytes() <= before + TEST_MIB(16));
    free(block);
}

int main(void)
{
    test_start(120);
    check_alignment_of_all_sizes(allocate);
    check_no_overlap(allocate);
    check_zero_size(allocate);
    check_zero_size(allocate_bytes);
    check_success_keeps_errno(allocate);
    check_impossible_sizes(allocate);
    check_impossible_sizes(allocate_bytes);
    check_zero_on_reuse();
    check_zero_of_products();
    check_overflow();
    check_zero_counts();
    check_untouched_is_not_resident();
    return test_result();
}
