/* hak_alloc_cs and its kin: what a program with three sites allocates shows as three sites, with
 * exactly those counts and sizes. */
#include <hakmem/hakmem.h>
#include <pthread.h>

#include "blocks.h"

static hak_site_info sites[64];

/* The site of this file at `line`, from a fresh reading; zeros if there is none. */
static hak_site_info site_at(unsigned line)
{
    size_t count = hak_sites(sites, TEST_COUNT_OF(sites));
    REQUIRE(count <= TEST_COUNT_OF(sites));
    for (size_t i = 0; i < count; i++) {
        if (sites[i].line == line && strcmp(sites[i].file, __FILE__) == 0)
            return sites[i];
    }
    hak_site_info none;
    memset(&none, 0, sizeof(none));
    return none;
}

static void check_site(const hak_site_info *site, const char *function, unsigned line,
                       uint64_t count, uint64_t size)
{
    CHECK(site->file != NULL && strcmp(site->file, __FILE__) == 0);
    CHECK(site->function != NULL && strcmp(site->function, function) == 0);
    CHECK_EQ(site->line, line);
    CHECK(site->id != 0);
    CHECK_EQ(site->allocs, count);
    CHECK_EQ(site->alloc_bytes, count * size);
    CHECK_EQ(site->min_bytes, size);
    CHECK_EQ(site->max_bytes, size);
}

/* Runs first: it looks at all sites there are. */
static void check_three_sites(void)
{
    static void *buffer[1000], *chunk[100], *image[10];
    unsigned line[3];
    CHECK_EQ(hak_sites(sites, TEST_COUNT_OF(sites)), 0);
    for (int i = 0; i < 1000; i++) {
        line[0] = __LINE__ + 1;
        buffer[i] = hak_alloc_cs(64 << 10, HAK_CALLSITE());
        REQUIRE(buffer[i] != NULL);
    }
    for (int i = 0; i < 100; i++) {
        line[1] = __LINE__ + 1;
        chunk[i] = hak_alloc_cs(256 << 10, HAK_CALLSITE());
        REQUIRE(chunk[i] != NULL);
    }
    for (int i = 0; i < 10; i++) {
        line[2] = __LINE__ + 1;
        image[i] = hak_alloc_cs(2 << 20, HAK_CALLSITE());
        REQUIRE(image[i] != NULL);
    }
    /* Those with most bytes first: 62.5, 25 and 20 MiB. */
    CHECK_EQ(hak_sites(sites, TEST_COUNT_OF(sites)), 3);
    check_site(&sites[0], __func__, line[0], 1000, 64 << 10);
    check_site(&sites[1], __func__, line[1], 100, 256 << 10);
    check_site(&sites[2], __func__, line[2], 10, 2 << 20);
    CHECK(sites[0].id != sites[1].id && sites[1].id != sites[2].id && sites[0].id != sites[2].id);
    for (size_t i = 0; i < 3; i++) {
        CHECK_EQ(sites[i].frees, 0);
        CHECK_EQ(sites[i].freed_bytes, 0);
    }

    /* Room for fewer than there are: the first ones, and the number of all. */
    hak_site_info two[3];
    memset(two, 0x77, sizeof(two));
    CHECK_EQ(hak_sites(two, 2), 3);
    check_site(&two[0], __func__, line[0], 1000, 64 << 10);
    check_site(&two[1], __func__, line[1], 100, 256 << 10);
    CHECK_EQ(two[2].line, 0x77777777);
    CHECK_EQ(hak_sites(NULL, 0), 3);

    for (int i = 0; i < 1000; i++) {
        hak_free_cs(buffer[i], NULL);
    }
    for (int i = 0; i < 100; i++) {
        free(chunk[i]);
    }
    for (int i = 0; i < 10; i++) {
        hak_free_cs(image[i], NULL);
    }
    CHECK_EQ(hak_sites(sites, TEST_COUNT_OF(sites)), 3);
    check_site(&sites[0], __func__, line[0], 1000, 64 << 10);
}

static void check_frees(void)
{
    static void *block[50];
    for (size_t i = 0; i < TEST_COUNT_OF(block); i++) {
        block[i] = hak_alloc_cs(100 * (i + 1), NULL);
        REQUIRE(block[i] != NULL);
        test_fill(block[i], 100 * (i + 1), i);
    }
    size_t usable = 0;
    unsigned line = 0;
    for (size_t i = 0; i < TEST_COUNT_OF(block); i++) {
        CHECK_EQ(test_intact(block[i], 100 * (i + 1), i), 100 * (i + 1));
        usable += hak_usable_size(block[i]);
        line = __LINE__ + 1;
        CHECK_KEEPS_ERRNO(hak_free_cs(block[i], HAK_CALLSITE()));
    }
    hak_site_info site = site_at(line);
    CHECK_EQ(site.frees, TEST_COUNT_OF(block));
    CHECK_EQ(site.freed_bytes, usable);
    CHECK_EQ(site.allocs, 0);
    CHECK_EQ(site.min_bytes, 0);
    CHECK_EQ(site.max_bytes, 0);
    CHECK_KEEPS_ERRNO(hak_free_cs(NULL, NULL));
}

static void check_calloc(void)
{
    unsigned line = 0;
    for (size_t s = 0; s < TEST_COUNT_OF(test_sizes); s++) {
        void *dirty = malloc(3 * test_sizes[s]);
        REQUIRE(dirty != NULL);
        memset(dirty, 0xff, 3 * test_sizes[s]);
        free(dirty);
        line = __LINE__ + 1;
        void *block = hak_calloc_cs(3, test_sizes[s], HAK_CALLSITE());
        REQUIRE(block != NULL);
        CHECK(test_is_zero(block, 3 * test_sizes[s]));
        hak_free_cs(block, NULL);
    }
    hak_site_info site = site_at(line);
    uint64_t sum = 0;
    for (size_t s = 0; s < TEST_COUNT_OF(test_sizes); s++) {
        sum += 3 * test_sizes[s];
    }
    CHECK_EQ(site.allocs, TEST_COUNT_OF(test_sizes));
    CHECK_EQ(site.alloc_bytes, sum);
    CHECK_EQ(site.min_bytes, 3 * test_sizes[0]);
    CHECK_EQ(site.max_bytes, 3 * test_sizes[TEST_COUNT_OF(test_sizes) - 1]);
}

/* One call at one site counts as an allocation there, and as a free of what was there before. */
static void check_realloc(void)
{
    static const size_t steps[] = {100, 2000, 50000, 3000000, 70};
    hak_callsite *here = HAK_CALLSITE();
    unsigned line = here->line;
    void *block = NULL;
    size_t before = 0, usable = 0;
    uint64_t sum = 0;
    for (size_t i = 0; i < TEST_COUNT_OF(steps); i++) {
        if (block != NULL)
            usable += hak_usable_size(block);
        block = hak_realloc_cs(block, steps[i], here);
        REQUIRE(block != NULL);
        size_t kept = before < steps[i] ? before : steps[i];
        CHECK_EQ(test_intact(block, kept, 1), kept);
        test_fill(block, steps[i], 1);
        before = steps[i];
        sum += steps[i];
    }
    hak_site_info site = site_at(line);
    CHECK_EQ(site.allocs, TEST_COUNT_OF(steps));
    CHECK_EQ(site.alloc_bytes, sum);
    CHECK_EQ(site.min_bytes, 70);
    CHECK_EQ(site.max_bytes, 3000000);
    CHECK_EQ(site.frees, TEST_COUNT_OF(steps) - 1);
    CHECK_EQ(site.freed_bytes, usable);

    usable += hak_usable_size(block);
    void *result;
    CHECK_KEEPS_ERRNO(result = hak_realloc_cs(block, 0, here));
    CHECK(result == NULL);
    site = site_at(line);
    CHECK_EQ(site.allocs, TEST_COUNT_OF(steps));
    CHECK_EQ(site.frees, TEST_COUNT_OF(steps));
    CHECK_EQ(site.freed_bytes, usable);
}

/* What failed was not allocated. */
static void check_failures_do_not_count(void)
{
    hak_callsite *here = HAK_CALLSITE();
    void *block = hak_alloc_cs(200, here);
    REQUIRE(block != NULL);
    void *(*volatile alloc)(size_t, hak_callsite *) = hak_alloc_cs;
    void *(*volatile zeroed)(size_t, size_t, hak_callsite *) = hak_calloc_cs;
    void *(*volatile resize)(void *, size_t, hak_callsite *) = hak_realloc_cs;
    CHECK_FAILS(alloc(SIZE_MAX, here), ENOMEM);
    CHECK_FAILS(zeroed(SIZE_MAX / 16 + 2, 16, here), ENOMEM);
    CHECK_FAILS(resize(block, SIZE_MAX, here), ENOMEM);
    hak_site_info site = site_at(here->line);
    CHECK_EQ(site.allocs, 1);
    CHECK_EQ(site.alloc_bytes, 200);
    CHECK_EQ(site.max_bytes, 200);
    CHECK_EQ(site.frees, 0);
    hak_free_cs(block, NULL);
}

enum { threads = 4, rounds = 20000 };

static hak_callsite *shared_site(void)
{
    return HAK_CALLSITE();
}

static void *allocate_at_shared_site(void *number)
{
    size_t size = 16 + *(const size_t *)number;
    for (int i = 0; i < rounds; i++) {
        void *block = hak_alloc_cs(size, shared_site());
        REQUIRE(block != NULL);
        hak_free_cs(block, shared_site());
    }
    return NULL;
}

/* Counts are exact whoever else counts at the same time, and stay when their threads are gone. */
static void check_threads(void)
{
    pthread_t thread[threads];
    size_t number[threads];
    for (size_t i = 0; i < threads; i++) {
        number[i] = i;
        REQUIRE(pthread_create(&thread[i], NULL, allocate_at_shared_site, &number[i]) == 0);
    }
    for (size_t i = 0; i < threads; i++) {
        pthread_join(thread[i], NULL);
    }
    hak_site_info site = site_at(shared_site()->line);
    CHECK_EQ(site.allocs, threads * rounds);
    CHECK_EQ(site.alloc_bytes, (16 + 17 + 18 + 19) * rounds);
    CHECK_EQ(site.min_bytes, 16);
    CHECK_EQ(site.max_bytes, 16 + threads - 1);
    CHECK_EQ(site.frees, threads * rounds);
}

int main(void)
{
    test_start(60);
    check_three_sites();
    check_frees();
    check_calloc();
    check_realloc();
    check_failures_do_not_count();
    check_threads();
    return test_result();
}
