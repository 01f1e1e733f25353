/* Frees of other threads' blocks: the owner running, the owner gone, the freer gone, and blocks that
 * neither of them frees. Contents are checked, and that memory comes back: remote frees that nobody
 * takes in, or slabs of ended threads that nobody takes over, would pile up. */
#include <pthread.h>

#include "../test.h"

enum { batch = 4000 };

typedef struct parcel {
    void *block[batch];
    size_t size[batch];
} parcel;

static size_t size_of(uint64_t number)
{
    uint64_t r = test_mix(number);
    switch (r % 16) {
    case 0:
        return (r >> 8) % 30000 + 1;
    case 1:
        return (r >> 8) % 4000 + 1;
    default:
        return (r >> 8) % 1000 + 1;
    }
}

static void pack(parcel *p, uint64_t number)
{
    for (size_t i = 0; i < batch; i++) {
        p->size[i] = size_of(number * batch + i);
        p->block[i] = malloc(p->size[i]);
        REQUIRE(p->block[i] != NULL);
        test_fill(p->block[i], p->size[i], i);
    }
}

static void unpack_part(parcel *p, size_t first, size_t step)
{
    for (size_t i = first; i < batch; i += step) {
        REQUIRE(test_intact(p->block[i], p->size[i], i) == p->size[i]);
        free(p->block[i]);
    }
}

static void *pack_in_thread(void *p)
{
    static uint64_t number;
    pack(p, __atomic_fetch_add(&number, 1, __ATOMIC_RELAXED));
    return NULL;
}

static void *unpack_in_thread(void *p)
{
    unpack_part(p, 0, 1);
    return NULL;
}

static void *unpack_half_in_thread(void *p)
{
    unpack_part(p, 0, 2);
    return NULL;
}

static void run(void *(*function)(void *), void *argument)
{
    pthread_t thread;
    REQUIRE(pthread_create(&thread, NULL, function, argument) == 0);
    pthread_join(thread, NULL);
}

/* Runs the round often; after the first ones, resident memory stays where it is. */
static void check_rounds(const char *name, int rounds, void (*round)(parcel *))
{
    static parcel p;
    size_t settled = 0;
    for (int i = 0; i < rounds; i++) {
        round(&p);
        if (i == rounds / 4)
            settled = test_resident_bytes();
    }
    size_t end = test_resident_bytes();
    if (!TEST_SANITIZED && end > settled + TEST_MIB(16)) {
        fprintf(stderr, "%s: %zu KiB resident, and %zu KiB after more of the same\n", name,
                settled >> 10, end >> 10);
        CHECK(end <= settled + TEST_MIB(16));
    }
}

static void owner_goes_first(parcel *p)
{
    run(pack_in_thread, p);
    unpack_part(p, 0, 1);
}

static void freer_goes_first(parcel *p)
{
    pack(p, 1);
    run(unpack_in_thread, p);
}

static void both_go(parcel *p)
{
    run(pack_in_thread, p);
    run(unpack_in_thread, p);
}

/* Half by one thread, while the owner is gone; the other half, in the same slabs, by another. */
static void two_freers(parcel *p)
{
    run(pack_in_thread, p);
    run(unpack_half_in_thread, p);
    unpack_part(p, 1, 2);
}

/* The owner goes on with its slabs while others free into them. */
static void owner_reuses_meanwhile(parcel *p)
{
    static parcel own;
    pthread_t thread;
    pack(p, 2);
    REQUIRE(pthread_create(&thread, NULL, unpack_in_thread, p) == 0);
    pack(&own, 3);
    unpack_part(&own, 0, 1);
    pthread_join(thread, NULL);
}

/* ---- A stream from producers to consumers ---------------------------------------------------- */

enum { ring_size = 512, streams = 2, sent_by_each = 150000 };

static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct {
        void *block;
        size_t size;
        uint64_t id;
    } item[ring_size];
    size_t head, tail;
    unsigned producers;
} ring = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static void *produce(void *first_id)
{
    for (uint64_t i = 0; i < sent_by_each; i++) {
        uint64_t id = *(const uint64_t *)first_id + i;
        size_t size = size_of(id);
        void *block = malloc(size);
        REQUIRE(block != NULL);
        test_fill(block, size, id);
        pthread_mutex_lock(&ring.lock);
        while (ring.head - ring.tail == ring_size) {
            pthread_cond_wait(&ring.changed, &ring.lock);
        }
        size_t at = ring.head++ % ring_size;
        ring.item[at].block = block;
        ring.item[at].size = size;
        ring.item[at].id = id;
        pthread_cond_broadcast(&ring.changed);
        pthread_mutex_unlock(&ring.lock);
    }
    pthread_mutex_lock(&ring.lock);
    ring.producers--;
    pthread_cond_broadcast(&ring.changed);
    pthread_mutex_unlock(&ring.lock);
    return NULL;
}

static void *consume(void *count)
{
    enum { handful = 32 };
    for (;;) {
        void *block[handful];
        size_t size[handful], taken = 0;
        uint64_t id[handful];
        pthread_mutex_lock(&ring.lock);
        while (ring.head == ring.tail && ring.producers != 0) {
            pthread_cond_wait(&ring.changed, &ring.lock);
        }
        while (ring.head != ring.tail && taken < handful) {
            size_t at = ring.tail++ % ring_size;
            block[taken] = ring.item[at].block;
            size[taken] = ring.item[at].size;
            id[taken++] = ring.item[at].id;
        }
        pthread_cond_broadcast(&ring.changed);
        pthread_mutex_unlock(&ring.lock);
        if (taken == 0)
            return NULL;
        for (size_t i = 0; i < taken; i++) {
            REQUIRE(test_intact(block[i], size[i], id[i]) == size[i]);
            free(block[i]);
            ++*(uint64_t *)count;
        }
    }
}

/* What is under way at any time is at most a ring full: so must be what is resident. */
static void check_stream(void)
{
    pthread_t producer[streams], consumer[streams];
    uint64_t first_id[streams], count[streams] = {0};
    size_t before = test_resident_bytes();
    ring.producers = streams;
    for (size_t i = 0; i < streams; i++) {
        first_id[i] = i * sent_by_each;
        REQUIRE(pthread_create(&producer[i], NULL, produce, &first_id[i]) == 0);
        REQUIRE(pthread_create(&consumer[i], NULL, consume, &count[i]) == 0);
    }
    uint64_t sum = 0;
    for (size_t i = 0; i < streams; i++) {
        pthread_join(producer[i], NULL);
        pthread_join(consumer[i], NULL);
        sum += count[i];
    }
    CHECK_EQ(sum, streams * sent_by_each);
    if (!TEST_SANITIZED)
        CHECK(test_resident_bytes() <= before + TEST_MIB(48));
}

int main(void)
{
    test_start(120);
    check_stream();
    check_rounds("owner goes first", 60, owner_goes_first);
    check_rounds("freer goes first", 60, freer_goes_first);
    check_rounds("both go", 60, both_go);
    check_rounds("two freers", 60, two_freers);
    check_rounds("owner reuses meanwhile", 60, owner_reuses_meanwhile);
    return test_result();
}
