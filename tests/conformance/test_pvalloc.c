/* pvalloc: valloc of whole pages. */
#include "blocks.h"

#if defined(HAK_NO_INTERPOSE)
int main(void)
{
    return test_skip("pvalloc is the sanitizer's in this build");
}
#else

static void *(*volatile pvalloc_function)(size_t) = pvalloc;

static void *allocate(size_t size)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    void *block = pvalloc_function(size);
    if (block != NULL) {
        CHECK_ALIGNED(block, page);
        CHECK(malloc_usable_size(block) >= ((size + page - 1) & ~(page - 1)));
    }
    return block;
}

int main(void)
{
    test_start(60);
    check_alignment_of_all_sizes(allocate);
    check_no_overlap(allocate);
    check_zero_size(allocate);
    check_success_keeps_errno(allocate);
    check_impossible_sizes(allocate);
    return test_result();
}
#endif
