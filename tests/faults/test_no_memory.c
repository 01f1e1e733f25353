/* The system gives no more memory: every function fails as its standard says, blocks in use are as they
 * were, free goes on working, and so does everything once there is memory again. */
#include <pthread.h>
#include <sys/resource.h>

#include "../test.h"

enum { live_count = 200 };

static struct {
    void *block;
    size_t size;
} live[live_count];

static struct rlimit before;

static void limit_to_what_there_is(void)
{
    char text[64] = "";
    int file = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
    REQUIRE(file >= 0 && read(file, text, sizeof text - 1) > 0);
    close(file);
    REQUIRE(getrlimit(RLIMIT_AS, &before) == 0);
    struct rlimit as = {(rlim_t)strtoull(text, NULL, 10) * (rlim_t)sysconf(_SC_PAGESIZE),
                        before.rlim_max};
    REQUIRE(setrlimit(RLIMIT_AS, &as) == 0);
}

/* Takes blocks of `size` until there are none, in a list through their first words. */
static void **exhaust(size_t size, void **list)
{
    void **block;
    while ((block = malloc(size)) != NULL) {
        block[0] = list;
        list = block;
    }
    CHECK_EQ(errno, ENOMEM);
    return list;
}

static void free_list(void **list)
{
    while (list != NULL) {
        void **next = list[0];
        free(list);
        list = next;
    }
}

static void check_live(void)
{
    for (size_t i = 0; i < live_count; i++)
        CHECK_EQ(test_intact(live[i].block, live[i].size, i), live[i].size);
}

static void every_function_fails(size_t size)
{
    void *out = &out;
    CHECK_FAILS(malloc(size), ENOMEM);
    CHECK_FAILS(calloc(1, size), ENOMEM);
    CHECK_FAILS(realloc(NULL, size), ENOMEM);
    CHECK_FAILS(realloc(live[3].block, live[3].size + size), ENOMEM);
    CHECK_FAILS(reallocarray(live[4].block, 2, live[4].size + size), ENOMEM);
    CHECK_FAILS(aligned_alloc(64, size), ENOMEM);
    CHECK_FAILS(aligned_alloc(TEST_MIB(4), size), ENOMEM);
    CHECK_KEEPS_ERRNO(CHECK_EQ(posix_memalign(&out, 64, size), ENOMEM));
    CHECK(out == &out);
    CHECK_FAILS(hak_malloc(size), ENOMEM);
    static hak_callsite site = {"test", "test", 1, 0};
    CHECK_FAILS(hak_alloc_cs(size, &site), ENOMEM);
    hak_stats_data stats;
    CHECK_EQ(hak_stats(&stats, sizeof stats), 0);
}

static void *free_in_thread(void *list)
{
    free_list(list);
    return NULL;
}

int main(void)
{
    if (TEST_SANITIZED)
        return test_skip("a sanitizer can't go on without memory");
    test_start(60);
    for (size_t i = 0; i < live_count; i++) {
        live[i].size = test_sizes[i % TEST_COUNT_OF(test_sizes)] % 100000 + 16;
        live[i].block = malloc(live[i].size);
        REQUIRE(live[i].block != NULL);
        test_fill(live[i].block, live[i].size, i);
    }
    for (int round = 0; round < 3; round++) {
        limit_to_what_there_is();
        void **list = NULL;
        static const size_t sizes[] = {4000000, 1000000, 100000, 20000, 1000, 64, 16};
        for (size_t i = 0; i < TEST_COUNT_OF(sizes); i++)
            list = exhaust(sizes[i], list);
        every_function_fails(1000000);
        every_function_fails(3000000);
        check_live();
        /* One block freed is one that can be had again. */
        void **freed = list;
        list = list[0];
        free(freed);
        freed = malloc(16);
        CHECK(freed != NULL);
        free(freed);
        REQUIRE(setrlimit(RLIMIT_AS, &before) == 0);
        if (round == 1) {
            pthread_t thread;
            REQUIRE(pthread_create(&thread, NULL, free_in_thread, list) == 0);
            pthread_join(thread, NULL);
        } else {
            free_list(list);
        }
        for (size_t i = 0; i < TEST_COUNT_OF(test_sizes); i++) {
            void *block = malloc(test_sizes[i]);
            CHECK(block != NULL);
            free(block);
        }
        check_live();
    }
    return test_result();
}
