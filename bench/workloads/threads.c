/* threads.c: the workloads of several threads. The figure is wall time ÷ operations of all threads
 * together, so that on two cores eight threads can at best come out as two do. One operation is one
 * malloc and one free. */
#define _GNU_SOURCE
#include "micro.h"

#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- Team ------------------------------------------------------------------------------------
 * Long-lived threads that do a piece of work each time the main thread says so. */
typedef void work_fn(int thread);

static struct {
    pthread_t threads[MICRO_MAX_THREADS];
    pthread_barrier_t begin, end;
    work_fn *work;
    int over; /* written before `begin`, read after it */
} team;

static void *team_member(void *argument)
{
    int thread = (int)(intptr_t)argument;
    for (;;) {
        pthread_barrier_wait(&team.begin);
        if (team.over)
            return NULL;
        team.work(thread);
        pthread_barrier_wait(&team.end);
    }
}

static void start_thread(pthread_t *thread, void *(*body)(void *), int number)
{
    if (pthread_create(thread, NULL, body, (void *)(intptr_t)number) != 0)
        micro_fail("can't start a thread");
}

static void team_start(work_fn *work)
{
    int i;
    team.work = work;
    pthread_barrier_init(&team.begin, NULL, (unsigned)micro_threads + 1);
    pthread_barrier_init(&team.end, NULL, (unsigned)micro_threads + 1);
    for (i = 0; i < micro_threads; i++)
        start_thread(&team.threads[i], team_member, i);
}

static uint64_t team_run(void)
{
    uint64_t start = micro_now_ns();
    pthread_barrier_wait(&team.begin);
    pthread_barrier_wait(&team.end);
    return micro_now_ns() - start;
}

static void team_finish(void)
{
    int i;
    team.over = 1;
    pthread_barrier_wait(&team.begin);
    for (i = 0; i < micro_threads; i++)
        pthread_join(team.threads[i], NULL);
}

/* ---- Sets ------------------------------------------------------------------------------------
 * A set of blocks in which a thread replaces one after the other at random. */
typedef struct set {
    char **blocks;
    size_t count;
    uint64_t random;
} set;

static void set_init(set *s, size_t count, uint64_t stream)
{
    s->blocks = micro_map(count * sizeof s->blocks[0]);
    s->count = count;
    s->random = micro_start(stream);
}

static void set_replace(set *s, size_t ops, size_t least, size_t span)
{
    char **blocks = s->blocks;
    size_t count = s->count;
    uint64_t x = s->random;
    size_t i;
    for (i = 0; i < ops; i++) {
        size_t index, size;
        char *block;
        x = micro_next(x);
        index = micro_index(x, count);
        size = micro_size(x, least, span);
        free(blocks[index]);
        block = malloc(size);
        micro_mark(block, index, size);
        blocks[index] = block;
    }
    s->random = x;
}

static void set_fill(set *s, size_t least, size_t span)
{
    uint64_t x = s->random;
    size_t i;
    for (i = 0; i < s->count; i++) {
        size_t size;
        x = micro_next(x);
        size = micro_size(x, least, span);
        s->blocks[i] = malloc(size);
        micro_mark(s->blocks[i], i, size);
    }
    s->random = x;
}

/* ---- Own churn -------------------------------------------------------------------------------
 * Each thread replaces blocks of 16 to 1,024 bytes at random in a set of 10,000 of its own: workers
 * that share nothing. What they lose against a single thread is what the allocator shares. */
enum { OWN_OPS = 480000, OWN_COUNT = 10000, OWN_LEAST = 16, OWN_SPAN = 1009 };

static set own_sets[MICRO_MAX_THREADS];
static int own_filled[MICRO_MAX_THREADS];

static void own_work(int thread)
{
    set *s = &own_sets[thread];
    if (!own_filled[thread]) {
        set_fill(s, OWN_LEAST, OWN_SPAN);
        own_filled[thread] = 1;
    }
    set_replace(s, OWN_OPS / (size_t)micro_threads, OWN_LEAST, OWN_SPAN);
}

static void own_setup(void)
{
    int i;
    for (i = 0; i < micro_threads; i++)
        set_init(&own_sets[i], OWN_COUNT, 100 + (uint64_t)i);
    team_start(own_work);
}

static void own_check(void)
{
    int i;
    for (i = 0; i < micro_threads; i++)
        micro_check_blocks(own_sets[i].blocks, OWN_COUNT, OWN_LEAST, OWN_LEAST + OWN_SPAN - 1);
}

/* ---- Producer and consumer -------------------------------------------------------------------
 * In each pair of threads one allocates blocks of 64 bytes and the other frees them; they come over
 * a ring of 4,096 slots. Messages between the stages of a pipeline: every free is of another
 * thread's block. The consumer reads what the producer wrote. */
enum { RING = 4096, RING_SPINS = 64, PROD_OPS = 400000, PROD_SIZE = 64 };

typedef struct ring {
    _Alignas(128) _Atomic size_t head; /* taken: written by the consumer */
    _Alignas(128) _Atomic size_t tail; /* put: written by the producer */
    _Alignas(128) char *slots[RING];
} ring;

static ring *rings;

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

static void produce(ring *r, size_t count)
{
    size_t tail = atomic_load_explicit(&r->tail, memory_order_relaxed);
    size_t head = atomic_load_explicit(&r->head, memory_order_acquire);
    size_t i;
    unsigned spins = 0;
    for (i = 0; i < count; i++) {
        char *block = malloc(PROD_SIZE);
        micro_mark(block, i, PROD_SIZE);
        while (tail - head == RING) {
            pause_or_yield(&spins);
            /* Pairs with the consumer's release of head: the slot has been read. */
            head = atomic_load_explicit(&r->head, memory_order_acquire);
        }
        r->slots[tail % RING] = block;
        tail++;
        /* Pairs with the consumer's acquire of tail: slot and block are written. */
        atomic_store_explicit(&r->tail, tail, memory_order_release);
    }
}

static void consume(ring *r, size_t count)
{
    size_t head = atomic_load_explicit(&r->head, memory_order_relaxed);
    size_t tail = head;
    size_t i;
    unsigned spins = 0;
    for (i = 0; i < count; i++) {
        char *block;
        while (tail == head) {
            /* Pairs with the producer's release of tail. */
            tail = atomic_load_explicit(&r->tail, memory_order_acquire);
            if (tail == head)
                pause_or_yield(&spins);
        }
        block = r->slots[head % RING];
        if (*(uint64_t *)(void *)block != ((uint64_t)i << 32 | PROD_SIZE))
            micro_fail("self-check: a block changed between producer and consumer");
        free(block);
        head++;
        /* Pairs with the producer's acquire of head. */
        atomic_store_explicit(&r->head, head, memory_order_release);
    }
}

static void prodcons_work(int thread)
{
    size_t count = PROD_OPS / ((size_t)micro_threads / 2);
    if (thread % 2 == 0)
        produce(&rings[thread / 2], count);
    else
        consume(&rings[thread / 2], count);
}

static void prodcons_setup(void)
{
    rings = micro_map((size_t)micro_threads / 2 * sizeof rings[0]);
    team_start(prodcons_work);
}

/* The consumer checks every block. */
static void prodcons_check(void)
{
}

/* ---- Larson ----------------------------------------------------------------------------------
 * The pattern of Larson and Krishnan, "Memory Allocation for Long-Running Server Applications"
 * (ISMM 1998): threads replace random blocks of 8 to 1,024 bytes in arrays of 1,000 that they took
 * over from other threads, so that the first free of each slot is of another thread's block. In
 * "burst" every generation is made of new threads, which take the arrays of their neighbours and
 * end after 5,000 replacements: those other threads are gone. In "loop" the threads live on and
 * swap their array for one lying about, after every 2,000. */
enum { LARSON_OPS = 400000, LARSON_COUNT = 1000, LARSON_LEAST = 8, LARSON_SPAN = 1017 };
enum { BURST_OPS = 5000, LOOP_OPS = 2000 };

static set larson_sets[2 * MICRO_MAX_THREADS];
static size_t larson_sets_count;
static int burst_generation;

static void larson_init(size_t sets)
{
    size_t i;
    larson_sets_count = sets;
    for (i = 0; i < sets; i++) {
        set_init(&larson_sets[i], LARSON_COUNT, 200 + i);
        set_fill(&larson_sets[i], LARSON_LEAST, LARSON_SPAN);
    }
}

static void larson_check(void)
{
    size_t i;
    for (i = 0; i < larson_sets_count; i++)
        micro_check_blocks(larson_sets[i].blocks, LARSON_COUNT, LARSON_LEAST,
                           LARSON_LEAST + LARSON_SPAN - 1);
}

static void *burst_body(void *argument)
{
    int thread = (int)(intptr_t)argument;
    set *mine = &larson_sets[(thread + burst_generation) % micro_threads];
    set_replace(mine, BURST_OPS, LARSON_LEAST, LARSON_SPAN);
    return NULL;
}

static void burst_setup(void)
{
    larson_init((size_t)micro_threads);
}

static uint64_t burst_run(void)
{
    size_t left = LARSON_OPS / BURST_OPS / (size_t)micro_threads;
    uint64_t start = micro_now_ns();
    for (; left > 0; left--) {
        pthread_t threads[MICRO_MAX_THREADS];
        int i;
        for (i = 0; i < micro_threads; i++)
            start_thread(&threads[i], burst_body, i);
        for (i = 0; i < micro_threads; i++)
            pthread_join(threads[i], NULL);
        burst_generation++;
    }
    return micro_now_ns() - start;
}

/* The sets that lie about, and those that threads hold. */
static _Atomic(set *) loop_free[MICRO_MAX_THREADS];
static set *loop_held[MICRO_MAX_THREADS];

static void loop_work(int thread)
{
    set *mine = loop_held[thread];
    size_t left = LARSON_OPS / LOOP_OPS / (size_t)micro_threads;
    for (; left > 0; left--) {
        set_replace(mine, LOOP_OPS, LARSON_LEAST, LARSON_SPAN);
        /* Both sides of a hand-over are this exchange: its release publishes the blocks, its
         * acquire takes those of the thread that left the set there. */
        mine =
            atomic_exchange_explicit(&loop_free[micro_index(mine->random, (size_t)micro_threads)],
                                     mine, memory_order_acq_rel);
    }
    loop_held[thread] = mine;
}

static void loop_setup(void)
{
    int i;
    larson_init(2 * (size_t)micro_threads);
    for (i = 0; i < micro_threads; i++) {
        loop_held[i] = &larson_sets[2 * i];
        atomic_store_explicit(&loop_free[i], &larson_sets[2 * i + 1], memory_order_relaxed);
    }
    team_start(loop_work);
}

/* ---- Thread cost -----------------------------------------------------------------------------
 * A hundred threads that each hold six blocks of 24 to 1,000 bytes: a pool of idle workers. What is
 * asked is what the allocator keeps for each, so resident memory is compared between all threads
 * running and all having allocated. */
enum { COST_THREADS = 100, COST_STACK = 16 << 10 };

static pthread_barrier_t cost_running, cost_allocate, cost_allocated, cost_over;

/* Resident memory by the page tables, not by the counters that /proc/self/status reads, which may
 * be some hundred KiB behind. */
static long resident_kib(void)
{
    static char text[4096];
    const char *line;
    ssize_t got;
    int fd = open("/proc/self/smaps_rollup", O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        micro_fail("can't read /proc/self/smaps_rollup");
    got = read(fd, text, sizeof text - 1);
    close(fd);
    text[got > 0 ? got : 0] = '\0';
    line = strstr(text, "Rss:");
    if (line == NULL)
        micro_fail("no Rss in /proc/self/smaps_rollup");
    return strtol(line + 4, NULL, 10);
}

static void *cost_body(void *argument)
{
    static const size_t sizes[] = {24, 64, 100, 200, 500, 1000};
    enum { COUNT = sizeof sizes / sizeof sizes[0] };
    char *blocks[COUNT];
    volatile char stack[COST_STACK];
    size_t i;
    /* So that stack pages which only the allocator's calls reach aren't counted as its. */
    for (i = 0; i < sizeof stack; i += MICRO_PAGE / 4)
        stack[i] = 1;
    pthread_barrier_wait(&cost_running);
    pthread_barrier_wait(&cost_allocate);
    for (i = 0; i < COUNT; i++) {
        blocks[i] = malloc(sizes[i]);
        micro_mark(blocks[i], i, sizes[i]);
    }
    micro_check_blocks(blocks, COUNT, sizes[0], sizes[COUNT - 1]);
    pthread_barrier_wait(&cost_allocated);
    pthread_barrier_wait(&cost_over);
    for (i = 0; i < COUNT; i++)
        free(blocks[i]);
    return argument;
}

double micro_thread_cost_kib(void)
{
    static pthread_t threads[COST_THREADS];
    pthread_barrier_t *const barriers[] = {&cost_running, &cost_allocate, &cost_allocated,
                                           &cost_over};
    long before, after;
    size_t i;
    for (i = 0; i < sizeof barriers / sizeof barriers[0]; i++)
        pthread_barrier_init(barriers[i], NULL, COST_THREADS + 1);
    for (i = 0; i < COST_THREADS; i++)
        start_thread(&threads[i], cost_body, (int)i);
    pthread_barrier_wait(&cost_running);
    before = resident_kib();
    pthread_barrier_wait(&cost_allocate);
    pthread_barrier_wait(&cost_allocated);
    after = resident_kib();
    pthread_barrier_wait(&cost_over);
    for (i = 0; i < COST_THREADS; i++)
        pthread_join(threads[i], NULL);
    return (double)(after - before) / COST_THREADS;
}

const micro_workload micro_threaded[] = {
    {"ownchurn", 1, OWN_OPS, OWN_LEAST, own_setup, team_run, own_check, team_finish},
    {"prodcons", 1, PROD_OPS, PROD_SIZE, prodcons_setup, team_run, prodcons_check, team_finish},
    {"larsonburst", 1, LARSON_OPS, LARSON_LEAST, burst_setup, burst_run, larson_check, NULL},
    {"larsonloop", 1, LARSON_OPS, LARSON_LEAST, loop_setup, team_run, larson_check, team_finish},
    {NULL, 0, 0, 0, NULL, NULL, NULL, NULL},
};
