/* scenarios.c: buffers of three programs, and of all three in one process. Each malloc and free is
 * timed on its own, so that what counts for the user of such a program is seen: not only the mean,
 * but the calls that enter the kernel. The time of a repeat holds the first touch of each page too,
 * since the page faults there are the allocator's doing. */
#include "lab.h"

/* The blocks of one program. Marks are slots of the table. */
enum { SLOTS = 128 };

typedef struct program {
    size_t size;
    char *blocks[SLOTS];
    uint64_t random;
} program;

static lab_done done;

static void take(program *p, size_t slot)
{
    uint64_t start = lab_tick();
    char *block = lab_malloc(p->size);
    uint64_t end = lab_tick();
    lab_histogram_add(&lab_latencies, lab_ticks_ns(end - start));
    lab_touch(block, slot, p->size);
    p->blocks[slot] = block;
    done.ops++;
    done.asked += p->size;
}

static void give(program *p, size_t slot)
{
    char *block = p->blocks[slot];
    uint64_t start, end;
    if (block == NULL)
        return;
    p->blocks[slot] = NULL;
    if (lab_verify(block, slot) != p->size)
        lab_lost();
    start = lab_tick();
    free(block);
    end = lab_tick();
    lab_histogram_add(&lab_latencies, lab_ticks_ns(end - start));
}

static void give_all(program *p)
{
    size_t slot;
    for (slot = 0; slot < SLOTS; slot++)
        give(p, slot);
}

static size_t pick(program *p, size_t count)
{
    p->random = micro_next(p->random);
    return micro_index(p->random, count);
}

/* ---- json ------------------------------------------------------------------------------------
 * A server that parses documents: a buffer of 64 KiB each, 1,000 a round. Sixteen are in work at a
 * time and end in no order. */
enum { JSON_SIZE = 64 << 10, JSON_COUNT = 1000, JSON_LIVE = 16 };

static program json = {.size = JSON_SIZE};

static void json_step(void)
{
    size_t slot = pick(&json, JSON_LIVE);
    give(&json, slot);
    take(&json, slot);
}

/* ---- mir -------------------------------------------------------------------------------------
 * A compiler: 100 arenas of 256 KiB a round for its intermediate form. A function takes ten, one
 * after the other as its passes go, and gives eight back when it is done, last first; two hold its
 * code until the module ends. */
enum { MIR_SIZE = 256 << 10, MIR_COUNT = 100, MIR_FUNCTION = 10, MIR_KEPT = 2 };

static program mir = {.size = MIR_SIZE};

static void mir_step(size_t number)
{
    size_t first = number - number % MIR_FUNCTION;
    size_t slot;
    take(&mir, number);
    if (number % MIR_FUNCTION == MIR_FUNCTION - 1)
        for (slot = number; slot >= first + MIR_KEPT; slot--)
            give(&mir, slot);
}

/* ---- vm --------------------------------------------------------------------------------------
 * A virtual machine with a copying collector: spaces of 2 MiB, ten a round. Three are live; a
 * collection fills a new one and then drops one of the old. */
enum { VM_SIZE = 2 << 20, VM_COUNT = 10, VM_LIVE = 3 };

static program vm = {.size = VM_SIZE};

static void vm_step(size_t number)
{
    take(&vm, number);
    if (number >= VM_LIVE) {
        size_t slot = pick(&vm, number);
        while (vm.blocks[slot] == NULL)
            slot = (slot + 1) % number;
        give(&vm, slot);
    }
}

/* ---- Rounds ---------------------------------------------------------------------------------- */

static void setup(void)
{
    lab_timer_init();
    json.random = micro_start(300);
    mir.random = micro_start(301);
    vm.random = micro_start(302);
}

static void begin(void)
{
    lab_timer_measure();
    done.ops = 0;
    done.asked = 0;
    done.ns = micro_now_ns();
}

static lab_done end(program *p)
{
    size_t slot = 0;
    while (p->blocks[slot] == NULL)
        slot++;
    lab_plant_in(p->blocks[slot]);
    give_all(&json);
    give_all(&mir);
    give_all(&vm);
    done.ns = micro_now_ns() - done.ns;
    lab_live_bytes = 0;
    return done;
}

static lab_done json_run(void)
{
    size_t i;
    begin();
    for (i = 0; i < JSON_COUNT; i++)
        json_step();
    return end(&json);
}

static lab_done mir_run(void)
{
    size_t i;
    begin();
    for (i = 0; i < MIR_COUNT; i++)
        mir_step(i);
    return end(&mir);
}

static lab_done vm_run(void)
{
    size_t i;
    begin();
    for (i = 0; i < VM_COUNT; i++)
        vm_step(i);
    return end(&vm);
}

static lab_done mixed_run(void)
{
    size_t i;
    begin();
    for (i = 0; i < JSON_COUNT; i++) {
        json_step();
        if (i % (JSON_COUNT / MIR_COUNT) == 0)
            mir_step(i / (JSON_COUNT / MIR_COUNT));
        if (i % (JSON_COUNT / VM_COUNT) == 0)
            vm_step(i / (JSON_COUNT / VM_COUNT));
    }
    return end(&json);
}

static size_t json_size(uint64_t x)
{
    (void)x;
    return JSON_SIZE;
}

static size_t mir_size(uint64_t x)
{
    (void)x;
    return MIR_SIZE;
}

static size_t vm_size(uint64_t x)
{
    (void)x;
    return VM_SIZE;
}

/* By how many there are of each. */
static size_t mixed_size(uint64_t x)
{
    size_t at = micro_index(x, JSON_COUNT + MIR_COUNT + VM_COUNT);
    if (at < VM_COUNT)
        return VM_SIZE;
    return at < VM_COUNT + MIR_COUNT ? MIR_SIZE : JSON_SIZE;
}

static size_t json_holds(void)
{
    return JSON_LIVE * JSON_SIZE;
}

static size_t mir_holds(void)
{
    return (MIR_COUNT / MIR_FUNCTION * MIR_KEPT + MIR_FUNCTION) * MIR_SIZE;
}

static size_t vm_holds(void)
{
    return (VM_LIVE + 1) * VM_SIZE;
}

static size_t mixed_holds(void)
{
    return json_holds() + mir_holds() + vm_holds();
}

enum { SCENARIO_REPEATS = 50 };

#define SCENARIO(NAME, ABOUT)                                                                      \
    const lab_workload lab_##NAME = {                                                              \
        .name = #NAME,                                                                             \
        .suite = "scenarios",                                                                      \
        .about = ABOUT,                                                                            \
        .repeats = SCENARIO_REPEATS,                                                               \
        .size = NAME##_size,                                                                       \
        .holds = NAME##_holds,                                                                     \
        .setup = setup,                                                                            \
        .run = NAME##_run,                                                                         \
    }

SCENARIO(json, "A server that parses documents: 1,000 buffers of 64 KiB a round, 16 in work at a "
               "time; each call timed.");
SCENARIO(mir, "A compiler's arenas: 100 of 256 KiB a round, most freed last first with their "
              "function, some kept to the end; each call timed.");
SCENARIO(vm, "A virtual machine with a copying collector: ten spaces of 2 MiB a round, three "
             "live; each call timed.");
SCENARIO(mixed, "json, mir and vm interleaved in one process: 1,000, 100 and 10 buffers a round; "
                "each call timed.");
