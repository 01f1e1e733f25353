/* A thread that allocates nothing but frees what others allocate: their memory comes back to them, and
 * neither side grows with the number of rounds. */
#include <pthread.h>

#include "../test.h"

enum { rounds = 40, count = 20000 };

static struct {
    pthread_barrier_t full;
    pthread_barrier_t empty;
    void *block[count];
} hand;

static size_t size_of(size_t i)
{
    return i % 500 == 0 ? 100000 : test_mix(i) % 2000 + 1;
}

static void *only_frees(void *unused)
{
    for (int r = 0; r < rounds; r++) {
        pthread_barrier_wait(&hand.full);
        for (size_t i = 0; i < count; i++)
            free(hand.block[i]);
        pthread_barrier_wait(&hand.empty);
    }
    return unused;
}

int main(void)
{
    test_start(60);
    pthread_barrier_init(&hand.full, NULL, 2);
    pthread_barrier_init(&hand.empty, NULL, 2);
    pthread_t thread;
    REQUIRE(pthread_create(&thread, NULL, only_frees, NULL) == 0);
    hak_stats_data early, stats;
    REQUIRE(hak_stats(&early, sizeof early) == 0);
    for (int r = 0; r < rounds; r++) {
        for (size_t i = 0; i < count; i++) {
            hand.block[i] = malloc(size_of(i));
            REQUIRE(hand.block[i] != NULL);
            *(volatile char *)hand.block[i] = 1;
        }
        pthread_barrier_wait(&hand.full);
        pthread_barrier_wait(&hand.empty);
        if (r == 4)
            REQUIRE(hak_stats(&early, sizeof early) == 0);
    }
    pthread_join(thread, NULL);
    REQUIRE(hak_stats(&stats, sizeof stats) == 0);
    CHECK_EQ(stats.foreign_frees, 0);
    /* Whichever way they went. */
    CHECK(stats.remote_posted + stats.exchanged >= (uint64_t)(rounds - 1) * count * 9 / 10);
    CHECK(stats.remote_drained + 2 * count >= stats.remote_posted);
    CHECK(stats.mapped_bytes <= early.mapped_bytes + early.mapped_bytes / 4);
    return test_result();
}
