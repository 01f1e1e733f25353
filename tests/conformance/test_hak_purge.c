/* hak_purge: what is free goes back to the system at once, what is in use stays as it is. */
#include <hakmem/hakmem.h>

#include "blocks.h"

enum { most = 64 << 10 };
static void *block[most];
static void *survivor[64];

/* 64 MiB in blocks of one size, all freed but every thousandth. */
static void check_size(size_t size)
{
    size_t count = TEST_MIB(64) / size < most ? TEST_MIB(64) / size : most;
    size_t step = count < 64 ? count : count / 32;
    size_t kept = 0;
    hak_purge();
    size_t before = test_resident_bytes();
    for (size_t i = 0; i < count; i++) {
        block[i] = malloc(size);
        REQUIRE(block[i] != NULL);
        test_fill(block[i], size, i);
    }
    size_t full = test_resident_bytes();
    for (size_t i = 0; i < count; i++) {
        if (i % step == 0 && kept < TEST_COUNT_OF(survivor)) {
            survivor[kept++] = block[i];
        } else {
            free(block[i]);
        }
    }
    size_t given;
    CHECK_KEEPS_ERRNO(given = hak_purge());
    size_t after = test_resident_bytes();
    if (!TEST_SANITIZED) {
        CHECK(full >= before + count * size / 2);
        /* Survivors hold their slabs' pages at most, 64 KiB around each. */
        CHECK(after <= before + kept * (size + TEST_KIB(64)) + TEST_MIB(4));
        CHECK(given <= full);
    }
    for (size_t i = 0, k = 0; i < count && k < kept; i += step, k++) {
        CHECK_EQ(test_intact(survivor[k], size, i), size);
        free(survivor[k]);
    }
    /* Purged memory serves again, and calloc's is zero. */
    unsigned char *zeroed = calloc(1, size);
    REQUIRE(zeroed != NULL);
    CHECK(test_is_zero(zeroed, size));
    test_fill(zeroed, size, 1);
    CHECK_EQ(test_intact(zeroed, size, 1), size);
    free(zeroed);
}

int main(void)
{
    test_start(60);
    static const size_t sizes[] = {64, 1000, 8000, 32768, 100000, 1 << 20, 4 << 20};
    for (size_t s = 0; s < TEST_COUNT_OF(sizes); s++) {
        check_size(sizes[s]);
    }
    /* Nothing to give: nothing given, no harm done. */
    hak_purge();
    size_t given = hak_purge();
    CHECK(given <= TEST_KIB(256));
    return test_result();
}
