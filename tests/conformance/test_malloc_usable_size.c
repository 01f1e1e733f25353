/* malloc_usable_size: glibc. */
#include "blocks.h"

static void *allocate(size_t size)
{
    return malloc(size);
}

/* It is a fact about the block: the same at every call, and no less than what was asked for. What a
 * program writes there is kept by realloc as far as it was asked for. */
static void check_stable(void)
{
    for (size_t size = 0; size < TEST_KIB(40); size += size / 7 + 1) {
        void *block = malloc(size);
        REQUIRE(block != NULL);
        size_t usable;
        CHECK_KEEPS_ERRNO(usable = malloc_usable_size(block));
        CHECK(usable >= size);
        memset(block, 0x5a, usable);
        CHECK_EQ(malloc_usable_size(block), usable);
        free(block);
    }
}

/* Growing a block to its usable size is never a failure and keeps its contents. */
static void check_growing_into_it(void)
{
    for (size_t s = 0; s < TEST_COUNT_OF(test_sizes); s++) {
        void *block = malloc(test_sizes[s]);
        REQUIRE(block != NULL);
        size_t usable = malloc_usable_size(block);
        test_fill(block, usable, s);
        block = realloc(block, usable);
        REQUIRE(block != NULL);
        CHECK_EQ(test_intact(block, usable, s), usable);
        free(block);
    }
}

int main(void)
{
    test_start(60);
    CHECK_EQ(malloc_usable_size(NULL), 0);
    check_no_overlap(allocate);
    check_stable();
    check_growing_into_it();
    return test_result();
}
