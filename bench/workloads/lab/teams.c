/* teams.c: several threads with middling and large blocks, and blocks that pass between threads. */
#define _GNU_SOURCE
#include "lab.h"

#include <sched.h>
#include <stdatomic.h>

/* ---- midmt and midlargemt --------------------------------------------------------------------
 * Each thread replaces blocks at random in a set of its own, and writes a byte in each page.
 *   midmt       8 to 32 KiB, 512 a thread: buffers of files and sockets
 *   midlargemt  2 KiB to 1 MiB, 64 a thread, as many in each power of two; one in eight is of
 *               33 KiB, which is just past where many allocators stop caching in the thread */
enum { MID_LEAST = 8 << 10, MID_MOST = 32 << 10, MID_COUNT = 512, MID_OPS = 20000 };
enum { LARGE_COUNT = 64, LARGE_OPS = 2000, LARGE_POWERS = 9, LARGE_ODD = 33 << 10 };
enum { LARGE_LEAST = 2 << 10, LARGE_MOST = 1 << 20 };

static lab_set sets[LAB_MAX_THREADS];

static size_t mid_size(uint64_t x)
{
    return micro_size(x, MID_LEAST, MID_MOST - MID_LEAST + 1);
}

static size_t large_size(uint64_t x)
{
    /* The index in the set and the size within a power use the bits of `x` up: mixed anew, so that
     * power and index are not tied to each other. */
    uint64_t y = micro_next(x ^ x >> 29);
    size_t low = (size_t)LARGE_LEAST << micro_index(y, LARGE_POWERS);
    if (micro_size(y, 0, 8) == 0)
        return LARGE_ODD;
    return micro_size(x, low, low);
}

static size_t mid_holds(void)
{
    return (size_t)lab_threads * MID_COUNT * (MID_LEAST + MID_MOST) / 2;
}

static size_t large_holds(void)
{
    return (size_t)lab_threads * LARGE_COUNT * (128 << 10);
}

/* The set is filled by the thread that uses it. */
static inline __attribute__((always_inline)) lab_done own_work(int thread, size_t ops,
                                                               lab_size_fn *size_of)
{
    lab_set *set = &sets[thread];
    if (set->blocks[0] == NULL)
        lab_set_fill(set, size_of);
    return lab_set_replace(set, &set->random, ops, size_of, true);
}

static lab_done mid_work(int thread)
{
    return own_work(thread, MID_OPS / (size_t)lab_threads + 1, mid_size);
}

static lab_done large_work(int thread)
{
    return own_work(thread, LARGE_OPS / (size_t)lab_threads + 1, large_size);
}

static void own_setup(size_t count, lab_work *work)
{
    int i;
    for (i = 0; i < lab_threads; i++)
        lab_set_init(&sets[i], count, 800 + (uint64_t)i);
    lab_team_start(work);
}

static void mid_setup(void)
{
    own_setup(MID_COUNT, mid_work);
}

static void large_setup(void)
{
    own_setup(LARGE_COUNT, large_work);
}

static void own_after(void)
{
    int i;
    lab_live_bytes = 0;
    for (i = 0; i < lab_threads; i++)
        lab_live_bytes += (int64_t)lab_set_bytes(&sets[i]);
}

static void own_check(size_t smallest, size_t largest)
{
    int i;
    for (i = 0; i < lab_threads; i++)
        lab_check_blocks(sets[i].blocks, sets[i].count, smallest, largest);
}

static void mid_check(void)
{
    own_check(MID_LEAST, MID_MOST);
}

static void large_check(void)
{
    own_check(LARGE_LEAST, LARGE_MOST);
}

const lab_workload lab_midmt = {
    .name = "midmt",
    .suite = "threads",
    .about = "Each thread replaces blocks of 8 to 32 KiB at random: buffers of files and sockets.",
    .flags = LAB_THREADED,
    .repeats = 15,
    .size = mid_size,
    .holds = mid_holds,
    .setup = mid_setup,
    .run = lab_team_run,
    .after = own_after,
    .check = mid_check,
    .finish = lab_team_stop,
};

const lab_workload lab_midlargemt = {
    .name = "midlargemt",
    .suite = "threads",
    .about = "Each thread replaces blocks of 2 KiB to 1 MiB at random, with 33 KiB among them.",
    .flags = LAB_THREADED,
    .repeats = 15,
    .size = large_size,
    .holds = large_holds,
    .setup = large_setup,
    .run = lab_team_run,
    .after = own_after,
    .check = large_check,
    .finish = lab_team_stop,
};

/* ---- prodcons-pairs --------------------------------------------------------------------------
 * In each pair of threads one allocates and fills blocks and the other reads and frees them; they
 * come over a ring. Stages of a pipeline: every free is of another thread's block, and memory must
 * find its way back. The micro workload prodcons is this with 64 bytes and no choice. */
enum { RING = 4096, RING_SPINS = 64, PAIRS_OPS = 200000 };

static lab_option pair_options[] = {
    {.name = "least", .standard = 16, .least = 8, .most = 1 << 20, .meaning = "smallest block"},
    {.name = "most", .standard = 1024, .least = 8, .most = 1 << 20, .meaning = "largest block"},
    {0},
};
enum { LEAST, MOST };
static const char *const pair_params[] = {"least=64 most=64", "least=16 most=1024",
                                          "least=4096 most=65536", NULL};

typedef struct ring {
    _Alignas(128) _Atomic size_t head; /* taken: written by the consumer */
    _Alignas(128) _Atomic size_t tail; /* put: written by the producer */
    _Alignas(128) char *slots[RING];
    uint64_t random;
} ring;

static ring *rings;

static const char *pair_problem(void)
{
    if (lab_threads % 2 != 0)
        return "--threads must be even: two to a pair";
    if (pair_options[LEAST].value > pair_options[MOST].value)
        return "--least is more than --most";
    return NULL;
}

static size_t pair_size(uint64_t x)
{
    return micro_size(x, (size_t)pair_options[LEAST].value,
                      (size_t)(pair_options[MOST].value - pair_options[LEAST].value + 1));
}

/* Half a ring for each pair. */
static size_t pair_holds(void)
{
    return (size_t)(lab_threads * RING / 4 *
                    (pair_options[LEAST].value + pair_options[MOST].value) / 2);
}

static void pause_or_yield(unsigned *spins)
{
    /* With more threads than cores the other side may not be running at all. */
    if (++*spins % RING_SPINS == 0)
        sched_yield();
#if defined(__x86_64__)
    else
        __builtin_ia32_pause();
#endif
}

static lab_done produce(ring *r, size_t count)
{
    size_t tail = atomic_load_explicit(&r->tail, memory_order_relaxed);
    size_t head = atomic_load_explicit(&r->head, memory_order_acquire);
    uint64_t x = r->random;
    lab_done done = {0, count, 0};
    unsigned spins = 0;
    size_t i;
    for (i = 0; i < count; i++) {
        size_t size;
        char *block;
        x = micro_next(x);
        size = pair_size(x);
        block = lab_malloc(size);
        lab_touch(block, i, size);
        if (i == 0)
            lab_plant_in(block);
        while (tail - head == RING) {
            pause_or_yield(&spins);
            /* Pairs with the consumer's release of head: the slot has been read. */
            head = atomic_load_explicit(&r->head, memory_order_acquire);
        }
        r->slots[tail % RING] = block;
        tail++;
        done.asked += size;
        /* Pairs with the consumer's acquire of tail: slot and block are written. */
        atomic_store_explicit(&r->tail, tail, memory_order_release);
    }
    r->random = x;
    return done;
}

static void consume(ring *r, size_t count)
{
    size_t least = (size_t)pair_options[LEAST].value;
    size_t most = (size_t)pair_options[MOST].value;
    size_t head = atomic_load_explicit(&r->head, memory_order_relaxed);
    size_t tail = head;
    unsigned spins = 0;
    size_t i;
    for (i = 0; i < count; i++) {
        char *block;
        size_t size;
        while (tail == head) {
            /* Pairs with the producer's release of tail. */
            tail = atomic_load_explicit(&r->tail, memory_order_acquire);
            if (tail == head)
                pause_or_yield(&spins);
        }
        block = r->slots[head % RING];
        size = lab_verify(block, i);
        if (size < least || size > most || (size > 8 && block[size - 1] != 1))
            lab_lost();
        free(block);
        head++;
        /* Pairs with the producer's acquire of head. */
        atomic_store_explicit(&r->head, head, memory_order_release);
    }
}

static lab_done pair_work(int thread)
{
    size_t count = PAIRS_OPS / ((size_t)lab_threads / 2);
    if (thread % 2 == 0)
        return produce(&rings[thread / 2], count);
    consume(&rings[thread / 2], count);
    return (lab_done){0, 0, 0};
}

static void pair_setup(void)
{
    int i;
    rings = lab_map((size_t)lab_threads / 2 * sizeof rings[0]);
    for (i = 0; i < lab_threads / 2; i++)
        rings[i].random = micro_start(870 + (uint64_t)i);
    lab_team_start(pair_work);
}

static void none_live(void)
{
    lab_live_bytes = 0;
}

const lab_workload lab_prodcons = {
    .name = "prodcons-pairs",
    .suite = "threads",
    .about = "Pairs of threads, one allocating and one freeing: stages of a pipeline.",
    .flags = LAB_THREADED,
    .repeats = 15,
    .options = pair_options,
    .params = pair_params,
    .problem = pair_problem,
    .size = pair_size,
    .holds = pair_holds,
    .setup = pair_setup,
    .run = lab_team_run,
    .after = none_live,
    .finish = lab_team_stop,
};

/* ---- threadchurn -----------------------------------------------------------------------------
 * Threads that live for a few hundred calls: each frees the blocks of the one before it, leaves as
 * many of its own, and ends. Servers with a thread per request, build tools, test runners. Whatever
 * the allocator keeps for a thread must be set up, handed on and found again each time. */
enum { CHURN_THREADS = 128, CHURN_LEAST = 16, CHURN_MOST = 512, CHURN_MAX_BLOCKS = 100000 };

static lab_option churn_options[] = {
    {.name = "blocks",
     .standard = 200,
     .least = 1,
     .most = CHURN_MAX_BLOCKS,
     .meaning = "blocks that a thread allocates"},
    {0},
};

typedef struct estate {
    _Alignas(128) lab_set set; /* what the last thread left; empty at first */
    uint64_t asked;
} estate;

static estate estates[LAB_MAX_THREADS];

static size_t churn_size(uint64_t x)
{
    return micro_size(x, CHURN_LEAST, CHURN_MOST - CHURN_LEAST + 1);
}

static size_t churn_holds(void)
{
    return (size_t)(lab_threads * churn_options[0].value) * (CHURN_LEAST + CHURN_MOST) / 2;
}

static void churn_setup(void)
{
    int i;
    for (i = 0; i < lab_threads; i++)
        lab_set_init(&estates[i].set, (size_t)churn_options[0].value, 880 + (uint64_t)i);
}

static void *churn_body(void *argument)
{
    estate *mine = argument;
    char **blocks = mine->set.blocks;
    size_t i;
    for (i = 0; i < mine->set.count; i++) {
        size_t size;
        char *block;
        mine->set.random = micro_next(mine->set.random);
        size = churn_size(mine->set.random);
        block = lab_malloc(size);
        micro_mark(block, i, size);
        mine->asked += size;
        if (blocks[i] != NULL) {
            lab_verify(blocks[i], i);
            free(blocks[i]);
        }
        blocks[i] = block;
    }
    return NULL;
}

static lab_done churn_run(void)
{
    lab_done done = {0, 0, 0};
    size_t generations = CHURN_THREADS / (size_t)lab_threads;
    size_t generation;
    int i;
    uint64_t start = micro_now_ns();
    for (generation = 0; generation < generations; generation++) {
        pthread_t threads[LAB_MAX_THREADS];
        for (i = 0; i < lab_threads; i++)
            lab_thread_start(&threads[i], false, churn_body, &estates[i]);
        for (i = 0; i < lab_threads; i++)
            pthread_join(threads[i], NULL);
    }
    done.ns = micro_now_ns() - start;
    for (i = 0; i < lab_threads; i++) {
        done.ops += generations * estates[i].set.count;
        done.asked += estates[i].asked;
        estates[i].asked = 0;
    }
    return done;
}

static void churn_after(void)
{
    int i;
    lab_live_bytes = 0;
    for (i = 0; i < lab_threads; i++)
        lab_live_bytes += (int64_t)lab_set_bytes(&estates[i].set);
}

static void churn_check(void)
{
    int i;
    for (i = 0; i < lab_threads; i++)
        lab_check_blocks(estates[i].set.blocks, estates[i].set.count, CHURN_LEAST, CHURN_MOST);
}

const lab_workload lab_threadchurn = {
    .name = "threadchurn",
    .suite = "threads",
    .about = "Threads that free what the one before left, leave blocks of their own and end: a "
             "thread per request.",
    .flags = LAB_THREADED,
    .repeats = 15,
    .options = churn_options,
    .size = churn_size,
    .holds = churn_holds,
    .setup = churn_setup,
    .run = churn_run,
    .after = churn_after,
    .check = churn_check,
};
