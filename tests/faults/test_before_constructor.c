/* The first calls come before any constructor has run, as from another library's that is initialised
 * earlier: hakmem sets itself up at the first call, and its own constructor finds that done. */
#include <pthread.h>

#include "../test.h"

enum { count = 64 };

static void *early[count];
static size_t early_size[count];
static bool early_failed;

static void before_everything(int argc, char **argv, char **environment)
{
    (void)argc;
    (void)argv;
    (void)environment;
    for (size_t i = 0; i < count; i++) {
        early_size[i] = test_sizes[i % TEST_COUNT_OF(test_sizes)];
        early[i] = i % 3 == 0 ? calloc(1, early_size[i]) : malloc(early_size[i]);
        if (early[i] == NULL)
            early_failed = true;
        else
            test_fill(early[i], early_size[i], i);
    }
    for (size_t i = 0; i < count; i += 4) {
        free(early[i]);
        early[i] = NULL;
    }
    for (size_t i = 1; i < count; i += 4) {
        void *longer = realloc(early[i], early_size[i] * 2);
        if (longer == NULL)
            early_failed = true;
        else
            early[i] = longer;
    }
}

/* Sanitizers are not set up before their own constructors. */
#if !TEST_SANITIZED
__attribute__((section(".preinit_array"),
               used)) static void (*const first)(int, char **, char **) = before_everything;
#endif

static void *free_all(void *unused)
{
    for (size_t i = 0; i < count; i++)
        free(early[i]);
    return unused;
}

int main(void)
{
    if (TEST_SANITIZED)
        before_everything(0, NULL, NULL);
    test_start(20);
    CHECK(!early_failed);
    for (size_t i = 0; i < count; i++)
        if (early[i] != NULL)
            CHECK_EQ(test_intact(early[i], early_size[i], i), early_size[i]);
    hak_stats_data stats;
    REQUIRE(hak_stats(&stats, sizeof stats) == 0);
    CHECK(stats.served_bytes > 1000000);
    pthread_t thread;
    REQUIRE(pthread_create(&thread, NULL, free_all, NULL) == 0);
    pthread_join(thread, NULL);
    CHECK(hak_stats(&stats, sizeof stats) == 0 && stats.foreign_frees == 0);
    return test_result();
}
