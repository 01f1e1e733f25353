/* Pointers that hakmem did not return, given to free, realloc and malloc_usable_size: each call is counted
 * or refused, none follows the pointer, and blocks in use are as they were. */
#include <sys/mman.h>

#include "../test.h"

static uint64_t foreign_frees(void)
{
    hak_stats_data stats;
    REQUIRE(hak_stats(&stats, sizeof stats) == 0);
    return stats.foreign_frees;
}

static void try(const char *what, void *pointer)
{
    uint64_t before = foreign_frees();
    int failures = test_failures;
    CHECK_EQ(malloc_usable_size(pointer), 0);
    CHECK_KEEPS_ERRNO(free(pointer));
    CHECK_FAILS(realloc(pointer, 100), ENOMEM);
    CHECK_EQ(foreign_frees(), before + 2);
    if (test_failures != failures)
        fprintf(stderr, "  with %s (%p)\n", what, pointer);
}

static char in_data[64] = "data";

int main(void)
{
    test_start(20);
    char on_stack[64] = "stack";
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    struct {
        void *block;
        size_t size;
    } live[64];
    for (size_t i = 0; i < TEST_COUNT_OF(live); i++) {
        live[i].size = test_sizes[i % TEST_COUNT_OF(test_sizes)];
        live[i].block = malloc(live[i].size);
        REQUIRE(live[i].block != NULL);
        test_fill(live[i].block, live[i].size, i);
    }

    try("stack", on_stack);
    try("stack, misaligned", on_stack + 3);
    try("data", in_data);
    try("code", (void *)(uintptr_t)main);
    for (uintptr_t i = 1; i < page; i = i * 3 + 1)
        try("the page of NULL", (void *)i);
    try("below the first superslab", (void *)((uintptr_t)1 << 21));
    try("an address of a 4 GiB process", (void *)(uintptr_t)0xFFFFE000u);
    for (unsigned bit = 33; bit < 64; bit++) {
        try("an address of a larger process", (void *)((uintptr_t)1 << bit));
        try("its end", (void *)(((uintptr_t)1 << bit) - 16));
    }
    try("the last byte", (void *)UINTPTR_MAX);

    char *map = mmap(NULL, TEST_MIB(4), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    REQUIRE(map != MAP_FAILED);
    memset(map, 7, TEST_MIB(4));
    try("a mapping of the program's", map);
    try("inside it", map + 12345);
    CHECK(map[0] == 7 && memcmp(map, map + 1, TEST_MIB(4) - 1) == 0);
    munmap(map, TEST_MIB(4));
    try("a mapping that is gone", map);

    /* Inside what we did return, where no block begins. */
    char *big = malloc(TEST_MIB(5));
    test_fill(big, TEST_MIB(5), 1);
    try("inside a big block", big + page);
    try("inside a big block, misaligned", big + 17);
    char *span = malloc(200000);
    test_fill(span, 200000, 2);
    uint64_t before = foreign_frees();
    free(span + page);
    free(span + 16);
    free(span + 1);
    CHECK_EQ(foreign_frees(), before + 3);
    CHECK_EQ(test_intact(big, TEST_MIB(5), 1), TEST_MIB(5));
    CHECK_EQ(test_intact(span, 200000, 2), 200000);

    /* A tag in the top byte, as hardware that ignores it would allow. */
    for (uintptr_t tag = 1; tag < 256; tag = tag * 2 + 1) {
        try("a tagged pointer to a small block", (void *)((uintptr_t)live[4].block | tag << 56));
        try("a tagged pointer to a big block", (void *)((uintptr_t)big | tag << 56));
    }

    /* Freed twice, where that can be known. */
    before = foreign_frees();
    free(big);
    free(big);
    free(span);
    free(span);
    CHECK_EQ(foreign_frees(), before + 2);

    for (size_t i = 0; i < TEST_COUNT_OF(live); i++) {
        CHECK_EQ(test_intact(live[i].block, live[i].size, i), live[i].size);
        free(live[i].block);
    }
    CHECK(on_stack[0] == 's' && in_data[0] == 'd');
    return test_result();
}
