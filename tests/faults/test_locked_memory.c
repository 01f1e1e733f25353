/* mlockall(MCL_CURRENT | MCL_FUTURE) makes everything mapped resident: reserved address space and tables
 * of its size must not be among that. */
#include <sys/mman.h>
#include <sys/resource.h>

#include "../test.h"

int main(void)
{
    if (TEST_SANITIZED)
        return test_skip("a sanitizer's shadow can't be locked");
    test_start(60);
    struct rlimit lock = {RLIM_INFINITY, RLIM_INFINITY};
    setrlimit(RLIMIT_MEMLOCK, &lock);
    void *block[64];
    for (size_t i = 0; i < TEST_COUNT_OF(block); i++)
        REQUIRE((block[i] = malloc(i * 100 + 1)) != NULL);
    size_t before = test_resident_bytes();
    if (mlockall(MCL_CURRENT | MCL_FUTURE) != 0)
        return test_skip("mlockall is refused here");
    size_t locked = test_resident_bytes();
    /* libc and the program themselves, whole, are some 2 MiB of it. */
    fprintf(stderr, "resident: %zu KiB, locked: %zu KiB\n", before >> 10, locked >> 10);
    CHECK(locked - before < TEST_MIB(8));

    /* What comes later is locked as it is mapped, and no more of it than is asked for. */
    for (size_t i = 0; i < TEST_COUNT_OF(test_sizes); i++) {
        void *more = malloc(test_sizes[i]);
        REQUIRE(more != NULL);
        memset(more, 1, test_sizes[i]);
        free(more);
    }
    size_t later = test_resident_bytes();
    fprintf(stderr, "after requests of every size: %zu KiB\n", later >> 10);
    CHECK(later - locked < TEST_MIB(32));
    /* Locked pages can't be given back, and are still zeroed where they must be. */
    hak_purge();
    for (size_t i = 0; i < TEST_COUNT_OF(test_sizes); i++) {
        void *more = calloc(1, test_sizes[i]);
        REQUIRE(more != NULL);
        CHECK(test_is_zero(more, test_sizes[i]));
        free(more);
    }
    for (size_t i = 0; i < TEST_COUNT_OF(block); i++)
        free(block[i]);
    return test_result();
}
