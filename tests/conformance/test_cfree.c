/* cfree: free under the name that old programs know. glibc has kept it for old binaries only: nothing
 * new links with it there. */
#include "blocks.h"

#if defined(HAK_NO_INTERPOSE)
int main(void)
{
    return test_skip("cfree is the C library's in this build");
}
#else

extern void cfree(void *block) __attribute__((weak));
static void (*volatile cfree_function)(void *) = cfree;

int main(void)
{
    test_start(60);
    if (cfree_function == NULL) {
#if !defined(HAK_TEST_GLIBC)
        test_fail(__FILE__, __LINE__, "there is no cfree");
        return test_result();
#endif
        return test_skip("the C library has no cfree");
    }
    CHECK_KEEPS_ERRNO(cfree_function(NULL));
    size_t before = test_resident_bytes();
    for (int round = 0; round < 20; round++) {
        for (size_t s = 0; s < TEST_COUNT_OF(test_sizes); s++) {
            void *block = calloc(1, test_sizes[s]);
            REQUIRE(block != NULL);
            test_fill(block, test_sizes[s], s);
            CHECK_KEEPS_ERRNO(cfree_function(block));
        }
    }
    if (!TEST_SANITIZED)
        CHECK(test_resident_bytes() <= before + TEST_MIB(128));
    return test_result();
}
#endif
