/* Thread exit: thousands of short threads whose blocks others free, and allocations and frees at each
 * stage of a thread's end: in destructors of thread_local objects, in destructors of pthread keys in
 * each round that POSIX has for them (so also after the allocator's own, whose turn it was in some
 * round), and by the C library itself, after all of them. */
#include <dlfcn.h>
#include <limits.h>
#include <locale.h>
#include <pthread.h>

#include "../test.h"

/* What C++ compilers call for a thread_local object that has a destructor. */
extern int __cxa_thread_atexit_impl(void (*destructor)(void *), void *object, void *library);
extern void *__dso_handle;

enum { generations = 250, threads = 8, blocks = 60 };

/* Sanitizers take a thread's state down in the last round, and with it what they intercept. */
enum {
    rounds = TEST_SANITIZED ? PTHREAD_DESTRUCTOR_ITERATIONS - 1 : PTHREAD_DESTRUCTOR_ITERATIONS
};

static pthread_key_t keys[3];

/* Blocks that threads left, for those after them to free. */
static struct {
    pthread_mutex_t lock;
    void *block[threads * blocks];
    size_t size[threads * blocks];
    size_t count;
} left = {.lock = PTHREAD_MUTEX_INITIALIZER};

static uint64_t stages_seen, rounds_seen;

static size_t size_of(uint64_t number)
{
    uint64_t r = test_mix(number);
    return r % 10 == 0 ? (r >> 8) % 100000 + 1 : (r >> 8) % 600 + 1;
}

static void leave(uint64_t number)
{
    size_t size = size_of(number);
    void *block = malloc(size);
    REQUIRE(block != NULL);
    test_fill(block, size, size);
    pthread_mutex_lock(&left.lock);
    if (left.count < TEST_COUNT_OF(left.block)) {
        left.block[left.count] = block;
        left.size[left.count++] = size;
        block = NULL;
    }
    pthread_mutex_unlock(&left.lock);
    free(block);
}

static bool take(void)
{
    pthread_mutex_lock(&left.lock);
    void *block = NULL;
    size_t size = 0;
    if (left.count != 0) {
        block = left.block[--left.count];
        size = left.size[left.count];
    }
    pthread_mutex_unlock(&left.lock);
    if (block == NULL)
        return false;
    REQUIRE(test_intact(block, size, size) == size);
    free(block);
    return true;
}

/* A little of everything: an own block, one for others, one of others. */
static void use_allocator(uint64_t number)
{
    void *own = calloc(1, 100 + number % 5000);
    REQUIRE(own != NULL);
    CHECK(test_is_zero(own, 100 + number % 5000));
    own = realloc(own, 7000);
    REQUIRE(own != NULL);
    leave(number);
    take();
    free(own);
    __atomic_fetch_add(&stages_seen, 1, __ATOMIC_RELAXED);
}

/* A key's value is a block with the rounds that it still has. */
typedef struct keepsake {
    pthread_key_t key;
    unsigned rounds_left;
    unsigned char bytes[200];
} keepsake;

static void key_destructor(void *value)
{
    keepsake *k = value;
    __atomic_fetch_add(&rounds_seen, 1, __ATOMIC_RELAXED);
    CHECK_EQ(test_intact(k->bytes, sizeof(k->bytes), 5), sizeof(k->bytes));
    use_allocator(k->rounds_left + (uintptr_t)value / 16);
    if (k->rounds_left == 0) {
        free(k);
        return;
    }
    /* Again in the next round, in a new block. */
    keepsake *next = malloc(sizeof(*next));
    REQUIRE(next != NULL);
    *next = *k;
    next->rounds_left--;
    free(k);
    REQUIRE(pthread_setspecific(next->key, next) == 0);
}

static void object_destructor(void *object)
{
    CHECK_EQ(test_intact(object, 333, 9), 333);
    use_allocator((uintptr_t)object / 16);
    free(object);
}

static void *short_life(void *number)
{
    uint64_t n = *(const uint64_t *)number;
    /* Some threads' first act is a free; some do nothing; some start in a destructor. */
    if (n % 5 == 0)
        take();
    if (n % 7 != 0) {
        for (uint64_t i = 0; i < blocks / 2; i++) {
            leave(n * blocks + i);
        }
        for (size_t i = 0; i < blocks / 3; i++) {
            take();
        }
    }
    if (n % 2 == 0) {
        void *object = malloc(333);
        REQUIRE(object != NULL);
        test_fill(object, 333, 9);
        REQUIRE(__cxa_thread_atexit_impl(object_destructor, object, &__dso_handle) == 0);
    }
    if (n % 3 != 0) {
        for (size_t i = 0; i < TEST_COUNT_OF(keys); i++) {
            keepsake *k = malloc(sizeof(*k));
            REQUIRE(k != NULL);
            k->key = keys[i];
            k->rounds_left = rounds - 1;
            test_fill(k->bytes, sizeof(k->bytes), 5);
            REQUIRE(pthread_setspecific(keys[i], k) == 0);
        }
    }
    if (n % 4 == 0) {
        /* The C library keeps these for the thread, and frees them when all destructors ran. */
        CHECK(strerror(100000 + (int)(n % 1000)) != NULL);
        CHECK(dlsym(RTLD_DEFAULT, "no such symbol") == NULL);
        CHECK(dlerror() != NULL);
    }
    if (n % 6 == 0)
        pthread_exit(NULL);
    return NULL;
}

int main(void)
{
    test_start(120);
    /* Keys made before and after the allocator is in use: destructors run in the order of keys. */
    for (size_t i = 0; i < TEST_COUNT_OF(keys); i++) {
        REQUIRE(pthread_key_create(&keys[i], key_destructor) == 0);
    }
    size_t settled = 0;
    for (unsigned g = 0; g < generations; g++) {
        pthread_t thread[threads];
        uint64_t number[threads];
        for (unsigned i = 0; i < threads; i++) {
            number[i] = g * threads + i;
            REQUIRE(pthread_create(&thread[i], NULL, short_life, &number[i]) == 0);
        }
        for (unsigned i = 0; i < threads; i++) {
            pthread_join(thread[i], NULL);
        }
        if (g % 10 == 9) {
            while (take())
                continue;
        }
        if (g == generations / 4)
            settled = test_resident_bytes();
    }
    while (take())
        continue;
    CHECK(stages_seen > generations * threads);
    CHECK(rounds_seen >= generations * threads / 2 * rounds);
    /* A thread that ended leaves nothing behind that the next can't use. */
    if (!TEST_SANITIZED)
        CHECK(test_resident_bytes() <= settled + TEST_MIB(16));
    return test_result();
}
