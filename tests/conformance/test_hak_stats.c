/* hak_stats, hak_stats_print: figures that agree with what was done. */
#include <hakmem/hakmem.h>
#include <pthread.h>

#include "blocks.h"

static hak_stats_data read_stats(void)
{
    hak_stats_data stats;
    memset(&stats, 0x55, sizeof(stats));
    int result;
    CHECK_KEEPS_ERRNO(result = hak_stats(&stats, sizeof(stats)));
    CHECK_EQ(result, 0);
    return stats;
}

static void check_arguments(void)
{
    hak_stats_data stats;
    CHECK_EQ(hak_stats(NULL, sizeof(stats)), EINVAL);
    CHECK_EQ(hak_stats(&stats, 0), EINVAL);
    /* A caller that knows less gets what it knows, and no byte more. */
    memset(&stats, 0x55, sizeof(stats));
    CHECK_EQ(hak_stats(&stats, offsetof(hak_stats_data, heaps)), 0);
    CHECK_EQ(stats.struct_bytes, sizeof(stats));
    CHECK_EQ(stats.heaps, 0x5555555555555555);
    /* One that knows more gets what there is. */
    struct {
        hak_stats_data known;
        uint64_t unknown[4];
    } later;
    memset(&later, 0, sizeof(later));
    CHECK_EQ(hak_stats(&later.known, sizeof(later)), 0);
    CHECK_EQ(later.known.struct_bytes, sizeof(hak_stats_data));
}

/* Served bytes and requests of the calling thread are counted by the time it asks. */
static void check_served(void)
{
    static const struct {
        size_t size, count;
        int tier;
    } work[] = {
        {200, 50000, HAK_TIER_TINY},
        {20000, 2000, HAK_TIER_MID},
        {300000, 50, HAK_TIER_LARGE},
        {3000000, 20, HAK_TIER_BIG},
    };
    for (size_t w = 0; w < TEST_COUNT_OF(work); w++) {
        uint64_t bytes = work[w].size * work[w].count;
        hak_stats_data before = read_stats();
        for (size_t i = 0; i < work[w].count; i++) {
            void *block = malloc(work[w].size);
            REQUIRE(block != NULL);
            free(block);
        }
        hak_stats_data after = read_stats();
        uint64_t served = after.served_bytes - before.served_bytes;
        CHECK(served >= bytes);
        CHECK(served <= bytes + bytes / 4);
        const hak_tier_stats *was = &before.tier[work[w].tier], *is = &after.tier[work[w].tier];
        if (work[w].tier >= HAK_TIER_LARGE) {
            CHECK_EQ(is->requests - was->requests, work[w].count);
        }
        CHECK(is->requests > was->requests);
        CHECK(is->bytes > was->bytes);
    }
}

/* Live memory shows where it lies. */
static void check_memory(void)
{
    hak_stats_data before = read_stats();
    enum { small_count = 16 << 10, large_count = 40, big_count = 5 };
    static void *small[small_count], *large[large_count], *big[big_count];
    for (size_t i = 0; i < small_count; i++) {
        small[i] = malloc(1000);
        REQUIRE(small[i] != NULL);
        memset(small[i], 1, 1000);
    }
    for (size_t i = 0; i < large_count; i++) {
        large[i] = malloc(500000);
        REQUIRE(large[i] != NULL);
    }
    for (size_t i = 0; i < big_count; i++) {
        big[i] = malloc(TEST_MIB(5));
        REQUIRE(big[i] != NULL);
    }
    hak_stats_data after = read_stats();
    CHECK(after.slab_bytes >= small_count * 1000);
    CHECK(after.span_bytes >= before.span_bytes + large_count * 500000);
    CHECK(after.big_bytes >= before.big_bytes + big_count * TEST_MIB(5));
    CHECK(after.mapped_bytes >= after.slab_bytes + after.span_bytes);
    CHECK(after.metadata_bytes > 0);
    CHECK(after.reserved_bytes > 0);
    CHECK(after.resident_bytes >= small_count * 1000);
    CHECK(after.peak_resident_bytes >= after.resident_bytes);
    CHECK(after.minor_faults > before.minor_faults || TEST_SANITIZED);
    for (size_t i = 0; i < small_count; i++) {
        free(small[i]);
    }
    for (size_t i = 0; i < large_count; i++) {
        free(large[i]);
    }
    for (size_t i = 0; i < big_count; i++) {
        free(big[i]);
    }
    after = read_stats();
    CHECK(after.big_bytes <= before.big_bytes);
}

static void *passed[10000];

static void *allocate_in_thread(void *ignored)
{
    for (size_t i = 0; i < TEST_COUNT_OF(passed); i++) {
        passed[i] = malloc(48);
        REQUIRE(passed[i] != NULL);
    }
    return ignored;
}

/* A thread makes a heap; what it allocated and this one frees is remote. */
static void check_threads(void)
{
    hak_stats_data before = read_stats();
    for (int i = 0; i < 3; i++) {
        pthread_t thread;
        REQUIRE(pthread_create(&thread, NULL, allocate_in_thread, NULL) == 0);
        pthread_join(thread, NULL);
        for (size_t j = 0; j < TEST_COUNT_OF(passed); j++) {
            free(passed[j]);
        }
    }
    hak_stats_data after = read_stats();
    CHECK(after.heaps >= 2);
    CHECK(after.heaps_live >= 1 && after.heaps_live <= after.heaps);
    CHECK_EQ(after.heaps_live, before.heaps_live);
    /* By posting, or by adopting the slabs of a thread that is gone. */
    CHECK(after.remote_posted > before.remote_posted || after.slabs_adopted > before.slabs_adopted);
    CHECK(after.remote_drained <= after.remote_posted);
}

/* A pointer that hakmem did not return is counted and ignored. */
static void check_foreign(void)
{
    static uint64_t not_a_block[16];
    hak_stats_data before = read_stats();
    void (*volatile release)(void *) = hak_free;
    release(&not_a_block[8]);
    hak_stats_data after = read_stats();
    CHECK_EQ(after.foreign_frees - before.foreign_frees, 1);
}

static void check_print(void)
{
    char path[] = "/tmp/hak_test_print_XXXXXX";
    int file = mkstemp(path);
    REQUIRE(file >= 0);
    unlink(path);
    CHECK_KEEPS_ERRNO(hak_stats_print(file));
    static char text[65536];
    ssize_t length = pread(file, text, sizeof(text) - 1, 0);
    CHECK(length > 100);
    CHECK(length > 0 && text[length - 1] == '\n');
    CHECK(strstr(text, "hakmem") != NULL);
    close(file);
    /* Nowhere to write to: nothing happens. */
    CHECK_KEEPS_ERRNO(hak_stats_print(-1));
}

int main(void)
{
    test_start(60);
    check_arguments();
    check_served();
    check_memory();
    check_threads();
    check_foreign();
    check_print();
    return test_result();
}
