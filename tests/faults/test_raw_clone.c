/* Children that come without fork's handlers: vfork, posix_spawn and a raw clone, made while other threads
 * hold the allocator's locks. They exec, and neither they nor their parent hang. */
#include <pthread.h>
#include <sched.h>
#include <spawn.h>
#include <sys/syscall.h>

#include "../test.h"

#include "process.h"

enum { threads = 3, children = 60 };

extern char **environ;
static int stopping;

static void *work(void *number)
{
    uint64_t r = (uint64_t)(uintptr_t)number << 32;
    while (!__atomic_load_n(&stopping, __ATOMIC_RELAXED)) {
        size_t size = test_sizes[test_mix(++r) % TEST_COUNT_OF(test_sizes)];
        void *block = malloc(size);
        REQUIRE(block != NULL);
        *(volatile char *)block = 1;
        free(block);
    }
    return NULL;
}

static char *const arguments[] = {(char *)"again", (char *)"child", NULL};

static pid_t by_vfork(void)
{
    pid_t child = vfork();
    if (child == 0) {
        execve("/proc/self/exe", arguments, environ);
        _exit(126);
    }
    return child;
}

static pid_t by_clone(void)
{
    pid_t child = (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
    if (child == 0) {
        execve("/proc/self/exe", arguments, environ);
        _exit(126);
    }
    return child;
}

static pid_t by_spawn(void)
{
    pid_t child;
    return posix_spawn(&child, "/proc/self/exe", NULL, NULL, arguments, environ) == 0 ? child : -1;
}

int main(int argc, char **argv)
{
    (void)argv;
    test_start(60);
    if (argc > 1) {
        free(malloc(1000));
        return 42;
    }
    pid_t (*const make[])(void) = {by_vfork, by_clone, by_spawn};
    pthread_t thread[threads];
    for (size_t i = 0; i < threads; i++)
        REQUIRE(pthread_create(&thread[i], NULL, work, (void *)(i + 1)) == 0);
    for (size_t i = 0; i < (TEST_SANITIZED ? 9 : children); i++) {
        /* ThreadSanitizer can't follow a raw clone. */
        pid_t child = make[TEST_SANITIZED ? 2 : i % TEST_COUNT_OF(make)]();
        REQUIRE(child > 0);
        CHECK_EQ(process_wait(child), 42);
        void *block = malloc(i * 1000 + 1);
        REQUIRE(block != NULL);
        free(block);
    }
    __atomic_store_n(&stopping, 1, __ATOMIC_RELAXED);
    for (size_t i = 0; i < threads; i++)
        pthread_join(thread[i], NULL);
    return test_result();
}
