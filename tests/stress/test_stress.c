/* Threads that allocate, reallocate, free and hand over blocks at random, in all tiers, and die and
 * are born again meanwhile. Every block carries a pattern made from its id, checked when it moves and
 * when it is freed: a block given out twice, cut short or written to by the allocator shows.
 *
 * HAK_STRESS_SECONDS (4), HAK_STRESS_THREADS (8) and HAK_STRESS_SEED (of the clock) may be set. The
 * seed is printed where a check fails; it repeats the decisions, not the interleaving.
 */
#include <pthread.h>
#include <semaphore.h>
#include <time.h>

#include "../test.h"

enum { slot_count = 300, exchange_count = 64, most_threads = 64 };

/* What one thread may hold, so that the machine's memory bounds nothing. */
#define HELD_BYTES TEST_MIB(8)

typedef struct record {
    unsigned char *block;
    size_t size;
    uint64_t id;
} record;

/* What a thread leaves to its successor. */
typedef struct estate {
    uint64_t random;
    size_t held_bytes;
    record slots[slot_count];
} estate;

static struct {
    pthread_mutex_t lock;
    record record;
} exchange[exchange_count];

static uint64_t seed;
static int64_t deadline_ns;
static uint64_t next_id = 1;
static uint64_t operations, births;
static sem_t lineages_done;

static int64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static uint64_t draw(uint64_t *random)
{
    *random += 0x9e3779b97f4a7c15u;
    return test_mix(*random);
}

/* ---- Contents: all of small blocks; of others both ends, and a word in each page ------------- */

enum { whole = 16 << 10, end_bytes = 1 << 10, page = 4096 };

static void put_word(record *r, size_t at, size_t length)
{
    uint64_t word = test_mix(r->id ^ (at << 20));
    memcpy(r->block + at, &word, length);
}

static bool has_word(const record *r, size_t at, size_t length)
{
    uint64_t word = test_mix(r->id ^ (at << 20));
    return memcmp(r->block + at, &word, length) == 0;
}

/* Where the next word of the pattern is after the one at `at`, in a block of `size` bytes. */
static size_t next_word(size_t at, size_t size)
{
    size_t next = at + 8;
    if (size <= whole || next < end_bytes || next >= ((size - end_bytes) & ~(size_t)7))
        return next;
    size_t end = (size - end_bytes) & ~(size_t)7;
    next = (next + page - 1) & ~(size_t)(page - 1);
    return next < end ? next : end;
}

static void fill(record *r)
{
    for (size_t at = 0; at < r->size; at = next_word(at, r->size)) {
        put_word(r, at, r->size - at < 8 ? r->size - at : 8);
    }
}

/* Checks what of the pattern stands in the first `kept` bytes. */
static void check(const record *r, size_t kept, const char *when)
{
    for (size_t at = 0; at < kept; at = next_word(at, r->size)) {
        if (!has_word(r, at, kept - at < 8 ? kept - at : 8)) {
            fprintf(stderr,
                    "block %p of %zu bytes, id %llu: wrong at byte %zu, at its %s "
                    "(HAK_STRESS_SEED=%llu)\n",
                    (void *)r->block, r->size, (unsigned long long)r->id, at, when,
                    (unsigned long long)seed);
            _exit(1);
        }
    }
}

/* ---- Operations ------------------------------------------------------------------------------ */

static size_t draw_size(uint64_t *random)
{
    uint64_t tier = draw(random) % 100, r = draw(random);
    if (tier < 55)
        return r % 1024 + 1;
    if (tier < 80)
        return r % TEST_KIB(32) + 1;
    /* The larger, the rarer. */
    if (tier < 97)
        return TEST_KIB(32) + r % (TEST_KIB(64) << (draw(random) % 5));
    return TEST_MIB(2) + r % TEST_MIB(3);
}

static void allocate(record *r, uint64_t *random)
{
    size_t size = draw_size(random);
    size_t alignment = 16;
    void *block = NULL;
    switch (draw(random) % 20) {
    case 0:
    case 1:
    case 2:
        block = calloc(1, size);
        REQUIRE(block != NULL);
        CHECK(test_is_zero(block, size < whole ? size : whole));
        CHECK(test_is_zero((char *)block + size - size % whole, size % whole));
        break;
    case 3:
        block = realloc(NULL, size);
        break;
    case 4:
    case 5:
        alignment = (size_t)16 << draw(random) % 9;
        /* C11's first edition wanted a multiple, and sanitizers still do. */
        size = (size + alignment - 1) & ~(alignment - 1);
        block = aligned_alloc(alignment, size);
        break;
    case 6:
        alignment = (size_t)16 << draw(random) % 13;
        REQUIRE(posix_memalign(&block, alignment, size) == 0);
        break;
    default:
        block = malloc(size);
        break;
    }
    REQUIRE(block != NULL);
    CHECK_ALIGNED(block, alignment);
    r->block = block;
    r->size = size;
    r->id = __atomic_fetch_add(&next_id, 1, __ATOMIC_RELAXED);
    fill(r);
}

static void release(record *r)
{
    check(r, r->size, "free");
    free(r->block);
    r->block = NULL;
    r->size = 0;
}

static void resize(record *r, uint64_t *random)
{
    size_t size = draw_size(random);
    size_t kept = size < r->size ? size : r->size;
    r->block = realloc(r->block, size);
    REQUIRE(r->block != NULL);
    check(r, kept, "realloc");
    r->size = size;
    fill(r);
}

/* Puts a block on the table and takes the one that somebody else put there. */
static void swap(record *r, uint64_t *random)
{
    unsigned i = (unsigned)(draw(random) % exchange_count);
    pthread_mutex_lock(&exchange[i].lock);
    record other = exchange[i].record;
    exchange[i].record = *r;
    pthread_mutex_unlock(&exchange[i].lock);
    *r = other;
}

static void step(estate *mine)
{
    uint64_t *random = &mine->random;
    record *r = &mine->slots[draw(random) % slot_count];
    mine->held_bytes -= r->size;
    if (r->block == NULL) {
        if (mine->held_bytes < HELD_BYTES)
            allocate(r, random);
    } else {
        uint64_t choice = draw(random) % 100;
        if (mine->held_bytes > HELD_BYTES || choice < 45) {
            release(r);
        } else if (choice < 65) {
            resize(r, random);
        } else if (choice < 75) {
            CHECK(malloc_usable_size(r->block) >= r->size);
        } else {
            swap(r, random);
        }
    }
    mine->held_bytes += r->size;
}

/* ---- Threads --------------------------------------------------------------------------------- */

static void give_birth(estate *inherited);

static void *live(void *inherited)
{
    estate *mine = inherited;
    uint64_t steps = 500 + draw(&mine->random) % 20000;
    __atomic_fetch_add(&births, 1, __ATOMIC_RELAXED);
    uint64_t done = 0;
    while (done < steps && (done % 64 != 0 || now_ns() < deadline_ns)) {
        step(mine);
        done++;
    }
    __atomic_fetch_add(&operations, done, __ATOMIC_RELAXED);
    /* Some clean up, most leave all of it to the next thread, which is another heap's. */
    if (now_ns() >= deadline_ns || draw(&mine->random) % 4 == 0) {
        for (size_t i = 0; i < slot_count; i++) {
            if (mine->slots[i].block != NULL)
                release(&mine->slots[i]);
        }
        mine->held_bytes = 0;
    }
    if (now_ns() < deadline_ns) {
        give_birth(mine);
    } else {
        free(mine);
        sem_post(&lineages_done);
    }
    return NULL;
}

static void give_birth(estate *inherited)
{
    pthread_t thread;
    pthread_attr_t detached;
    pthread_attr_init(&detached);
    pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
    int result;
    /* Threads that are not quite gone may fill up what the system allows. */
    while ((result = pthread_create(&thread, &detached, live, inherited)) == EAGAIN) {
        usleep(1000);
    }
    REQUIRE(result == 0);
    pthread_attr_destroy(&detached);
}

int main(void)
{
    unsigned seconds = (unsigned)test_option("HAK_STRESS_SECONDS", 4);
    unsigned threads = (unsigned)test_option("HAK_STRESS_THREADS", 8);
    test_start(seconds * 4 + 60);
    seed = test_option("HAK_STRESS_SEED", (unsigned long long)now_ns());
    deadline_ns = now_ns() + (int64_t)seconds * 1000000000;
    if (threads < 1 || threads > most_threads)
        threads = most_threads;
    sem_init(&lineages_done, 0, 0);
    for (size_t i = 0; i < exchange_count; i++) {
        pthread_mutex_init(&exchange[i].lock, NULL);
    }
    for (unsigned i = 0; i < threads; i++) {
        estate *first = calloc(1, sizeof(*first));
        REQUIRE(first != NULL);
        first->random = test_mix(seed + i);
        give_birth(first);
    }
    for (unsigned i = 0; i < threads; i++) {
        while (sem_wait(&lineages_done) != 0)
            continue;
    }
    for (size_t i = 0; i < exchange_count; i++) {
        pthread_mutex_lock(&exchange[i].lock);
        if (exchange[i].record.block != NULL)
            release(&exchange[i].record);
        pthread_mutex_unlock(&exchange[i].lock);
    }
    printf("%llu operations in %llu threads\n", (unsigned long long)operations,
           (unsigned long long)births);
    CHECK(operations > 0);
    return test_result();
}
