/* fork while other threads allocate and free: the child finds no lock taken by a thread that it does
 * not have, can allocate, free its parent's threads' blocks, fork again and exec; and the parent goes
 * on as if nothing had been. A hang is ended by an alarm, in the child too. */
#include <pthread.h>
#include <sys/wait.h>

#include "../test.h"

enum { threads = 4, forks = 100, shared_count = 256, child_seconds = 20 };

/* Blocks that the threads own and replace all the time. */
static struct {
    pthread_mutex_t lock;
    void *block;
    size_t size;
} shared[shared_count];

static int stopping;
static uint64_t rounds;

static size_t draw_size(uint64_t r)
{
    uint64_t s = test_mix(r);
    switch (s % 32) {
    case 0:
        return (s >> 8) % TEST_MIB(1) + 1;
    case 1:
        return TEST_MIB(2) + (s >> 8) % TEST_MIB(1);
    case 2:
    case 3:
    case 4:
        return (s >> 8) % TEST_KIB(32) + 1;
    default:
        return (s >> 8) % 1024 + 1;
    }
}

/* Ends only: large blocks are many here. */
static void fill_ends(void *block, size_t size)
{
    size_t end = size < 512 ? size : 512;
    test_fill(block, end, size);
    if (size > 1024)
        test_fill((char *)block + size - end, end, size);
}

static bool ends_intact(const void *block, size_t size)
{
    size_t end = size < 512 ? size : 512;
    return test_intact(block, end, size) == end &&
           (size <= 1024 || test_intact((const char *)block + size - end, end, size) == end);
}

static void *work(void *number)
{
    uint64_t r = *(const uint64_t *)number << 32;
    while (!__atomic_load_n(&stopping, __ATOMIC_RELAXED)) {
        size_t size = draw_size(++r);
        void *block = r % 8 == 0 ? calloc(1, size) : malloc(size);
        REQUIRE(block != NULL);
        if (r % 16 == 1) {
            size = draw_size(r * 3);
            block = realloc(block, size);
            REQUIRE(block != NULL);
        }
        fill_ends(block, size);
        size_t i = test_mix(r * 7) % shared_count;
        pthread_mutex_lock(&shared[i].lock);
        void *old = shared[i].block;
        size_t old_size = shared[i].size;
        shared[i].block = block;
        shared[i].size = size;
        pthread_mutex_unlock(&shared[i].lock);
        if (old != NULL) {
            REQUIRE(ends_intact(old, old_size));
            free(old);
        }
        __atomic_fetch_add(&rounds, 1, __ATOMIC_RELAXED);
    }
    return NULL;
}

static void allocate_and_free(unsigned count)
{
    static void *block[2000];
    static size_t size[2000];
    for (unsigned i = 0; i < count; i++) {
        size[i] = draw_size(i);
        if (size[i] > TEST_KIB(64))
            size[i] %= TEST_KIB(64);
        block[i] = malloc(size[i] + 1);
        REQUIRE(block[i] != NULL);
        fill_ends(block[i], size[i] + 1);
    }
    for (unsigned i = 0; i < count; i++) {
        REQUIRE(ends_intact(block[i], size[i] + 1));
        free(block[i]);
    }
    void *large = calloc(1, TEST_MIB(2));
    REQUIRE(large != NULL && test_is_zero(large, TEST_KIB(64)));
    free(large);
}

static void *allocate_in_thread(void *ignored)
{
    allocate_and_free(500);
    return ignored;
}

static void wait_for(pid_t child)
{
    int status = 0;
    pid_t waited;
    while ((waited = waitpid(child, &status, 0)) < 0 && errno == EINTR)
        continue;
    REQUIRE(waited == child);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
        fprintf(stderr, "a child ended with wait status 0x%x%s\n", (unsigned)status,
                WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM ? ": it hung" : "");
        CHECK_EQ(status, 0);
    }
}

/* Only the forking thread is here. Whatever another one was doing with a lock of `shared`, or between
 * taking a block out and freeing it, stays undone: blocks whose lock is free are whole. */
static void be_child(unsigned number)
{
    alarm(TEST_SANITIZED ? child_seconds * 10 : child_seconds);
    /* What failed in the parent is the parent's to report. */
    test_failures = 0;
    allocate_and_free(300);
    for (size_t i = 0; i < shared_count; i++) {
        if (pthread_mutex_trylock(&shared[i].lock) != 0)
            continue;
        if (shared[i].block != NULL) {
            REQUIRE(ends_intact(shared[i].block, shared[i].size));
            if (i % 3 == 0) {
                shared[i].block = realloc(shared[i].block, 5000);
                REQUIRE(shared[i].block != NULL);
            }
            free(shared[i].block);
            shared[i].block = NULL;
        }
        pthread_mutex_unlock(&shared[i].lock);
    }
    allocate_and_free(1000);
#if !TEST_SANITIZED
    /* ThreadSanitizer allows no thread after a fork of a program that had several. */
    if (number % 4 == 0) {
        pthread_t thread;
        REQUIRE(pthread_create(&thread, NULL, allocate_in_thread, NULL) == 0);
        pthread_join(thread, NULL);
    }
#else
    (void)allocate_in_thread;
#endif
    if (number % 5 == 0) {
        pid_t grandchild = fork();
        REQUIRE(grandchild >= 0);
        if (grandchild == 0) {
            alarm(TEST_SANITIZED ? child_seconds * 10 : child_seconds);
            allocate_and_free(500);
            _exit(0);
        }
        wait_for(grandchild);
        allocate_and_free(100);
    }
    if (number % 10 == 3) {
        execl("/proc/self/exe", "test_fork", "child", (char *)NULL);
        _exit(2);
    }
    /* By exit: destructors and atexit functions run too. */
    if (number % 10 == 7)
        exit(test_result());
    _exit(test_result());
}

int main(int count, char **arguments)
{
    if (count > 1 && strcmp(arguments[1], "child") == 0) {
        test_start(child_seconds);
        allocate_and_free(1000);
        return test_result();
    }
#if defined(HAK_TEST_GLIBC) && TEST_SANITIZED
    /* malloc is then the sanitizer's, and ThreadSanitizer's hangs in the child: its own locks. */
    return test_skip("the sanitizer's malloc does not survive a fork");
#endif
    test_start(120);
    for (size_t i = 0; i < shared_count; i++) {
        pthread_mutex_init(&shared[i].lock, NULL);
    }
    pthread_t thread[threads];
    uint64_t number[threads];
    for (size_t i = 0; i < threads; i++) {
        number[i] = i + 1;
        REQUIRE(pthread_create(&thread[i], NULL, work, &number[i]) == 0);
    }
    for (unsigned i = 0; i < forks; i++) {
        pid_t child = fork();
        REQUIRE(child >= 0);
        if (child == 0)
            be_child(i);
        allocate_and_free(50);
        wait_for(child);
        uint64_t seen = __atomic_load_n(&rounds, __ATOMIC_RELAXED);
        for (int patience = 0; patience < 20000; patience++) {
            if (__atomic_load_n(&rounds, __ATOMIC_RELAXED) > seen)
                break;
            usleep(500);
        }
        /* The parent's threads still get on. */
        CHECK(__atomic_load_n(&rounds, __ATOMIC_RELAXED) > seen);
    }
    __atomic_store_n(&stopping, 1, __ATOMIC_RELAXED);
    for (size_t i = 0; i < threads; i++) {
        pthread_join(thread[i], NULL);
    }
    for (size_t i = 0; i < shared_count; i++) {
        if (shared[i].block != NULL) {
            REQUIRE(ends_intact(shared[i].block, shared[i].size));
            free(shared[i].block);
        }
    }
    return test_result();
}
