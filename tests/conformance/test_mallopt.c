/* mallopt: glibc. Its parameters are mapped or knowingly ignored (docs/options.md says which); none
 * of them harms, and each is accepted. */
#include "blocks.h"

#if defined(HAK_NO_INTERPOSE)
int main(void)
{
    return test_skip("mallopt is the C library's in this build");
}
#else

static int (*volatile mallopt_function)(int, int) = mallopt;

int main(void)
{
    test_start(60);
    static const int settings[][2] = {
        {M_MXFAST, 64},        {M_TRIM_THRESHOLD, 256 << 10},
        {M_TOP_PAD, 64 << 10}, {M_MMAP_THRESHOLD, 1 << 20},
        {M_MMAP_MAX, 1000},    {M_CHECK_ACTION, 3},
        {M_PERTURB, 0},        {M_ARENA_TEST, 2},
        {M_ARENA_MAX, 4},
    };
    for (size_t i = 0; i < TEST_COUNT_OF(settings); i++) {
        CHECK_EQ(mallopt_function(settings[i][0], settings[i][1]), 1);
    }
    int unknown = mallopt_function(123456, 1);
    CHECK(unknown == 0 || unknown == 1);
    for (size_t s = 0; s < TEST_COUNT_OF(test_sizes); s++) {
        void *block = malloc(test_sizes[s]);
        REQUIRE(block != NULL);
        test_fill(block, test_sizes[s], s);
        CHECK_EQ(test_intact(block, test_sizes[s], s), test_sizes[s]);
        free(block);
    }
    return test_result();
}
#endif
