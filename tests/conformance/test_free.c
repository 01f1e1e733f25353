/* free: C11 7.22.3.3; POSIX.1-2024: errno is kept. */
#include <sys/mman.h>

#include "blocks.h"

static void check_null(void)
{
    CHECK_KEEPS_ERRNO(free(NULL));
    CHECK_EQ(malloc_usable_size(NULL), 0);
}

/* Orders of freeing: as allocated, reversed, and mixed. */
static void check_orders(void)
{
    enum { count = 3000 };
    static void *block[count];
    for (size_t s = 0; s < TEST_COUNT_OF(test_sizes) && test_sizes[s] <= TEST_KIB(4); s++) {
        for (int order = 0; order < 3; order++) {
            for (size_t i = 0; i < count; i++) {
                block[i] = malloc(test_sizes[s]);
                REQUIRE(block[i] != NULL);
                test_fill(block[i], test_sizes[s], i);
            }
            for (size_t i = 0; i < count; i++) {
                /* 1009 has no common divisor with the count: every block comes once. */
                size_t j = order == 0 ? i : order == 1 ? count - 1 - i : i * 1009 % count;
                CHECK_EQ(test_intact(block[j], test_sizes[s], j), test_sizes[s]);
                CHECK_KEEPS_ERRNO(free(block[j]));
            }
        }
    }
}

/* Freeing gives memory back: the first half of a burst in every tier leaves room for the next. */
static void check_bursts_do_not_pile_up(void)
{
    static const size_t sizes[] = {64, 1000, 9000, 70000, 900000, 3 << 20};
    size_t count[TEST_COUNT_OF(sizes)];
    static void *block[TEST_COUNT_OF(sizes)][TEST_MIB(16) / 64];
    size_t first = 0;
    for (int round = 0; round < 6; round++) {
        for (size_t s = 0; s < TEST_COUNT_OF(sizes); s++) {
            count[s] = TEST_MIB(16) / sizes[s];
            for (size_t i = 0; i < count[s]; i++) {
                block[s][i] = malloc(sizes[s]);
                REQUIRE(block[s][i] != NULL);
                memset(block[s][i], round, sizes[s]);
            }
            for (size_t i = 0; i < count[s]; i++) {
                free(block[s][i]);
            }
        }
        size_t resident = test_resident_bytes();
        if (round == 0)
            first = resident;
        if (!TEST_SANITIZED)
            CHECK(resident <= first + TEST_MIB(48));
    }
}

/* errno is kept also where freeing unmaps or purges. */
static void check_errno_of_large(void)
{
    for (size_t size = TEST_MIB(1); size <= TEST_MIB(256); size *= 2) {
        char *block = malloc(size);
        REQUIRE(block != NULL);
        block[0] = block[size - 1] = 1;
        CHECK_KEEPS_ERRNO(free(block));
    }
}

int main(void)
{
    test_start(120);
    check_null();
    check_orders();
    check_bursts_do_not_pile_up();
    check_errno_of_large();
    return test_result();
}
