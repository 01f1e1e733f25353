/* latency.c: how long a single malloc or free takes, and how long the slowest.
 *
 * Blocks of 16 to 1,024 bytes are replaced at random in a set that has settled, and each call is
 * timed. A mean hides what a program with a deadline meets: the call that refills, purges, takes a
 * lock or enters the kernel. What the kernel does to the thread is no call's fault: calls are
 * counted in batches of 256, and a batch in which the thread was switched out against its will is
 * dropped. The time of a repeat is the sum of its calls, not wall time, since the timer would be
 * most of that. */
#define _GNU_SOURCE
#include "lab.h"

#include <stdio.h>
#include <sys/resource.h>

enum { BATCH_OPS = 128, BATCH_CALLS = 2 * BATCH_OPS, BATCHES = 800 };

static lab_option options[] = {
    {.name = "slots",
     .standard = 10000,
     .least = 1,
     .most = 10000000,
     .meaning = "live blocks of a thread"},
    {.name = "least", .standard = 16, .least = 8, .most = 1 << 20, .meaning = "smallest block"},
    {.name = "most", .standard = 1024, .least = 8, .most = 1 << 20, .meaning = "largest block"},
    {0},
};
enum { SLOTS, LEAST, MOST };
static const char *const params[] = {"most=1024", "most=32768", NULL};

typedef struct bench {
    _Alignas(128) lab_set set;
    lab_histogram mallocs, frees;
    uint64_t kept, dropped; /* batches, of all repeats; of the warm-up none */
} bench;

static bench *benches;
static lab_histogram all_mallocs, all_frees;
static bool warm;

static const char *problem(void)
{
    return options[LEAST].value > options[MOST].value ? "--least is more than --most" : NULL;
}

static size_t size_of(uint64_t x)
{
    return micro_size(x, (size_t)options[LEAST].value,
                      (size_t)(options[MOST].value - options[LEAST].value + 1));
}

static size_t holds(void)
{
    return (size_t)(lab_threads * options[SLOTS].value *
                    (options[LEAST].value + options[MOST].value) / 2);
}

static long involuntary_switches(void)
{
    struct rusage usage;
    getrusage(RUSAGE_THREAD, &usage);
    return usage.ru_nivcsw;
}

/* The two tables hold ticks of the calls in the order they were made. Returns the bytes asked. */
static uint64_t run_batch(lab_set *set, uint64_t *malloc_ticks, uint64_t *free_ticks)
{
    uint64_t asked = 0;
    int i;
    for (i = 0; i < BATCH_OPS; i++) {
        uint64_t x = set->random = micro_next(set->random);
        size_t index = micro_index(x, set->count);
        size_t size = size_of(x);
        char *block = set->blocks[index];
        uint64_t start, middle;
        lab_verify(block, index);
        start = lab_tick();
        free(block);
        middle = lab_tick();
        free_ticks[i] = middle - start;
        start = lab_tick();
        block = malloc(size);
        middle = lab_tick();
        malloc_ticks[i] = middle - start;
        if (block == NULL)
            micro_fail("malloc returned NULL");
        micro_mark(block, index, size);
        set->blocks[index] = block;
        asked += size;
    }
    return asked;
}

static lab_done work(int thread)
{
    bench *b = &benches[thread];
    uint64_t malloc_ticks[BATCH_OPS], free_ticks[BATCH_OPS];
    lab_done done = {0, 0, 0};
    uint64_t ticks = 0;
    double ns;
    size_t batch;
    if (b->set.blocks[0] == NULL)
        lab_set_fill(&b->set, size_of);
    for (batch = 0; batch < BATCHES / (size_t)lab_threads + 1; batch++) {
        long before = involuntary_switches();
        int i;
        done.asked += run_batch(&b->set, malloc_ticks, free_ticks);
        if (!warm)
            continue;
        if (involuntary_switches() != before) {
            b->dropped++;
            continue;
        }
        b->kept++;
        done.ops += BATCH_OPS;
        for (i = 0; i < BATCH_OPS; i++) {
            lab_histogram_add(&b->mallocs, lab_ticks_ns(malloc_ticks[i]));
            lab_histogram_add(&b->frees, lab_ticks_ns(free_ticks[i]));
            ticks += malloc_ticks[i] + free_ticks[i];
        }
    }
    /* Not the sum of what went into the histogram, where nothing is below 1 ns. */
    ns = (double)ticks * lab_timer_ns_per_tick - (double)(2 * done.ops) * lab_timer_overhead;
    done.ns = ns < 0 ? 0 : (uint64_t)ns;
    return done;
}

static uint64_t work_ns[LAB_MAX_THREADS];

static lab_done team_work(int thread)
{
    lab_done done = work(thread);
    work_ns[thread] = done.ns;
    return done;
}

static void setup(void)
{
    int i;
    lab_timer_init();
    benches = lab_map((size_t)lab_threads * sizeof benches[0]);
    for (i = 0; i < lab_threads; i++)
        lab_set_init(&benches[i].set, (size_t)options[SLOTS].value, 630 + (uint64_t)i);
    lab_team_start(team_work);
}

/* The first run settles the sets: that of the warm-up. */
static lab_done run(void)
{
    lab_done done;
    int i;
    lab_timer_measure();
    done = lab_team_run();
    done.ns = 0;
    for (i = 0; i < lab_threads; i++)
        done.ns += work_ns[i];
    warm = true;
    return done;
}

static void after(void)
{
    int i;
    lab_live_bytes = 0;
    for (i = 0; i < lab_threads; i++) {
        lab_live_bytes += (int64_t)lab_set_bytes(&benches[i].set);
        lab_histogram_merge(&all_mallocs, &benches[i].mallocs);
        lab_histogram_merge(&all_frees, &benches[i].frees);
    }
    lab_histogram_reset(&lab_latencies);
    lab_histogram_merge(&lab_latencies, &all_mallocs);
    lab_histogram_merge(&lab_latencies, &all_frees);
}

static void check(void)
{
    int i;
    for (i = 0; i < lab_threads; i++)
        lab_check_blocks(benches[i].set.blocks, benches[i].set.count, (size_t)options[LEAST].value,
                         (size_t)options[MOST].value);
}

static void print(void)
{
    uint64_t kept = 0, dropped = 0;
    int i;
    for (i = 0; i < lab_threads; i++) {
        kept += benches[i].kept;
        dropped += benches[i].dropped;
    }
    printf(", \"batch_calls\": %d, \"batches\": %llu, \"batches_dropped\": %llu", BATCH_CALLS,
           (unsigned long long)kept, (unsigned long long)dropped);
    lab_histogram_print(&all_mallocs, "malloc_");
    lab_histogram_print(&all_frees, "free_");
}

const lab_workload lab_latency = {
    .name = "latency",
    .suite = "latency",
    .about = "Each malloc and free timed on its own while blocks are replaced at random: the slow "
             "calls that a mean hides.",
    .flags = LAB_THREADED,
    .repeats = 15,
    .options = options,
    .params = params,
    .problem = problem,
    .size = size_of,
    .holds = holds,
    .setup = setup,
    .run = run,
    .after = after,
    .check = check,
    .finish = lab_team_stop,
    .print = print,
};
