/* Destructors of thread-specific data, and functions at exit, that allocate and free after hakmem has
 * taken the thread's heap: each call is served, and nothing stays behind for each thread. */
#include <pthread.h>

#include "../test.h"

enum { threads = TEST_SANITIZED ? 40 : 100, keys = 4, kept_count = 64 };

static pthread_key_t key[keys];
static void *kept[kept_count];
static unsigned destructors;

/* Runs after hakmem's, whose key was made first, and asks for another round while it is given any. */
static void destroy(void *value)
{
    uint64_t seed = (uint64_t)(uintptr_t)value;
    unsigned number = __atomic_add_fetch(&destructors, 1, __ATOMIC_RELAXED);
    for (size_t i = 0; i < 32; i++) {
        size_t size = test_sizes[test_mix(seed + i) % TEST_COUNT_OF(test_sizes)];
        void *block = malloc(size);
        REQUIRE(block != NULL);
        size_t filled = size < 5000 ? size : 5000;
        test_fill(block, filled, i);
        block = realloc(block, size + 100);
        REQUIRE(block != NULL);
        CHECK_EQ(test_intact(block, filled, i), filled);
        free(block);
    }
    /* One block outlives the thread, and one of another thread is freed. */
    size_t slot = number % kept_count;
    size_t size = test_sizes[test_mix(seed) % 12];
    void *block = malloc(size);
    REQUIRE(block != NULL);
    free(__atomic_exchange_n(&kept[slot], block, __ATOMIC_ACQ_REL));
    /* Not in a sanitizer's build, whose own end of the thread comes with the last round. */
    if (!TEST_SANITIZED)
        pthread_setspecific(key[seed % keys], (void *)(uintptr_t)(seed + 1));
}

static void *run(void *number)
{
    for (uintptr_t i = 0; i < keys; i++)
        pthread_setspecific(key[i], (void *)((uintptr_t)number * keys + i + 1));
    free(malloc(100));
    return NULL;
}

static void at_exit(void)
{
    for (size_t i = 0; i < 100; i++) {
        void *block = malloc(i * 100 + 1);
        REQUIRE(block != NULL);
        free(block);
    }
}

/* After the handlers above and hakmem's destructor too, as far as the loader lets it. */
__attribute__((destructor(101))) static void at_the_very_end(void)
{
    at_exit();
}

int main(void)
{
    test_start(60);
    REQUIRE(atexit(at_exit) == 0);
    for (size_t i = 0; i < keys; i++)
        REQUIRE(pthread_key_create(&key[i], destroy) == 0);
    size_t early = 0;
    for (size_t i = 0; i < threads; i += 2) {
        pthread_t pair[2];
        for (size_t j = 0; j < 2; j++)
            REQUIRE(pthread_create(&pair[j], NULL, run, (void *)(i + j + 1)) == 0);
        for (size_t j = 0; j < 2; j++)
            pthread_join(pair[j], NULL);
        if (i == threads / 4 / 2 * 2) /* pairs: an even number */
            early = test_resident_bytes();
    }
    CHECK(destructors >= threads * keys);
    hak_stats_data stats;
    REQUIRE(hak_stats(&stats, sizeof stats) == 0);
    /* Two threads at a time, and a heap borrowed by each now and then. */
    CHECK(stats.heaps <= 8);
    CHECK_EQ(stats.foreign_frees, 0);
    if (!TEST_SANITIZED)
        CHECK(test_resident_bytes() < early + TEST_MIB(24));
    for (size_t i = 0; i < kept_count; i++)
        free(kept[i]);
    return test_result();
}
