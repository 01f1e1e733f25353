/* valloc: malloc aligned to a page. */
#include "blocks.h"

#if defined(HAK_NO_INTERPOSE)
int main(void)
{
    return test_skip("valloc is the sanitizer's in this build");
}
#else

static void *(*volatile valloc_function)(size_t) = valloc;

static void *allocate(size_t size)
{
    void *block = valloc_function(size);
    CHECK_ALIGNED(block, (uintptr_t)sysconf(_SC_PAGESIZE));
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
