/* realloc: C11 7.22.3.5, and glibc's realloc(block, 0): frees, returns NULL. */
#include "blocks.h"

static void *allocate(size_t size)
{
    return realloc(NULL, size);
}

/* From every size to every other, growing and shrinking, across all tiers. */
static void check_contents_kept(void)
{
    for (size_t s = 0; s < TEST_COUNT_OF(test_sizes); s++) {
        for (size_t t = 0; t < TEST_COUNT_OF(test_sizes); t++) {
            size_t from = test_sizes[s], to = test_sizes[t];
            size_t kept = from < to ? from : to;
            void *block = malloc(from);
            REQUIRE(block != NULL);
            test_fill(block, from, s);
            CHECK_KEEPS_ERRNO(block = realloc(block, to));
            REQUIRE(block != NULL);
            CHECK_ALIGNED(block, 16);
            CHECK(malloc_usable_size(block) >= to);
            CHECK_EQ(test_intact(block, kept, s), kept);
            /* The whole of it is writable, and the way back keeps it too. */
            test_fill(block, malloc_usable_size(block), t);
            CHECK_KEEPS_ERRNO(block = realloc(block, from));
            REQUIRE(block != NULL);
            CHECK_EQ(test_intact(block, kept, t), kept);
            free(block);
        }
    }
}

/* Growth a little at a time, with neighbours that stand in the way. */
static void check_growth_in_steps(void)
{
    size_t size = 1;
    void *block = malloc(size);
    REQUIRE(block != NULL);
    test_fill(block, size, 7);
    for (int step = 0; size < TEST_MIB(8); step++) {
        size_t next = size + size / 8 + 1;
        void *neighbour = step % 3 == 0 ? malloc(size) : NULL;
        block = realloc(block, next);
        REQUIRE(block != NULL);
        CHECK_EQ(test_intact(block, size, 7), size);
        test_fill(block, next, 7);
        free(neighbour);
        size = next;
    }
    while (size > 1) {
        size_t next = size - size / 5 - 1;
        if (next == 0)
            next = 1;
        block = realloc(block, next);
        REQUIRE(block != NULL);
        CHECK_EQ(test_intact(block, next, 7), next);
        size = next;
    }
    free(block);
}

static void check_null_block(void)
{
    for (size_t s = 0; s < TEST_COUNT_OF(test_sizes); s++) {
        void *block;
        CHECK_KEEPS_ERRNO(block = realloc(NULL, test_sizes[s]));
        REQUIRE(block != NULL);
        test_fill(block, test_sizes[s], s);
        free(block);
    }
}

static void check_zero_frees(void)
{
    size_t before = test_resident_bytes();
    for (int i = 0; i < 1000; i++) {
        char *block = malloc(TEST_MIB(1));
        REQUIRE(block != NULL);
        memset(block, 1, TEST_KIB(64));
        void *result;
        CHECK_KEEPS_ERRNO(result = realloc(block, 0));
        CHECK(result == NULL);
    }
    if (!TEST_SANITIZED)
        CHECK(test_resident_bytes() <= before + TEST_MIB(16));
}

/* A realloc that fails leaves the old block as it was. */
static void check_failure_keeps_block(void)
{
    static const size_t impossible[] = {TEST_SIZE_LIMIT, TEST_SIZE_LIMIT + 1, SIZE_MAX,
                                        SIZE_MAX - 4095, (size_t)1 << 62,     (size_t)1 << 60};
    for (size_t s = 0; s < TEST_COUNT_OF(test_sizes); s++) {
        void *block = malloc(test_sizes[s]);
        REQUIRE(block != NULL);
        test_fill(block, test_sizes[s], s);
        for (size_t i = 0; i < TEST_COUNT_OF(impossible); i++) {
            CHECK_FAILS(realloc(block, impossible[i]), ENOMEM);
        }
        CHECK_EQ(test_intact(block, test_sizes[s], s), test_sizes[s]);
        free(block);
    }
}

/* A block that shrank from large to small does not hold on to what it had. */
static void check_shrinking_gives_back(void)
{
    enum { count = 64 };
    static void *block[count];
    size_t before = test_resident_bytes();
    for (size_t i = 0; i < count; i++) {
        block[i] = malloc(TEST_MIB(4));
        REQUIRE(block[i] != NULL);
        memset(block[i], 1, TEST_MIB(4));
        block[i] = realloc(block[i], 100);
        REQUIRE(block[i] != NULL);
    }
    /* What is kept for reuse is bounded, what 64 blocks of 4 MiB had is far above it. */
    if (!TEST_SANITIZED)
        CHECK(test_resident_bytes() <= before + TEST_MIB(128));
    for (size_t i = 0; i < count; i++) {
        free(block[i]);
    }
}

int main(void)
{
    test_start(120);
    check_alignment_of_all_sizes(allocate);
    check_no_overlap(allocate);
    check_zero_size(allocate);
    check_impossible_sizes(allocate);
    check_contents_kept();
    check_growth_in_steps();
    check_null_block();
    check_zero_frees();
    check_failure_keeps_block();
    check_shrinking_gives_back();
    return test_result();
}
