/* The hak_malloc family: malloc's under names that nothing interposes; and blocks of either family go
 * to the other's free. */
#include <hakmem/hakmem.h>

#include "blocks.h"

static void *(*volatile malloc_function)(size_t) = hak_malloc;
static void *(*volatile calloc_function)(size_t, size_t) = hak_calloc;
static void *(*volatile realloc_function)(void *, size_t) = hak_realloc;
static void *(*volatile reallocarray_function)(void *, size_t, size_t) = hak_reallocarray;
static void (*volatile free_function)(void *) = hak_free;
static void (*volatile free_sized_function)(void *, size_t) = hak_free_sized;
static void (*volatile free_aligned_sized_function)(void *, size_t,
                                                    size_t) = hak_free_aligned_sized;
static void *(*volatile aligned_alloc_function)(size_t, size_t) = hak_aligned_alloc;
static int (*volatile posix_memalign_function)(void **, size_t, size_t) = hak_posix_memalign;
static size_t (*volatile usable_function)(const void *) = hak_usable_size;

static void *allocate_malloc(size_t size)
{
    return malloc_function(size);
}

static void *allocate_calloc(size_t size)
{
    void *block = calloc_function(size, 1);
    CHECK(block == NULL || test_is_zero(block, size));
    return block;
}

static void *allocate_realloc(size_t size)
{
    return realloc_function(NULL, size);
}

static void *allocate_reallocarray(size_t size)
{
    return reallocarray_function(NULL, size, 1);
}

static void *allocate_aligned(size_t alignment, size_t size)
{
    return aligned_alloc_function(alignment, size);
}

static void *allocate_aligned_64(size_t size)
{
    return aligned_alloc_function(64, size);
}

static void *allocate_posix(size_t alignment, size_t size)
{
    void *block = NULL;
    CHECK_EQ(posix_memalign_function(&block, alignment, size), 0);
    return block;
}

static void check_frees(void)
{
    CHECK_KEEPS_ERRNO(free_function(NULL));
    CHECK_KEEPS_ERRNO(free_sized_function(NULL, 10));
    CHECK_KEEPS_ERRNO(free_aligned_sized_function(NULL, 16, 10));
    for (size_t s = 0; s < TEST_COUNT_OF(test_sizes); s++) {
        size_t size = test_sizes[s];
        void *block = malloc_function(size);
        REQUIRE(block != NULL);
        CHECK_KEEPS_ERRNO(free_function(block));
        block = malloc_function(size);
        REQUIRE(block != NULL);
        CHECK_KEEPS_ERRNO(free_sized_function(block, size));
        block = aligned_alloc_function(128, size);
        REQUIRE(block != NULL);
        CHECK_KEEPS_ERRNO(free_aligned_sized_function(block, 128, size));
        /* One family's block, the other's realloc and free. */
        block = malloc(size);
        REQUIRE(block != NULL);
        test_fill(block, size, s);
        block = realloc_function(block, size * 2);
        REQUIRE(block != NULL);
        CHECK_EQ(test_intact(block, size, s), size);
        block = realloc(block, size);
        REQUIRE(block != NULL);
        CHECK_EQ(test_intact(block, size, s), size);
        CHECK_KEEPS_ERRNO(free_function(block));
    }
}

static void check_failures(void)
{
    CHECK_FAILS(calloc_function(SIZE_MAX / 16 + 2, 16), ENOMEM);
    CHECK_FAILS(reallocarray_function(NULL, SIZE_MAX / 16 + 2, 16), ENOMEM);
    CHECK_FAILS(aligned_alloc_function(48, 10), EINVAL);
    void *block = NULL;
    CHECK_EQ(posix_memalign_function(&block, 48, 10), EINVAL);
    CHECK_EQ(posix_memalign_function(&block, 16, SIZE_MAX), ENOMEM);
    CHECK(block == NULL);
    block = malloc_function(10);
    void *result;
    CHECK_KEEPS_ERRNO(result = realloc_function(block, 0));
    CHECK(result == NULL);
}

/* What hakmem did not return has no usable size. */
static void check_usable_size(void)
{
    static char not_a_block[64];
    char on_the_stack[64];
    CHECK_EQ(usable_function(NULL), 0);
    CHECK_EQ(usable_function(not_a_block), 0);
    CHECK_EQ(usable_function(on_the_stack), 0);
    /* Addresses that no user object has: the first page, the kernel's half, the last byte. */
    static const uintptr_t nowhere[] = {1,          16, 4080, (uintptr_t)1 << 63, UINTPTR_MAX - 15,
                                        UINTPTR_MAX};
    for (size_t i = 0; i < TEST_COUNT_OF(nowhere); i++) {
        CHECK_EQ(usable_function((const void *)nowhere[i]), 0);
    }
}

int main(void)
{
    test_start(120);
    static const test_allocator allocators[] = {allocate_malloc, allocate_calloc, allocate_realloc,
                                                allocate_reallocarray, allocate_aligned_64};
    for (size_t i = 0; i < TEST_COUNT_OF(allocators); i++) {
        check_zero_size(allocators[i]);
        check_success_keeps_errno(allocators[i]);
        check_impossible_sizes(allocators[i]);
        check_no_overlap(allocators[i]);
    }
    check_alignment_of_all_sizes(allocate_malloc);
    check_alignments(allocate_aligned);
    check_alignments(allocate_posix);
    check_frees();
    check_failures();
    check_usable_size();
    const char *version = hak_version();
    CHECK(version != NULL && version[0] >= '0' && version[0] <= '9');
    return test_result();
}
