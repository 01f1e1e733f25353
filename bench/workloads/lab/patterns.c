/* patterns.c: in which order blocks come and go. Small sizes, one thread. */
#include "lab.h"

static uint64_t x_of_run;

/* ---- Patterns --------------------------------------------------------------------------------
 * Six orders of life by five sizes. An allocator that is quick for a stack may be slow for a queue;
 * what a program does is one of these more often than it is uniformly random. A repeat is 200
 * rounds of 1,000 blocks.
 *   lifo         freed last first: scopes and recursion
 *   fifo         freed first first: queues and requests
 *   random       freed in random order: caches and hash tables
 *   interleaved  two allocated for each that is freed, oldest first, then all: a structure being
 *                built with temporaries
 *   mixed        sizes from a half of to four times the size, freed in random order: records with
 *                strings
 *   longlived    one in ten blocks lives until 2,000 more like it have come: results among
 *                temporaries */
enum { PATTERN_COUNT = 1000, PATTERN_TURNS = 200, PATTERN_KEPT = 2000, PATTERN_SHORT = 9 };
enum { PATTERN_OPS = PATTERN_COUNT * PATTERN_TURNS };
enum pattern { LIFO, FIFO, RANDOM, INTERLEAVED, MIXED, LONGLIVED };

static const char *const pattern_words[] = {"lifo",  "fifo",      "random", "interleaved",
                                            "mixed", "longlived", NULL};
static const char *const size_words[] = {"16", "32", "64", "128", "mixed", NULL};

static lab_option pattern_options[] = {
    {.name = "pattern", .words = pattern_words, .standard = LIFO, .meaning = "order of life"},
    {.name = "size", .words = size_words, .standard = 0, .meaning = "bytes of a block"},
    {0},
};
enum { OPTION_PATTERN, OPTION_SIZE };

#define PATTERN_PARAMS(NAME)                                                                       \
    "pattern=" NAME " size=16", "pattern=" NAME " size=32", "pattern=" NAME " size=64",            \
        "pattern=" NAME " size=128", "pattern=" NAME " size=mixed"
static const char *const pattern_params[] = {PATTERN_PARAMS("lifo"),
                                             PATTERN_PARAMS("fifo"),
                                             PATTERN_PARAMS("random"),
                                             PATTERN_PARAMS("interleaved"),
                                             PATTERN_PARAMS("mixed"),
                                             PATTERN_PARAMS("longlived"),
                                             NULL};

static struct {
    uint16_t sizes[PATTERN_COUNT];
    uint16_t order[PATTERN_COUNT];
    char *blocks[PATTERN_COUNT];
    char *kept[PATTERN_KEPT];
    size_t next_kept;
} pattern;

static size_t pattern_size(uint64_t x)
{
    size_t size = (size_t)16 << pattern_options[OPTION_SIZE].value;
    if (pattern_options[OPTION_SIZE].value == 4)
        size = (size_t)16 << micro_index(x, 4);
    if (pattern_options[OPTION_PATTERN].value == MIXED)
        size = micro_size(x, size / 2, size * 4 - size / 2 + 1);
    return size;
}

static size_t pattern_holds(void)
{
    return (PATTERN_COUNT + PATTERN_KEPT) * (size_t)64;
}

static void pattern_setup(void)
{
    bool last_first = pattern_options[OPTION_PATTERN].value == LIFO;
    bool shuffled = pattern_options[OPTION_PATTERN].value == RANDOM ||
                    pattern_options[OPTION_PATTERN].value == MIXED;
    uint64_t x = micro_start(400);
    size_t i;
    for (i = 0; i < PATTERN_COUNT; i++) {
        x = micro_next(x);
        pattern.sizes[i] = (uint16_t)pattern_size(x);
        pattern.order[i] = (uint16_t)(last_first ? PATTERN_COUNT - 1 - i : i);
    }
    for (i = PATTERN_COUNT; shuffled && i > 1; i--) {
        uint16_t held = pattern.order[i - 1];
        size_t other;
        x = micro_next(x);
        other = micro_index(x, i);
        pattern.order[i - 1] = pattern.order[other];
        pattern.order[other] = held;
    }
}

static inline void pattern_take(size_t i)
{
    size_t size = pattern.sizes[i];
    char *block = lab_malloc(size);
    micro_mark(block, i, size);
    pattern.blocks[i] = block;
}

static inline void pattern_give(size_t i)
{
    lab_verify(pattern.blocks[i], i);
    free(pattern.blocks[i]);
}

static void whole_turn(void)
{
    size_t i;
    for (i = 0; i < PATTERN_COUNT; i++)
        pattern_take(i);
    lab_plant_in(pattern.blocks[0]);
    for (i = 0; i < PATTERN_COUNT; i++)
        pattern_give(pattern.order[i]);
}

static void interleaved_turn(void)
{
    size_t i;
    for (i = 0; i + 1 < PATTERN_COUNT; i += 2) {
        pattern_take(i);
        pattern_take(i + 1);
        lab_plant_in(pattern.blocks[i]);
        pattern_give(i / 2);
    }
    for (i = PATTERN_COUNT / 2; i < PATTERN_COUNT; i++)
        pattern_give(i);
}

/* Nine temporaries, then one block for the ring of kept ones, which throws out its oldest. */
static void longlived_turn(void)
{
    size_t i, j;
    for (i = 0; i < PATTERN_COUNT; i += PATTERN_SHORT + 1) {
        size_t at = pattern.next_kept;
        size_t size = pattern.sizes[i + PATTERN_SHORT];
        for (j = i; j < i + PATTERN_SHORT; j++)
            pattern_take(j);
        lab_plant_in(pattern.blocks[i]);
        if (pattern.kept[at] != NULL) {
            lab_verify(pattern.kept[at], at);
            free(pattern.kept[at]);
        }
        pattern.kept[at] = lab_malloc(size);
        micro_mark(pattern.kept[at], at, size);
        pattern.next_kept = (at + 1) % PATTERN_KEPT;
        for (j = i + PATTERN_SHORT; j > i; j--)
            pattern_give(j - 1);
    }
}

static lab_done pattern_run(void)
{
    lab_done done = {0, PATTERN_OPS, 0};
    size_t turn, i;
    uint64_t start = micro_now_ns();
    for (turn = 0; turn < PATTERN_TURNS; turn++) {
        if (pattern_options[OPTION_PATTERN].value == INTERLEAVED)
            interleaved_turn();
        else if (pattern_options[OPTION_PATTERN].value == LONGLIVED)
            longlived_turn();
        else
            whole_turn();
    }
    done.ns = micro_now_ns() - start;
    for (i = 0; i < PATTERN_COUNT; i++)
        done.asked += pattern.sizes[i];
    done.asked *= PATTERN_TURNS;
    return done;
}

static void pattern_check(void)
{
    micro_check_blocks(pattern.kept, PATTERN_KEPT, 8, 512);
}

const lab_workload lab_patterns = {
    .name = "patterns",
    .suite = "patterns",
    .about = "Six orders of life (lifo, fifo, random, interleaved, mixed sizes, long-lived among "
             "short-lived) by five sizes, 1,000 blocks at a time.",
    .repeats = 15,
    .options = pattern_options,
    .params = pattern_params,
    .size = pattern_size,
    .holds = pattern_holds,
    .setup = pattern_setup,
    .run = pattern_run,
    .check = pattern_check,
};

/* ---- tiny ------------------------------------------------------------------------------------
 * 100 blocks of 16 bytes are allocated and then freed, ten million in all over ten repeats: nodes
 * and iterators of a scripting language. It fits into the first-level cache and into any thread
 * cache, so that only the length of the two paths counts. */
enum { TINY_COUNT = 100, TINY_SIZE = 16, TINY_OPS = 1000000, TINY_REPEATS = 10 };

static size_t tiny_size(uint64_t x)
{
    (void)x;
    return TINY_SIZE;
}

static size_t tiny_holds(void)
{
    return TINY_COUNT * TINY_SIZE;
}

static void no_setup(void)
{
}

static lab_done tiny_run(void)
{
    lab_done done = {0, TINY_OPS, (uint64_t)TINY_OPS * TINY_SIZE};
    char *blocks[TINY_COUNT];
    size_t turn, i;
    uint64_t start = micro_now_ns();
    for (turn = 0; turn < TINY_OPS / TINY_COUNT; turn++) {
        for (i = 0; i < TINY_COUNT; i++) {
            blocks[i] = lab_malloc(TINY_SIZE);
            micro_mark(blocks[i], i, TINY_SIZE);
        }
        lab_plant_in(blocks[0]);
        for (i = 0; i < TINY_COUNT; i++) {
            lab_verify(blocks[i], i);
            free(blocks[i]);
        }
    }
    done.ns = micro_now_ns() - start;
    return done;
}

const lab_workload lab_tiny = {
    .name = "tiny",
    .suite = "micro",
    .about = "100 blocks of 16 bytes allocated, then freed, ten million in all: the bare length of "
             "malloc and free.",
    .repeats = TINY_REPEATS,
    .size = tiny_size,
    .holds = tiny_holds,
    .setup = no_setup,
    .run = tiny_run,
};

/* ---- randommixed -----------------------------------------------------------------------------
 * A slot is picked at random: empty, it gets a block of 8 to 4,096 bytes; full, it loses it. Half
 * of all slots are full at any time, and runs of mallocs alternate with runs of frees: a program
 * with no plan. Two picks are one operation. */
enum { RANDOM_LEAST = 8, RANDOM_MOST = 4096, RANDOM_OPS = 200000 };

static lab_option random_options[] = {
    {.name = "slots", .standard = 10000, .least = 1, .most = 10000000, .meaning = "places to fill"},
    {0},
};
static char **random_slots;

static size_t random_size(uint64_t x)
{
    return micro_size(x, RANDOM_LEAST, RANDOM_MOST - RANDOM_LEAST + 1);
}

static size_t random_holds(void)
{
    return (size_t)random_options[0].value * (RANDOM_LEAST + RANDOM_MOST) / 4;
}

static void random_setup(void)
{
    random_slots = lab_map((size_t)random_options[0].value * sizeof random_slots[0]);
    x_of_run = micro_start(410);
}

static lab_done random_run(void)
{
    lab_done done = {0, RANDOM_OPS, 0};
    size_t count = (size_t)random_options[0].value;
    char **slots = random_slots;
    uint64_t x = x_of_run;
    size_t i;
    uint64_t start = micro_now_ns();
    for (i = 0; i < 2 * RANDOM_OPS; i++) {
        size_t index;
        x = micro_next(x);
        index = micro_index(x, count);
        if (slots[index] == NULL) {
            size_t size = random_size(x);
            slots[index] = lab_malloc(size);
            micro_mark(slots[index], index, size);
            done.asked += size;
        } else {
            lab_verify(slots[index], index);
            free(slots[index]);
            slots[index] = NULL;
        }
    }
    done.ns = micro_now_ns() - start;
    x_of_run = x;
    return done;
}

static void random_after(void)
{
    size_t count = (size_t)random_options[0].value;
    size_t i;
    lab_live_bytes = 0;
    for (i = 0; i < count; i++)
        if (random_slots[i] != NULL)
            lab_live_bytes += (int64_t)lab_verify(random_slots[i], i);
}

static void random_check(void)
{
    lab_check_blocks(random_slots, (size_t)random_options[0].value, RANDOM_LEAST, RANDOM_MOST);
}

const lab_workload lab_randommixed = {
    .name = "randommixed",
    .suite = "micro",
    .about = "Slots picked at random are filled with blocks of 8 to 4,096 bytes or emptied: a "
             "program with no plan.",
    .repeats = 15,
    .options = random_options,
    .size = random_size,
    .holds = random_holds,
    .setup = random_setup,
    .run = random_run,
    .after = random_after,
    .check = random_check,
};

/* ---- reallocgrowth ---------------------------------------------------------------------------
 * Many buffers grow side by side from 16 bytes on: by half (vectors of some languages), by a fixed
 * step (a file read piece by piece), or to the double (vectors of others). Whether a block can grow
 * where it stands decides between nothing and a copy. Each page gained is written, and the byte
 * that was last must survive. One operation is one realloc. */
enum { GROW_START = 16, GROW_MAX_BUFFERS = 4096 };
enum growth { GROW_HALF, GROW_STEP, GROW_DOUBLE };

static const char *const growth_words[] = {"half", "step", "double", NULL};
static lab_option growth_options[] = {
    {.name = "growth", .words = growth_words, .standard = GROW_HALF, .meaning = "how they grow"},
    {.name = "buffers",
     .standard = 16,
     .least = 1,
     .most = GROW_MAX_BUFFERS,
     .meaning = "how many grow side by side"},
    {.name = "most",
     .standard = 1 << 20,
     .least = 64,
     .most = 1 << 30,
     .meaning = "bytes that each grows to"},
    {.name = "step",
     .standard = 8 << 10,
     .least = 1,
     .most = 1 << 30,
     .meaning = "bytes of a fixed step"},
    {0},
};
enum { OPTION_GROWTH, OPTION_BUFFERS, OPTION_MOST, OPTION_STEP };
static const char *const growth_params[] = {"growth=half", "growth=step", "growth=double", NULL};
static char *grow_buffers[GROW_MAX_BUFFERS];

static const char *growth_problem(void)
{
    int64_t most = growth_options[OPTION_MOST].value;
    if (growth_options[OPTION_BUFFERS].value * most > INT64_C(8) << 30)
        return "--buffers times --most is more than 8 GiB";
    if (growth_options[OPTION_GROWTH].value == GROW_STEP &&
        most / growth_options[OPTION_STEP].value > 100000)
        return "--step is so small that a buffer would take more than 100,000 steps";
    return NULL;
}

static size_t grown(size_t size)
{
    size_t most = (size_t)growth_options[OPTION_MOST].value;
    size_t next = size * 2;
    if (growth_options[OPTION_GROWTH].value == GROW_HALF)
        next = size + size / 2;
    if (growth_options[OPTION_GROWTH].value == GROW_STEP)
        next = size + (size_t)growth_options[OPTION_STEP].value;
    return next < most ? next : most;
}

/* Sizes on the way, each as often as another. */
static size_t growth_size(uint64_t x)
{
    size_t most = (size_t)growth_options[OPTION_MOST].value;
    size_t size = most >> micro_index(x, 8);
    return size < GROW_START ? GROW_START : size;
}

static size_t growth_holds(void)
{
    return (size_t)(growth_options[OPTION_BUFFERS].value * growth_options[OPTION_MOST].value);
}

static void grow_one(size_t i, size_t size, size_t next)
{
    char *block = realloc(grow_buffers[i], next);
    size_t at;
    if (block == NULL)
        micro_fail("realloc returned NULL");
    if (block[size - 1] != (char)~i)
        micro_fail("self-check: realloc lost the end of a buffer");
    for (at = (size + MICRO_PAGE) & ~(size_t)(MICRO_PAGE - 1); at < next; at += MICRO_PAGE)
        block[at] = 1;
    block[next - 1] = (char)~i;
    grow_buffers[i] = block;
}

static lab_done growth_run(void)
{
    lab_done done = {0, 0, 0};
    size_t buffers = (size_t)growth_options[OPTION_BUFFERS].value;
    size_t most = (size_t)growth_options[OPTION_MOST].value;
    size_t size = GROW_START;
    size_t next, i;
    uint64_t start = micro_now_ns();
    for (i = 0; i < buffers; i++) {
        grow_buffers[i] = lab_malloc(GROW_START);
        micro_mark(grow_buffers[i], i, GROW_START);
        grow_buffers[i][GROW_START - 1] = (char)~i;
        /* What realloc adds is not counted: where a block grows in place, no meter need move. */
        done.asked += GROW_START;
    }
    for (; size < most; size = next) {
        next = grown(size);
        for (i = 0; i < buffers; i++)
            grow_one(i, size, next);
        done.ops += buffers;
    }
    lab_plant_in(grow_buffers[0]);
    for (i = 0; i < buffers; i++) {
        lab_verify(grow_buffers[i], i);
        free(grow_buffers[i]);
    }
    done.ns = micro_now_ns() - start;
    lab_live_bytes = 0;
    return done;
}

const lab_workload lab_reallocgrowth = {
    .name = "reallocgrowth",
    .suite = "micro",
    .about = "Buffers grow side by side by half, by a fixed step or to the double: whether a block "
             "can grow where it stands.",
    .repeats = 15,
    .options = growth_options,
    .params = growth_params,
    .problem = growth_problem,
    .size = growth_size,
    .holds = growth_holds,
    .setup = no_setup,
    .run = growth_run,
};
