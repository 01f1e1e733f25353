/* single.c: the workloads of one thread. One operation is one malloc and one free, except for the
 * two realloc workloads, where it is one realloc. */
#include "micro.h"

#include <stdlib.h>

/* ---- Pair ------------------------------------------------------------------------------------
 * A block of 64 bytes is allocated and freed at once, over and over: the shortest life there is, a
 * temporary in a loop. It measures the bare length of the two paths and the chain from one call to
 * the next, with everything in the first-level cache. */
enum { PAIR_OPS = 2000000, PAIR_SIZE = 64 };

static void pair_setup(void)
{
}

static uint64_t pair_run(void)
{
    size_t i;
    uint64_t start = micro_now_ns();
    for (i = 0; i < PAIR_OPS; i++) {
        char *block = malloc(PAIR_SIZE);
        micro_mark(block, 0, PAIR_SIZE);
        free(block);
    }
    return micro_now_ns() - start;
}

static void pair_check(void)
{
    char *block = malloc(PAIR_SIZE);
    micro_mark(block, 0, PAIR_SIZE);
    micro_check_blocks(&block, 1, PAIR_SIZE, PAIR_SIZE);
    free(block);
}

/* ---- Rounds ----------------------------------------------------------------------------------
 * The workloads from here to fifo100k fill a table with blocks and then free them all, in the order
 * that their table says. */
typedef struct rounds {
    size_t count;
    size_t least, span;
    size_t turns; /* per repeat */
    char **blocks;
    uint16_t *sizes;
    uint32_t *order;
} rounds;

static rounds the_rounds;

enum rounds_order { ORDER_FIFO, ORDER_LIFO, ORDER_RANDOM };

static void rounds_setup(size_t count, size_t least, size_t most, size_t ops,
                         enum rounds_order order)
{
    rounds *r = &the_rounds;
    uint64_t x = micro_start(1);
    size_t i;
    r->count = count;
    r->least = least;
    r->span = most - least + 1;
    r->turns = ops / count;
    r->blocks = micro_map(count * sizeof r->blocks[0]);
    r->sizes = micro_map(count * sizeof r->sizes[0]);
    r->order = micro_map(count * sizeof r->order[0]);
    for (i = 0; i < count; i++) {
        x = micro_next(x);
        r->sizes[i] = (uint16_t)micro_size(x, least, r->span);
        r->order[i] = (uint32_t)(order == ORDER_LIFO ? count - 1 - i : i);
    }
    for (i = count; order == ORDER_RANDOM && i > 1; i--) {
        uint32_t held = r->order[i - 1];
        size_t other;
        x = micro_next(x);
        other = micro_index(x, i);
        r->order[i - 1] = r->order[other];
        r->order[other] = held;
    }
}

static uint64_t rounds_run(void)
{
    const rounds *r = &the_rounds;
    char **blocks = r->blocks;
    const uint16_t *sizes = r->sizes;
    const uint32_t *order = r->order;
    size_t count = r->count;
    size_t turn, i;
    uint64_t start = micro_now_ns();
    for (turn = 0; turn < r->turns; turn++) {
        for (i = 0; i < count; i++) {
            char *block = malloc(sizes[i]);
            micro_mark(block, i, sizes[i]);
            blocks[i] = block;
        }
        for (i = 0; i < count; i++)
            free(blocks[order[i]]);
    }
    return micro_now_ns() - start;
}

static void rounds_check(void)
{
    const rounds *r = &the_rounds;
    size_t i;
    for (i = 0; i < r->count; i++) {
        r->blocks[i] = malloc(r->sizes[i]);
        micro_mark(r->blocks[i], i, r->sizes[i]);
    }
    micro_check_blocks(r->blocks, r->count, r->least, r->least + r->span - 1);
    for (i = 0; i < r->count; i++)
        free(r->blocks[r->order[i]]);
}

/* 100 blocks of 16 bytes, freed last first (a stack unwinding), first first (a queue), and in
 * random order (everything else): small sets that any thread cache holds whole. */
enum { HUNDRED = 100, HUNDRED_OPS = 1000000 };

static void lifo16_setup(void)
{
    rounds_setup(HUNDRED, 16, 16, HUNDRED_OPS, ORDER_LIFO);
}

static void fifo16_setup(void)
{
    rounds_setup(HUNDRED, 16, 16, HUNDRED_OPS, ORDER_FIFO);
}

static void random16_setup(void)
{
    rounds_setup(HUNDRED, 16, 16, HUNDRED_OPS, ORDER_RANDOM);
}

/* 500 blocks of mixed sizes from 16 to 256 bytes, then all freed in order: what one request of a
 * server or one statement of an interpreter leaves behind. */
enum { BATCH = 500, BATCH_OPS = 1000000 };

static void batch500_setup(void)
{
    rounds_setup(BATCH, 16, 256, BATCH_OPS, ORDER_FIFO);
}

/* 100,000 blocks of 16 to 128 bytes, then all freed: a document parsed and dropped. More than most
 * thread caches hold, so that blocks go all the way back and come again. Once in order of
 * allocation, where the next block to free is the neighbour of the last, and once in random order,
 * where each free meets cold metadata. */
enum { BULK = 100000, BULK_OPS = 200000 };

static void fifo100k_setup(void)
{
    rounds_setup(BULK, 16, 128, BULK_OPS, ORDER_FIFO);
}

static void bulkrandom100k_setup(void)
{
    rounds_setup(BULK, 16, 128, BULK_OPS, ORDER_RANDOM);
}

/* ---- Churn -----------------------------------------------------------------------------------
 * A set of live blocks, of which one picked at random is freed and replaced by one of another size,
 * over and over: a long-running program in its steady state. The size of the set decides which
 * cache of the processor it lives in: 1,024 blocks of 16 to 1,024 bytes stay in the second level, a
 * million are half a gigabyte, where memory layout is all that counts. */
typedef enum touch {
    TOUCH_MARK,  /* the first eight bytes only */
    TOUCH_ENDS,  /* and the last byte */
    TOUCH_START, /* and one byte in each page of the first 64 KiB */
    TOUCH_ALL    /* and one byte in each page */
} touch;

typedef struct churn {
    size_t count;
    size_t least, span;
    char **blocks;
    uint64_t random;
} churn;

static churn the_churn;

/* `how` is a constant at each call, so that only the code for it remains. */
static inline void touch_block(char *block, size_t index, size_t size, touch how)
{
    size_t at;
    size_t bound = how == TOUCH_START && size > 64 << 10 ? 64 << 10 : size;
    if (how == TOUCH_START || how == TOUCH_ALL)
        for (at = MICRO_PAGE; at < bound; at += MICRO_PAGE)
            block[at] = 1;
    if (how != TOUCH_MARK)
        block[size - 1] = 1;
    micro_mark(block, index, size);
}

static void churn_setup(size_t count, size_t least, size_t most, touch how)
{
    churn *c = &the_churn;
    uint64_t x = micro_start(2);
    size_t i;
    c->count = count;
    c->least = least;
    c->span = most - least + 1;
    c->blocks = micro_map(count * sizeof c->blocks[0]);
    for (i = 0; i < count; i++) {
        size_t size;
        x = micro_next(x);
        size = micro_size(x, c->least, c->span);
        c->blocks[i] = malloc(size);
        touch_block(c->blocks[i], i, size, how);
    }
    c->random = x;
}

static inline uint64_t churn_run(size_t ops, touch how)
{
    churn *c = &the_churn;
    char **blocks = c->blocks;
    size_t count = c->count;
    size_t least = c->least;
    size_t span = c->span;
    uint64_t x = c->random;
    size_t i;
    uint64_t start = micro_now_ns();
    for (i = 0; i < ops; i++) {
        size_t index, size;
        char *block;
        x = micro_next(x);
        index = micro_index(x, count);
        size = micro_size(x, least, span);
        free(blocks[index]);
        block = malloc(size);
        touch_block(block, index, size, how);
        blocks[index] = block;
    }
    c->random = x;
    return micro_now_ns() - start;
}

static void churn_check(void)
{
    const churn *c = &the_churn;
    micro_check_blocks(c->blocks, c->count, c->least, c->least + c->span - 1);
}

enum {
    CHURN_LEAST = 16,
    CHURN_MOST = 1024,
    CHURN1K_OPS = 400000,
    CHURN64K_OPS = 200000,
    CHURN256K_OPS = 200000,
    CHURN1M_OPS = 150000
};

static uint64_t churn1k_run(void)
{
    return churn_run(CHURN1K_OPS, TOUCH_MARK);
}

static uint64_t churn64k_run(void)
{
    return churn_run(CHURN64K_OPS, TOUCH_MARK);
}

static uint64_t churn256k_run(void)
{
    return churn_run(CHURN256K_OPS, TOUCH_MARK);
}

static uint64_t churn1m_run(void)
{
    return churn_run(CHURN1M_OPS, TOUCH_MARK);
}

/* The set as first filled lies in order of address. Replacing as many blocks as it holds, before
 * any timing, gives it the disorder of a program that has run for a while. */
static void churn_settled(size_t count)
{
    churn_setup(count, CHURN_LEAST, CHURN_MOST, TOUCH_MARK);
    churn_run(count, TOUCH_MARK);
}

static void churn1k_setup(void)
{
    churn_settled(1 << 10);
}

static void churn64k_setup(void)
{
    churn_settled(64 << 10);
}

static void churn256k_setup(void)
{
    churn_settled(256 << 10);
}

static void churn1m_setup(void)
{
    churn_settled(1 << 20);
}

/* 512 live blocks of 8 to 32 KiB: buffers of files, sockets and images. Both ends are written. */
enum { MID_OPS = 100000 };

static void mid_setup(void)
{
    churn_setup(512, 8 << 10, 32 << 10, TOUCH_ENDS);
}

static uint64_t mid_run(void)
{
    return churn_run(MID_OPS, TOUCH_ENDS);
}

/* 64 live blocks of 64 KiB to 1 MiB, of which the last byte and each page of the first 64 KiB are
 * written: buffers made larger than what is used of them. Keeping them costs memory, giving each
 * back at once costs page faults. */
enum { LARGE_OPS = 5000 };

static void large_setup(void)
{
    churn_setup(64, 64 << 10, 1 << 20, TOUCH_START);
}

static uint64_t large_run(void)
{
    return churn_run(LARGE_OPS, TOUCH_START);
}

/* 8 live blocks of 2 to 8 MiB, every page written: frames, matrices, table segments. */
enum { BIG_OPS = 60 };

static void big_setup(void)
{
    churn_setup(8, 2 << 20, 8 << 20, TOUCH_ALL);
}

static uint64_t big_run(void)
{
    return churn_run(BIG_OPS, TOUCH_ALL);
}

/* ---- Realloc ---------------------------------------------------------------------------------
 * Buffers grow side by side from 16 bytes to 1 MiB, by half their size each time (strings and
 * vectors), or by 8 KiB each time (a file read piece by piece). One byte in each page gained, and
 * the last byte, are written, as an append would; after each realloc the byte that was last must
 * still be there. */
enum { GROW_MOST = 1 << 20, GROW_HALF_BUFFERS = 16, GROW_HALF_TURNS = 2 };
enum { GROW_STEP = 8 << 10, GROW_STEP_BUFFERS = 4, GROW_STEP_TURNS = 4 };
/* Reallocs that take one buffer from 16 bytes to GROW_MOST. grow() checks them. */
enum { GROW_HALF_COUNT = 28, GROW_STEP_COUNT = 128 };

static size_t next_size(size_t size, size_t step)
{
    size_t next = step == 0 ? size + size / 2 : size + step;
    return next < GROW_MOST ? next : GROW_MOST;
}

static uint64_t grow(size_t buffers, size_t step, size_t turns, size_t reallocs)
{
    char *buffer[GROW_HALF_BUFFERS];
    size_t turn, i, at;
    size_t done = 0;
    uint64_t start = micro_now_ns();
    for (turn = 0; turn < turns; turn++) {
        size_t size = 16;
        for (i = 0; i < buffers; i++) {
            buffer[i] = malloc(size);
            buffer[i][0] = (char)i;
            buffer[i][size - 1] = (char)~i;
        }
        while (size < GROW_MOST) {
            size_t next = next_size(size, step);
            for (i = 0; i < buffers; i++) {
                char *block = realloc(buffer[i], next);
                if (block[size - 1] != (char)~i)
                    micro_fail("self-check: realloc lost the end of a buffer");
                for (at = (size + MICRO_PAGE) & ~(size_t)(MICRO_PAGE - 1); at < next;
                     at += MICRO_PAGE)
                    block[at] = 1;
                block[next - 1] = (char)~i;
                buffer[i] = block;
                done++;
            }
            size = next;
        }
        for (i = 0; i < buffers; i++) {
            if (buffer[i][0] != (char)i || buffer[i][GROW_MOST - 1] != (char)~i)
                micro_fail("self-check: realloc lost an end of a buffer");
            free(buffer[i]);
        }
    }
    start = micro_now_ns() - start;
    if (done != turns * buffers * reallocs)
        micro_fail("the count of reallocs in single.c is wrong");
    return start;
}

static void grow_setup(void)
{
}

static uint64_t growhalf_run(void)
{
    return grow(GROW_HALF_BUFFERS, 0, GROW_HALF_TURNS, GROW_HALF_COUNT);
}

static uint64_t growstep_run(void)
{
    return grow(GROW_STEP_BUFFERS, GROW_STEP, GROW_STEP_TURNS, GROW_STEP_COUNT);
}

/* Growing checks itself as it goes. */
static void grow_check(void)
{
}

const micro_workload micro_single[] = {
    {"pair", 0, PAIR_OPS, PAIR_SIZE, pair_setup, pair_run, pair_check, NULL},
    {"lifo16", 0, HUNDRED_OPS, 16, lifo16_setup, rounds_run, rounds_check, NULL},
    {"fifo16", 0, HUNDRED_OPS, 16, fifo16_setup, rounds_run, rounds_check, NULL},
    {"random16", 0, HUNDRED_OPS, 16, random16_setup, rounds_run, rounds_check, NULL},
    {"batch500", 0, BATCH_OPS, 16, batch500_setup, rounds_run, rounds_check, NULL},
    {"fifo100k", 0, BULK_OPS, 16, fifo100k_setup, rounds_run, rounds_check, NULL},
    {"bulkrandom100k", 0, BULK_OPS, 16, bulkrandom100k_setup, rounds_run, rounds_check, NULL},
    {"churn1k", 0, CHURN1K_OPS, CHURN_LEAST, churn1k_setup, churn1k_run, churn_check, NULL},
    {"churn64k", 0, CHURN64K_OPS, CHURN_LEAST, churn64k_setup, churn64k_run, churn_check, NULL},
    {"churn256k", 0, CHURN256K_OPS, CHURN_LEAST, churn256k_setup, churn256k_run, churn_check, NULL},
    {"churn1m", 0, CHURN1M_OPS, CHURN_LEAST, churn1m_setup, churn1m_run, churn_check, NULL},
    {"mid", 0, MID_OPS, 8 << 10, mid_setup, mid_run, churn_check, NULL},
    {"large", 0, LARGE_OPS, 64 << 10, large_setup, large_run, churn_check, NULL},
    {"big", 0, BIG_OPS, 2 << 20, big_setup, big_run, churn_check, NULL},
    {"growhalf", 0, GROW_HALF_BUFFERS *GROW_HALF_TURNS *GROW_HALF_COUNT, 16, grow_setup,
     growhalf_run, grow_check, NULL},
    {"growstep", 0, GROW_STEP_BUFFERS *GROW_STEP_TURNS *GROW_STEP_COUNT, 16, grow_setup,
     growstep_run, grow_check, NULL},
    {NULL, 0, 0, 0, NULL, NULL, NULL, NULL},
};
