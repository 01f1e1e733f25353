/* mallinfo2: glibc 2.33. As mallinfo, with fields that suffice. */
#include "blocks.h"

#if defined(HAK_NO_INTERPOSE) || !__GLIBC_PREREQ(2, 33)
int main(void)
{
    return test_skip("no mallinfo2 to call in this build");
}
#else

static struct mallinfo2 (*volatile mallinfo2_function)(void) = mallinfo2;

static size_t in_use(struct mallinfo2 info)
{
    return info.uordblks + info.hblkhd;
}

/* What is allocated shows as in use, in every tier, and what is freed no more. */
static void check_in_use(size_t size)
{
    enum { most = 4096 };
    static void *block[most];
    size_t count = TEST_MIB(24) / size < most ? TEST_MIB(24) / size : most;
    struct mallinfo2 info;
    CHECK_KEEPS_ERRNO(info = mallinfo2_function());
    size_t before = in_use(info);
    for (size_t i = 0; i < count; i++) {
        block[i] = malloc(size);
        REQUIRE(block[i] != NULL);
    }
    info = mallinfo2_function();
    /* A part of it may stand in bins that were filled, and counted as in use, before. */
    CHECK(in_use(info) + TEST_MIB(1) >= before + count * size);
    CHECK(in_use(info) <= before + count * size * 2 + TEST_MIB(4));
    CHECK(info.arena + info.hblkhd >= in_use(info));
    for (size_t i = 0; i < count; i++) {
        free(block[i]);
    }
    info = mallinfo2_function();
    CHECK(in_use(info) <= before + count * size / 2 + TEST_MIB(1));
}

int main(void)
{
    test_start(60);
    static const size_t sizes[] = {100, 1024, 9000, 32768, 200000, 3 << 20};
    for (size_t s = 0; s < TEST_COUNT_OF(sizes); s++) {
        check_in_use(sizes[s]);
    }
    return test_result();
}
#endif
