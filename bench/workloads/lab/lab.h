/* lab.h: what the workloads of the lab share.
 *
 * As the micro workloads do (micro.h), a workload here calls plain malloc, realloc and free, takes
 * everything random from a seed and keeps its own tables in mapped memory, so that the allocator
 * serves nothing but the workload's blocks. Over the micro workloads it has: options of its own, a
 * count of what was done and asked for instead of a constant, latencies of single calls, figures
 * of memory afterwards, and a heap that can be littered first (`--aged`).
 *
 * Every block carries its mark from micro.h. The mark is read back when the block is freed, inside
 * the timing and alike for all, as a program reads what it stored; blocks that are live after the
 * last repeat are checked from end to end. A lost mark ends the process with status 3.
 *
 * One operation is one malloc with its free, unless the workload says otherwise.
 */
#ifndef HAK_BENCH_LAB_H
#define HAK_BENCH_LAB_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include "../micro.h"

enum { LAB_MAX_THREADS = 64 };

/* ---- Workloads ------------------------------------------------------------------------------- */

/* An option of a workload: a whole number, or one of some words, whose index is then the value. */
typedef struct lab_option {
    const char *name;         /* without the dashes */
    char letter;              /* 0: none */
    const char *const *words; /* NULL: a number. Ended by NULL */
    int64_t standard;         /* the default */
    int64_t least, most;      /* of a number */
    const char *meaning;
    bool given;
    int64_t value; /* set before any function of the workload is called */
} lab_option;

typedef struct lab_done {
    uint64_t ns, ops, asked; /* asked: bytes asked of malloc, exact */
} lab_done;

enum {
    LAB_THREADED = 1, /* takes --threads; lab_threads is set */
    LAB_LASTING = 2,  /* --seconds says how long it lasts; lab_seconds is set */
    LAB_COLD = 4      /* no warm-up: the first time is what counts */
};

typedef struct lab_workload {
    const char *name, *suite, *about;
    const micro_workload *micro; /* one of the old ones: only these four fields are set */
    unsigned flags;
    size_t repeats;               /* default */
    double seconds;               /* default of a lasting workload */
    lab_option *options;          /* ended by a NULL name; NULL: none */
    const char *const *params;    /* combinations of options worth running; NULL: the defaults */
    const char *(*problem)(void); /* why these options don't go together, or NULL; may be NULL */
    /* For littering: a size as this workload asks for, and the bytes that it holds, about. */
    size_t (*size)(uint64_t random);
    size_t (*holds)(void);
    void (*setup)(void);   /* not timed */
    lab_done (*run)(void); /* one repeat */
    void (*after)(void);   /* after the repeats, before the check; may be NULL */
    void (*check)(void);   /* may be NULL where each repeat checks all */
    void (*finish)(void);  /* may be NULL */
    void (*print)(void);   /* fields of its own in the line of JSON; may be NULL */
} lab_workload;

/* All workloads of the lab: ended by NULL. */
extern const lab_workload *const lab_workloads[];

extern const lab_workload lab_json, lab_mir, lab_vm, lab_mixed;
extern const lab_workload lab_patterns, lab_tiny, lab_randommixed, lab_reallocgrowth;
extern const lab_workload lab_larson_burst, lab_larson_loop;
extern const lab_workload lab_midmt, lab_midlargemt, lab_prodcons, lab_threadchurn;
extern const lab_workload lab_fragmentation, lab_largeset, lab_burstidle;
extern const lab_workload lab_latency;

/* ---- Of this run ----------------------------------------------------------------------------- */

extern int lab_threads;    /* 1 for workloads that take no count */
extern double lab_seconds; /* of a lasting workload, in all */
extern int lab_repeats;    /* that were asked for */
extern bool lab_plant;     /* flip a mark, to see that it is caught */

/* Bytes of blocks live after the last repeat, and resident memory then; a workload that knows them
 * sets the first, and one that looks at another time sets the second. -1: unknown. */
extern int64_t lab_live_bytes;
extern int64_t lab_resident_after_kib;

/* Zeroed memory for tables. The total is printed, since it is part of resident memory. */
void *lab_map(size_t bytes);
void lab_unmap(void *memory, size_t bytes);

/* ---- Marks ----------------------------------------------------------------------------------- */

_Noreturn void lab_lost(void);

/* Checks the mark of a block that is about to be freed. Returns the block's size. */
static inline size_t lab_verify(const char *block, size_t index)
{
    uint64_t mark = *(const uint64_t *)(const void *)block;
    if (__builtin_expect(mark >> 32 != index, 0))
        lab_lost();
    return (size_t)(mark & 0xffffffff);
}

/* Called with a live block once a repeat: where a corruption is planted. */
static inline void lab_plant_in(char *block)
{
    if (__builtin_expect(lab_plant, 0))
        block[7] = (char)(block[7] ^ 0x40);
}

/* A mark, the last byte, and a byte in each page: a block that is used from end to end. */
static inline void lab_touch(char *block, size_t index, size_t size)
{
    size_t at;
    for (at = MICRO_PAGE; at < size; at += MICRO_PAGE)
        block[at] = 1;
    if (size > 8)
        block[size - 1] = 1;
    micro_mark(block, index, size);
}

/* A live block, or the end of the process: no workload asks for more than there is. */
static inline char *lab_malloc(size_t size)
{
    char *block = malloc(size);
    if (__builtin_expect(block == NULL, 0))
        micro_fail("malloc returned NULL");
    return block;
}

/* micro_check_blocks, after a corruption has been planted where one is wanted. */
void lab_check_blocks(char *const *blocks, size_t count, size_t least, size_t most);

/* ---- Sets ------------------------------------------------------------------------------------
 * Live blocks, of which one after the other is replaced at random: a long-running program in its
 * steady state. */
typedef size_t lab_size_fn(uint64_t random);

typedef struct lab_set {
    char **blocks;
    size_t count;
    uint64_t random;
} lab_set;

void lab_set_init(lab_set *set, size_t count, uint64_t stream);
void lab_set_fill(lab_set *set, lab_size_fn *size_of);
size_t lab_set_bytes(const lab_set *set);

/* `size_of` and `whole` are constants at each call, so that only the code for them remains. */
static inline __attribute__((always_inline)) lab_done
lab_set_replace(lab_set *set, uint64_t *random, size_t ops, lab_size_fn *size_of, bool whole)
{
    char **blocks = set->blocks;
    size_t count = set->count;
    uint64_t x = *random;
    lab_done done = {0, ops, 0};
    size_t i;
    for (i = 0; i < ops; i++) {
        size_t index, size;
        char *block;
        x = micro_next(x);
        index = micro_index(x, count);
        size = size_of(x);
        lab_verify(blocks[index], index);
        free(blocks[index]);
        block = lab_malloc(size);
        if (whole)
            lab_touch(block, index, size);
        else
            micro_mark(block, index, size);
        blocks[index] = block;
        done.asked += size;
    }
    *random = x;
    return done;
}

/* ---- Teams -----------------------------------------------------------------------------------
 * lab_threads long-lived threads that each do a piece of work per repeat. */
typedef lab_done lab_work(int thread);

void lab_team_start(lab_work *work);
lab_done lab_team_run(void); /* wall time, and what all did */
void lab_team_stop(void);

/* Starts a thread or ends the process. */
void lab_thread_start(pthread_t *thread, bool detached, void *(*body)(void *), void *argument);

/* ---- Single calls ---------------------------------------------------------------------------- */

/* A stretch of time in ticks of the processor's counter where that runs evenly, else in ns. */
void lab_timer_init(void);
/* Measures what the timer itself takes: before each repeat, since the processor's clock changes.
 * Does not allocate. */
void lab_timer_measure(void);
void lab_timer_print(void);

extern bool lab_timer_counter;
extern double lab_timer_ns_per_tick, lab_timer_overhead;

/* Fences keep what is measured between the two, and what isn't out. */
static inline uint64_t lab_tick(void)
{
#if defined(__x86_64__)
    if (lab_timer_counter) {
        uint64_t ticks;
        __builtin_ia32_lfence();
        ticks = __builtin_ia32_rdtsc();
        __builtin_ia32_lfence();
        return ticks;
    }
#endif
    return micro_now_ns();
}

/* Less what the timer itself takes. A call too short to be told from nothing counts as 1 ns. */
static inline uint64_t lab_ticks_ns(uint64_t ticks)
{
    double ns = (double)ticks * lab_timer_ns_per_tick - lab_timer_overhead;
    return ns < 1 ? 1 : (uint64_t)ns;
}

/* Counts of values by size: exact below 256, above it in 128 steps per power of two, so that a
 * value is right to 0.4 %. Values over 2^40 ns (18 minutes) count as that. */
enum { LAB_HISTOGRAM_STEPS = 128, LAB_HISTOGRAM_BITS = 40 };
enum { LAB_HISTOGRAM_CELLS = (LAB_HISTOGRAM_BITS - 6) * LAB_HISTOGRAM_STEPS };

typedef struct lab_histogram {
    uint64_t counts[LAB_HISTOGRAM_CELLS];
    uint64_t total, largest;
} lab_histogram;

extern lab_histogram lab_latencies; /* of the run; printed where it has any */

void lab_histogram_add(lab_histogram *histogram, uint64_t ns);
void lab_histogram_merge(lab_histogram *into, const lab_histogram *from);
void lab_histogram_reset(lab_histogram *histogram);
/* The value that `share` (0 to 1) of all values do not exceed. */
uint64_t lab_histogram_at(const lab_histogram *histogram, double share);
/* `, "p50_ns": …` to max_ns. */
void lab_histogram_print(const lab_histogram *histogram, const char *before);
void lab_histogram_print_raw(const lab_histogram *histogram);

/* ---- Figures --------------------------------------------------------------------------------- */

/* Resident memory: by the page tables, exact; and by the kernel's counters, quick. Neither
 * allocates. */
int64_t lab_resident_kib(void);
int64_t lab_resident_quick_kib(void);
int64_t lab_peak_resident_kib(void);
int64_t lab_tables_kib(void);

/* hakmem's meter of bytes served, or -1 where the allocator is not hakmem. */
int64_t lab_served_bytes(void);

void lab_print_string(const char *text); /* in quotes, as JSON */
void lab_print_proof(uint64_t asked, int64_t served_start, int64_t served_end);

/* ---- Littering ------------------------------------------------------------------------------- */

/* Litters the heap: see age.c. Returns the bytes asked for. */
uint64_t lab_age(const lab_workload *workload, double freed);
void lab_age_check(void);

#endif
