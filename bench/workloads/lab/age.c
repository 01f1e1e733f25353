/* age.c: a heap that has been in use before the workload begins.
 *
 * In a fresh heap blocks lie in order of allocation, which flatters whatever walks through them and
 * whatever the allocator does with whole pages. Littering, an idea of N. van Kempen and E. Berger,
 * takes that away: objects of the workload's own sizes are allocated, many more than it will hold,
 * shuffled, and most of them freed. The workload then runs in the holes. What is left stays to the
 * end, and is checked there.
 */
#include "lab.h"

#include <stdlib.h>

enum { AGE_TIMES = 20, AGE_SAMPLES = 1024, AGE_LEAST_BYTES = 1 << 20, AGE_MOST_BYTES = 64 << 20 };

static char **litter;
static size_t litter_count; /* left, litter[0..litter_count) */
static size_t litter_largest;

/* How many objects: enough for AGE_TIMES what the workload holds, within bounds. */
static size_t objects(const lab_workload *workload)
{
    size_t held = workload->holds();
    size_t bytes = held > AGE_MOST_BYTES / AGE_TIMES ? AGE_MOST_BYTES : held * AGE_TIMES;
    uint64_t x = micro_start(900);
    size_t sampled = 0;
    int i;
    if (bytes < AGE_LEAST_BYTES)
        bytes = AGE_LEAST_BYTES;
    for (i = 0; i < AGE_SAMPLES; i++) {
        x = micro_next(x);
        sampled += workload->size(x);
    }
    return bytes / (sampled / AGE_SAMPLES) + 1;
}

static void shuffle(char **blocks, size_t count, uint64_t x)
{
    size_t i;
    for (i = count; i > 1; i--) {
        char *held = blocks[i - 1];
        size_t other;
        x = micro_next(x);
        other = micro_index(x, i);
        blocks[i - 1] = blocks[other];
        blocks[other] = held;
    }
}

uint64_t lab_age(const lab_workload *workload, double freed)
{
    size_t count = objects(workload);
    char **blocks = lab_map(count * sizeof blocks[0]);
    uint64_t x = micro_start(901);
    uint64_t asked = 0;
    size_t i;
    for (i = 0; i < count; i++) {
        size_t size;
        x = micro_next(x);
        size = workload->size(x);
        blocks[i] = lab_malloc(size);
        lab_touch(blocks[i], i, size);
        asked += size;
        if (size > litter_largest)
            litter_largest = size;
    }
    shuffle(blocks, count, x);
    litter_count = count - (size_t)(freed * (double)count);
    for (i = litter_count; i < count; i++)
        free(blocks[i]);
    /* The table goes too, but for what is left. */
    litter = lab_map((litter_count + 1) * sizeof litter[0]);
    for (i = 0; i < litter_count; i++) {
        size_t size = *(uint64_t *)(void *)blocks[i] & 0xffffffff;
        litter[i] = blocks[i];
        micro_mark(litter[i], i, size);
    }
    lab_unmap(blocks, count * sizeof blocks[0]);
    return asked;
}

void lab_age_check(void)
{
    micro_check_blocks(litter, litter_count, 8, litter_largest);
}
