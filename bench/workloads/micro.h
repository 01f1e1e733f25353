/* micro.h: what the micro workloads share.
 *
 * A workload calls plain malloc, realloc and free, so that it measures whichever allocator is
 * preloaded. It has a fixed number of operations per repeat and takes everything random from a
 * seed: two allocators given the same seed are asked for exactly the same things in the same order
 * (with threads: each thread is). Tables of the workload itself are mapped, never malloc'd, so
 * that no allocator is charged for them or warmed by them.
 *
 * Every block carries its mark: the index of its slot and its size in the first eight bytes, which
 * are written when it is allocated, inside the timing and alike for all. After the last repeat,
 * outside the timing, a check writes the last byte of every live block too, and then reads all
 * marks and all last bytes back: two blocks that overlap, or a block smaller than asked for, can't
 * pass it.
 */
#ifndef HAK_BENCH_MICRO_H
#define HAK_BENCH_MICRO_H

#include <stddef.h>
#include <stdint.h>

/* Operations of a repeat are dealt out evenly to 2, 4 or 8 threads. */
enum { MICRO_MAX_THREADS = 8, MICRO_PAGE = 4096 };

typedef struct micro_workload {
    const char *name;
    int threaded;          /* takes a thread count */
    size_t ops;            /* operations in one repeat */
    size_t smallest;       /* no request is smaller, in bytes */
    void (*setup)(void);   /* not timed */
    uint64_t (*run)(void); /* one repeat: nanoseconds for `ops` operations */
    void (*check)(void);   /* not timed; ends the process where contents are wrong */
    void (*finish)(void);  /* not timed; may be NULL */
} micro_workload;

extern const micro_workload micro_single[];   /* ended by a NULL name */
extern const micro_workload micro_threaded[]; /* likewise */

extern uint64_t micro_seed;
extern int micro_threads; /* of this run; 1 for workloads that take no count */

/* KiB of resident memory that a thread costs which allocates little, as against one that allocates
 * nothing. */
double micro_thread_cost_kib(void);

/* Monotonic clock. */
uint64_t micro_now_ns(void);

/* Zeroed memory that is never given back, straight from the system. */
void *micro_map(size_t bytes);

/* Says what is wrong on stderr and ends the process with status 3. */
_Noreturn void micro_fail(const char *what);

/* A linear congruential generator of 64 bits: one multiply, off the critical path of the loop that
 * uses it. Constants: Knuth's MMIX. Only its upper bits are used. */
static inline uint64_t micro_next(uint64_t x)
{
    return x * 6364136223846793005u + 1442695040888963407u;
}

static inline uint64_t micro_start(uint64_t stream)
{
    return micro_next(micro_next(micro_seed * 0x9e3779b97f4a7c15u + stream));
}

/* An index below `count` (below 2^32), and a size in [least, least + span). They use different bits
 * of the same state. */
static inline size_t micro_index(uint64_t x, size_t count)
{
    return (size_t)(((x >> 32) * count) >> 32);
}

static inline size_t micro_size(uint64_t x, size_t least, size_t span)
{
    return least + (size_t)((((x >> 12) & 0xfffff) * span) >> 20);
}

/* The mark of a block: see the head of this file. Blocks have eight bytes at least. */
static inline void micro_mark(char *block, size_t index, size_t size)
{
    *(uint64_t *)(void *)block = (uint64_t)index << 32 | (uint64_t)size;
}

/* Checks the blocks[0..count): each must hold the mark of its index, with a size between the two
 * bounds. NULL slots are skipped. */
void micro_check_blocks(char *const *blocks, size_t count, size_t least, size_t most);

#endif
