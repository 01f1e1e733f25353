/* blocks.h: what must hold of every block, whichever function returned it.
 *
 * The functions take an allocating function of one size, so that each test can hand in its own.
 */
#ifndef HAK_TEST_BLOCKS_H
#define HAK_TEST_BLOCKS_H

#include "../test.h"

typedef void *(*test_allocator)(size_t size);

/* Every size up to 4 KiB and each power of two up to 64 MiB: a block, aligned to 16. */
static TEST_UNUSED void check_alignment_of_all_sizes(test_allocator allocate)
{
    for (size_t size = 0; size <= 4096; size++) {
        void *block = allocate(size);
        CHECK(block != NULL);
        CHECK_ALIGNED(block, 16);
        CHECK(malloc_usable_size(block) >= size);
        free(block);
    }
    for (size_t size = 8192; size <= TEST_MIB(64); size *= 2) {
        for (size_t near = size - 1; near <= size + 1; near++) {
            void *block = allocate(near);
            CHECK(block != NULL);
            CHECK_ALIGNED(block, 16);
            CHECK(malloc_usable_size(block) >= near);
            free(block);
        }
    }
}

/* All usable bytes of blocks that live at the same time are writable, and none is another's. */
static TEST_UNUSED void check_no_overlap(test_allocator allocate)
{
    enum { most = 200 };
    static unsigned char *block[most];
    static size_t usable[most];
    for (size_t s = 0; s < TEST_COUNT_OF(test_sizes); s++) {
        size_t size = test_sizes[s];
        size_t count = size <= TEST_KIB(32) ? most : 8;
        for (size_t i = 0; i < count; i++) {
            block[i] = allocate(size);
            REQUIRE(block[i] != NULL);
            usable[i] = malloc_usable_size(block[i]);
            CHECK(usable[i] >= size);
            test_fill(block[i], usable[i], size + i);
        }
        /* Every second one is freed and taken again: neighbours must not notice. */
        for (size_t i = 0; i < count; i += 2) {
            free(block[i]);
        }
        for (size_t i = 0; i < count; i += 2) {
            block[i] = allocate(size);
            REQUIRE(block[i] != NULL);
            usable[i] = malloc_usable_size(block[i]);
            test_fill(block[i], usable[i], size + i);
        }
        for (size_t i = 0; i < count; i++) {
            CHECK_EQ(test_intact(block[i], usable[i], size + i), usable[i]);
            free(block[i]);
        }
    }
}

/* Blocks of size 0 are blocks: not NULL, each another, and free takes them. */
static TEST_UNUSED void check_zero_size(test_allocator allocate)
{
    void *block[100];
    for (size_t i = 0; i < TEST_COUNT_OF(block); i++) {
        CHECK_KEEPS_ERRNO(block[i] = allocate(0));
        CHECK(block[i] != NULL);
        for (size_t j = 0; j < i; j++) {
            CHECK(block[i] != block[j]);
        }
    }
    for (size_t i = 0; i < TEST_COUNT_OF(block); i++) {
        CHECK_KEEPS_ERRNO(free(block[i]));
    }
}

/* errno is left alone by a success in every tier. */
static TEST_UNUSED void check_success_keeps_errno(test_allocator allocate)
{
    for (size_t s = 0; s < TEST_COUNT_OF(test_sizes); s++) {
        void *block;
        CHECK_KEEPS_ERRNO(block = allocate(test_sizes[s]));
        CHECK(block != NULL);
        CHECK_KEEPS_ERRNO(free(block));
    }
}

/* Sizes that no object may have (C11 6.5.6p9: the difference of two pointers into it must fit) fail
 * with ENOMEM, also where rounding up would wrap. */
static TEST_UNUSED void check_impossible_sizes(test_allocator allocate)
{
    static const size_t sizes[] = {
        TEST_SIZE_LIMIT,
        TEST_SIZE_LIMIT + 1,
        TEST_SIZE_LIMIT - 4096,
        TEST_SIZE_LIMIT + 4096,
        SIZE_MAX,
        SIZE_MAX - 1,
        SIZE_MAX - 15,
        SIZE_MAX - 16,
        SIZE_MAX - 4095,
        SIZE_MAX - 4096,
        SIZE_MAX - 65535,
        SIZE_MAX - TEST_MIB(2),
        SIZE_MAX - TEST_MIB(4),
        (size_t)1 << 63,
        ((size_t)1 << 63) - 1,
        (size_t)1 << 62,
    };
    for (size_t i = 0; i < TEST_COUNT_OF(sizes); i++) {
        CHECK_FAILS(allocate(sizes[i]), ENOMEM);
    }
    /* And the next possible one is served as if nothing had been. */
    void *block = allocate(1000);
    CHECK(block != NULL);
    free(block);
}

/* A function with an alignment and a size: every alignment from 16 bytes to 16 MiB, sizes of every
 * tier, and neighbours that must not overlap. */
static TEST_UNUSED void check_alignments(void *(*allocate)(size_t alignment, size_t size))
{
    static const size_t sizes[] = {0, 1, 24, 1000, 1024, 5000, 32768, 50000, 1 << 20, 3 << 20};
    enum { count = 4 };
    for (size_t alignment = 16; alignment <= TEST_MIB(16); alignment *= 2) {
        for (size_t s = 0; s < TEST_COUNT_OF(sizes); s++) {
            void *block[count];
            size_t usable[count];
            for (size_t i = 0; i < count; i++) {
                CHECK_KEEPS_ERRNO(block[i] = allocate(alignment, sizes[s]));
                REQUIRE(block[i] != NULL);
                CHECK_ALIGNED(block[i], alignment);
                usable[i] = malloc_usable_size(block[i]);
                CHECK(usable[i] >= sizes[s]);
                test_fill(block[i], usable[i], alignment + i);
            }
            for (size_t i = 0; i < count; i++) {
                CHECK_EQ(test_intact(block[i], usable[i], alignment + i), usable[i]);
                CHECK_KEEPS_ERRNO(free(block[i]));
            }
        }
    }
}

/* Blocks of unusual alignment are blocks like others: realloc keeps what is in them. */
static TEST_UNUSED void check_realloc_of_aligned(void *(*allocate)(size_t alignment, size_t size))
{
    static const size_t sizes[] = {10, 700, 1024, 20000, 100000, 3 << 20};
    for (size_t alignment = 32; alignment <= TEST_MIB(4); alignment *= 8) {
        for (size_t s = 0; s < TEST_COUNT_OF(sizes); s++) {
            for (size_t t = 0; t < TEST_COUNT_OF(sizes); t++) {
                void *block = allocate(alignment, sizes[s]);
                REQUIRE(block != NULL);
                test_fill(block, sizes[s], alignment);
                block = realloc(block, sizes[t]);
                REQUIRE(block != NULL);
                size_t kept = sizes[s] < sizes[t] ? sizes[s] : sizes[t];
                /* A word at a shorter end differs from the filled one beyond it only. */
                CHECK_EQ(test_intact(block, kept, alignment), kept);
                free(block);
            }
        }
    }
}

#endif
