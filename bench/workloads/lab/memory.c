/* memory.c: what is measured here is memory as much as time. */
#define _GNU_SOURCE
#include "lab.h"

#include <stdio.h>
#include <time.h>

/* ---- fragmentation ---------------------------------------------------------------------------
 * Phases with sizes of their own: each allocates some MiB, after which a random tenth survives to
 * the end. A program that loads, indexes, answers: what is left of each phase holds pages, and the
 * next asks for other sizes. Resident memory against what is live tells how much is lost. A repeat
 * is all phases; the survivors of the last repeat are freed before it. One operation is one malloc,
 * and its free if it has one. */
static const struct {
    size_t least, most;
} phases[] = {{16, 64},      {65, 256}, {257, 1024},    {1025, 4096},
              {4097, 16384}, {24, 512}, {16385, 65536}, {65537, 262144}};
enum { PHASES = sizeof phases / sizeof phases[0], SURVIVE_ONE_IN = 10 };

static lab_option fragmentation_options[] = {
    {.name = "mib", .standard = 16, .least = 1, .most = 4096, .meaning = "MiB a phase allocates"},
    {0},
};

static struct {
    char **blocks[PHASES];
    size_t count[PHASES]; /* allocated in the phase under way, then survived */
    size_t room[PHASES];
    uint64_t random;
} fragments;

/* Every phase asks for the same bytes: small blocks are many. */
static size_t fragment_size(uint64_t x)
{
    size_t phase = micro_index(x, 4);
    return micro_size(x, phases[phase].least, phases[phase].most - phases[phase].least + 1);
}

static size_t phase_bytes(void)
{
    return (size_t)fragmentation_options[0].value << 20;
}

static size_t fragments_hold(void)
{
    return phase_bytes() + phase_bytes() / SURVIVE_ONE_IN * PHASES;
}

static void fragments_setup(void)
{
    int phase;
    fragments.random = micro_start(600);
    for (phase = 0; phase < PHASES; phase++) {
        fragments.room[phase] = phase_bytes() / phases[phase].least + 1;
        fragments.blocks[phase] = lab_map(fragments.room[phase] * sizeof(char *));
    }
}

static void drop_survivors(int phase)
{
    size_t i;
    for (i = 0; i < fragments.count[phase]; i++) {
        lab_verify(fragments.blocks[phase][i], i);
        free(fragments.blocks[phase][i]);
    }
    fragments.count[phase] = 0;
}

/* Frees all but a random tenth, which moves to the front of the table with new marks. */
static void decimate(int phase, size_t allocated)
{
    char **blocks = fragments.blocks[phase];
    size_t kept = 0;
    size_t i;
    for (i = 0; i < allocated; i++) {
        size_t size = lab_verify(blocks[i], i);
        fragments.random = micro_next(fragments.random);
        if (micro_index(fragments.random, SURVIVE_ONE_IN) != 0) {
            free(blocks[i]);
            continue;
        }
        micro_mark(blocks[i], kept, size);
        blocks[kept++] = blocks[i];
    }
    fragments.count[phase] = kept;
}

static void run_phase(int phase, lab_done *done)
{
    size_t least = phases[phase].least;
    size_t span = phases[phase].most - least + 1;
    size_t left = phase_bytes();
    size_t i = 0;
    while (left >= phases[phase].most) {
        size_t size;
        char *block;
        fragments.random = micro_next(fragments.random);
        size = micro_size(fragments.random, least, span);
        block = lab_malloc(size);
        lab_touch(block, i, size);
        fragments.blocks[phase][i++] = block;
        left -= size;
        done->asked += size;
    }
    lab_plant_in(fragments.blocks[phase][0]);
    done->ops += i;
    decimate(phase, i);
}

static lab_done fragments_run(void)
{
    lab_done done = {0, 0, 0};
    uint64_t start = micro_now_ns();
    int phase;
    for (phase = 0; phase < PHASES; phase++)
        drop_survivors(phase);
    for (phase = 0; phase < PHASES; phase++)
        run_phase(phase, &done);
    done.ns = micro_now_ns() - start;
    return done;
}

static void fragments_after(void)
{
    int phase;
    size_t i;
    lab_live_bytes = 0;
    for (phase = 0; phase < PHASES; phase++)
        for (i = 0; i < fragments.count[phase]; i++)
            lab_live_bytes += (int64_t)lab_verify(fragments.blocks[phase][i], i);
}

static void fragments_check(void)
{
    int phase;
    for (phase = 0; phase < PHASES; phase++)
        lab_check_blocks(fragments.blocks[phase], fragments.count[phase], phases[phase].least,
                         phases[phase].most);
}

const lab_workload lab_fragmentation = {
    .name = "fragmentation",
    .suite = "memory",
    .about = "Phases of other sizes each, of which a random tenth survives: how much memory is "
             "held for what is live.",
    .repeats = 5,
    .options = fragmentation_options,
    .size = fragment_size,
    .holds = fragments_hold,
    .setup = fragments_setup,
    .run = fragments_run,
    .after = fragments_after,
    .check = fragments_check,
};

/* ---- largeset --------------------------------------------------------------------------------
 * Half a gigabyte of live blocks of 16 to 4,096 bytes, one replaced after the other at random: a
 * database's cache, an index in memory. No cache of the processor holds it, nor the first level of
 * its address translation: where blocks and what the allocator knows of them lie is all that
 * counts. */
enum { SET_LEAST = 16, SET_MOST = 4096, SET_OPS = 100000 };

static lab_option set_options[] = {
    {.name = "mib", .standard = 512, .least = 1, .most = 1 << 16, .meaning = "MiB live"},
    {0},
};
static lab_set large;

static size_t set_size(uint64_t x)
{
    return micro_size(x, SET_LEAST, SET_MOST - SET_LEAST + 1);
}

static size_t set_holds(void)
{
    return (size_t)set_options[0].value << 20;
}

static void set_setup(void)
{
    lab_set_init(&large, set_holds() / ((SET_LEAST + SET_MOST) / 2), 610);
    lab_set_fill(&large, set_size);
}

static lab_done set_run(void)
{
    uint64_t start = micro_now_ns();
    lab_done done = lab_set_replace(&large, &large.random, SET_OPS, set_size, false);
    done.ns = micro_now_ns() - start;
    return done;
}

static void set_after(void)
{
    lab_live_bytes = (int64_t)lab_set_bytes(&large);
}

static void set_check(void)
{
    lab_check_blocks(large.blocks, large.count, SET_LEAST, SET_MOST);
}

const lab_workload lab_largeset = {
    .name = "largeset",
    .suite = "memory",
    .about = "Half a gigabyte of live blocks, replaced at random: an index in memory.",
    .repeats = 10,
    .options = set_options,
    .size = set_size,
    .holds = set_holds,
    .setup = set_setup,
    .run = set_run,
    .after = set_after,
    .check = set_check,
};

/* ---- burstidle -------------------------------------------------------------------------------
 * Half a gigabyte is allocated, written and freed, and then the program waits, as a server does
 * after a peak or an editor after a build. Nothing calls the allocator any more: memory that it
 * keeps now is kept from everyone else. Resident memory is sampled each 100 ms. */
enum { BURST_LEAST = 16, BURST_MOST = 16 << 10, SAMPLE_MS = 100, MOST_SAMPLES = 200 };

static lab_option burst_options[] = {
    {.name = "mib", .standard = 512, .least = 1, .most = 1 << 16, .meaning = "MiB of the burst"},
    {0},
};

static struct {
    char **blocks;
    uint64_t random;
    int samples;
    int64_t at_ms[MOST_SAMPLES], kib[MOST_SAMPLES];
} burst;

static size_t burst_size(uint64_t x)
{
    return micro_size(x, BURST_LEAST, BURST_MOST - BURST_LEAST + 1);
}

static size_t burst_holds(void)
{
    return (size_t)burst_options[0].value << 20;
}

/* The mean is twice this: room enough, and the burst ends there at the latest. */
static size_t burst_room(void)
{
    return burst_holds() / (BURST_MOST / 4);
}

static void burst_setup(void)
{
    burst.random = micro_start(620);
    burst.blocks = lab_map(burst_room() * sizeof burst.blocks[0]);
}

static lab_done burst_run(void)
{
    lab_done done = {0, 0, 0};
    size_t i;
    uint64_t start = micro_now_ns();
    while (done.asked < burst_holds() && done.ops < burst_room()) {
        size_t size;
        burst.random = micro_next(burst.random);
        size = burst_size(burst.random);
        burst.blocks[done.ops] = lab_malloc(size);
        lab_touch(burst.blocks[done.ops], done.ops, size);
        done.ops++;
        done.asked += size;
    }
    lab_plant_in(burst.blocks[0]);
    for (i = 0; i < done.ops; i++) {
        lab_verify(burst.blocks[i], i);
        free(burst.blocks[i]);
    }
    done.ns = micro_now_ns() - start;
    return done;
}

static void wait_until(uint64_t when_ns)
{
    struct timespec when = {(time_t)(when_ns / 1000000000), (long)(when_ns % 1000000000)};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &when, NULL) != 0)
        ;
}

/* The table of the burst goes first, so that it isn't counted. */
static void burst_idle(void)
{
    uint64_t whole = (uint64_t)(lab_seconds * 1e9);
    uint64_t step = (uint64_t)SAMPLE_MS * 1000000;
    uint64_t start, at;
    lab_unmap(burst.blocks, burst_room() * sizeof burst.blocks[0]);
    if (whole / step >= MOST_SAMPLES)
        step = whole / (MOST_SAMPLES - 1);
    start = micro_now_ns();
    for (at = 0; at <= whole && burst.samples < MOST_SAMPLES; at += step) {
        wait_until(start + at);
        burst.at_ms[burst.samples] = (int64_t)((micro_now_ns() - start) / 1000000);
        burst.kib[burst.samples] = lab_resident_quick_kib();
        burst.samples++;
    }
    lab_resident_after_kib = burst.kib[burst.samples - 1];
    lab_live_bytes = 0;
}

static void burst_print(void)
{
    int64_t sum = 0;
    int i;
    printf(", \"series\": [");
    for (i = 0; i < burst.samples; i++) {
        printf("%s[%lld, %lld]", i == 0 ? "" : ", ", (long long)burst.at_ms[i],
               (long long)burst.kib[i]);
        sum += burst.kib[i];
    }
    printf("], \"mean_resident_kib\": %lld", (long long)(sum / burst.samples));
}

const lab_workload lab_burstidle = {
    .name = "burstidle",
    .suite = "memory",
    .about = "Half a gigabyte allocated, written and freed, then nothing: how soon memory goes "
             "back to the system.",
    .flags = LAB_LASTING | LAB_COLD,
    .repeats = 1,
    .seconds = 5,
    .options = burst_options,
    .size = burst_size,
    .holds = burst_holds,
    .setup = burst_setup,
    .run = burst_run,
    .after = burst_idle,
    .print = burst_print,
};
