/* common.c: tables, marks, sets and teams of the lab's workloads (lab.h). */
#define _GNU_SOURCE
#include "lab.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>

int lab_threads = 1;
double lab_seconds = 1;
int lab_repeats = 1;
bool lab_plant;
int64_t lab_live_bytes = -1;
int64_t lab_resident_after_kib = -1;

static size_t table_bytes;

void *lab_map(size_t bytes)
{
    table_bytes += bytes;
    return micro_map(bytes);
}

void lab_unmap(void *memory, size_t bytes)
{
    table_bytes -= bytes;
    munmap(memory, bytes);
}

int64_t lab_tables_kib(void)
{
    return (int64_t)(table_bytes >> 10);
}

_Noreturn void lab_lost(void)
{
    micro_fail("self-check: a block lost its mark before it was freed");
}

void lab_check_blocks(char *const *blocks, size_t count, size_t least, size_t most)
{
    size_t i;
    for (i = 0; i < count && blocks[i] == NULL; i++)
        ;
    if (i < count)
        lab_plant_in(blocks[i]);
    micro_check_blocks(blocks, count, least, most);
}

/* ---- Sets ------------------------------------------------------------------------------------ */

void lab_set_init(lab_set *set, size_t count, uint64_t stream)
{
    set->blocks = lab_map(count * sizeof set->blocks[0]);
    set->count = count;
    set->random = micro_start(stream);
}

void lab_set_fill(lab_set *set, lab_size_fn *size_of)
{
    size_t i;
    for (i = 0; i < set->count; i++) {
        size_t size;
        set->random = micro_next(set->random);
        size = size_of(set->random);
        set->blocks[i] = lab_malloc(size);
        lab_touch(set->blocks[i], i, size);
    }
}

size_t lab_set_bytes(const lab_set *set)
{
    size_t bytes = 0;
    size_t i;
    for (i = 0; i < set->count; i++)
        bytes += lab_verify(set->blocks[i], i);
    return bytes;
}

/* ---- Teams ----------------------------------------------------------------------------------- */

static struct {
    pthread_t threads[LAB_MAX_THREADS];
    pthread_barrier_t begin, end;
    lab_work *work;
    lab_done done[LAB_MAX_THREADS]; /* written between the barriers, once a repeat */
    bool over;                      /* written before `begin`, read after it */
} team;

void lab_thread_start(pthread_t *thread, bool detached, void *(*body)(void *), void *argument)
{
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    if (detached)
        pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    if (pthread_create(thread, &attributes, body, argument) != 0)
        micro_fail("can't start a thread");
    pthread_attr_destroy(&attributes);
}

static void *team_member(void *argument)
{
    int thread = (int)(intptr_t)argument;
    for (;;) {
        pthread_barrier_wait(&team.begin);
        if (team.over)
            return NULL;
        team.done[thread] = team.work(thread);
        pthread_barrier_wait(&team.end);
    }
}

void lab_team_start(lab_work *work)
{
    int i;
    team.work = work;
    pthread_barrier_init(&team.begin, NULL, (unsigned)lab_threads + 1);
    pthread_barrier_init(&team.end, NULL, (unsigned)lab_threads + 1);
    for (i = 0; i < lab_threads; i++)
        lab_thread_start(&team.threads[i], false, team_member, (void *)(intptr_t)i);
}

lab_done lab_team_run(void)
{
    lab_done all = {0, 0, 0};
    uint64_t start = micro_now_ns();
    int i;
    pthread_barrier_wait(&team.begin);
    pthread_barrier_wait(&team.end);
    all.ns = micro_now_ns() - start;
    for (i = 0; i < lab_threads; i++) {
        all.ops += team.done[i].ops;
        all.asked += team.done[i].asked;
    }
    return all;
}

void lab_team_stop(void)
{
    int i;
    team.over = true;
    pthread_barrier_wait(&team.begin);
    for (i = 0; i < lab_threads; i++)
        pthread_join(team.threads[i], NULL);
}
