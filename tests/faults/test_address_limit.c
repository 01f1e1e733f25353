/* RLIMIT_AS, before the start and after it. A program that may have 64 MiB of address space starts and
 * uses most of them; one whose limit is set later to a little more than it has goes on. */
#include <sys/resource.h>

#include "../test.h"

#include "process.h"

static void limit(size_t bytes)
{
    struct rlimit as = {bytes, bytes};
    REQUIRE(setrlimit(RLIMIT_AS, &as) == 0);
}

static void limit_64m(void)
{
    limit(TEST_MIB(64));
}

/* Address space of this process. */
static size_t address_space(void)
{
    char text[64] = "";
    int file = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
    REQUIRE(file >= 0 && read(file, text, sizeof text - 1) > 0);
    close(file);
    return (size_t)strtoull(text, NULL, 10) * (size_t)sysconf(_SC_PAGESIZE);
}

/* Blocks of `size` until `bytes` are had or there are none; a list through their first words. */
static size_t fill_memory(size_t size, size_t bytes)
{
    void **list = NULL;
    size_t had = 0;
    while (had < bytes) {
        void **block = malloc(size);
        if (block == NULL)
            break;
        block[0] = list;
        list = block;
        had += size;
    }
    while (list != NULL) {
        void **next = list[0];
        free(list);
        list = next;
    }
    return had;
}

static const size_t sizes[] = {16, 100, 1000, 5000, 30000, 100000, 1000000, 3000000};

static void use(size_t size, size_t bytes)
{
    size_t had = fill_memory(size, bytes);
    if (had < bytes)
        fprintf(stderr, "blocks of %zu: %zu KiB of %zu\n", size, had >> 10, bytes >> 10);
    CHECK(had >= bytes);
    hak_purge();
}

int main(int argc, char **argv)
{
    if (TEST_SANITIZED)
        return test_skip("sanitizers need more address space than that");
    test_start(60);
    if (argc > 1 && strcmp(argv[1], "late") != 0) {
        use(strtoull(argv[1], NULL, 10), TEST_MIB(24));
        /* Of every other size as well: what one tier has reserved is not had by another, but some is
         * left. */
        for (size_t i = 0; i < TEST_COUNT_OF(sizes); i++)
            use(sizes[i], TEST_MIB(6));
        return test_result();
    }
    if (argc > 1) {
        free(malloc(100));
        limit(address_space() + TEST_MIB(1024));
        for (size_t i = 0; i < TEST_COUNT_OF(sizes); i++)
            use(sizes[i], TEST_MIB(100));
        /* And what is not had is refused, not waited for. */
        CHECK_FAILS(malloc(TEST_MIB(2048)), ENOMEM);
        for (size_t i = 0; i < TEST_COUNT_OF(sizes); i++)
            use(sizes[i], TEST_MIB(100));
        return test_result();
    }
    for (size_t i = 0; i < TEST_COUNT_OF(sizes); i++) {
        char word[32];
        snprintf(word, sizeof word, "%zu", sizes[i]);
        CHECK_EQ(process_again(word, limit_64m), 0);
    }
    CHECK_EQ(process_again("late", NULL), 0);
    return test_result();
}
