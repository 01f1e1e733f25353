/* histogram.c: the timer for single calls, and the counts of what it measures (lab.h). */
#define _GNU_SOURCE
#include "lab.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

/* ---- Timer ----------------------------------------------------------------------------------- */

enum { OVERHEAD_SAMPLES = 4096 };
#define CALIBRATION_NS UINT64_C(20000000)

bool lab_timer_counter;
double lab_timer_ns_per_tick = 1;
double lab_timer_overhead;
static double timer_step; /* least difference between two stretches */

/* A counter that runs at one rate whatever the processor's clock does (bit 8 of the leaf). */
static bool counter_is_invariant(void)
{
#if defined(__x86_64__)
    unsigned a, b, c, d;
    return __get_cpuid(0x80000007, &a, &b, &c, &d) != 0 && (d & 1u << 8) != 0;
#else
    return false;
#endif
}

static void calibrate(void)
{
    uint64_t start_ns = micro_now_ns();
    uint64_t start = lab_tick();
    uint64_t ns, ticks;
    do {
        ticks = lab_tick() - start;
        ns = micro_now_ns() - start_ns;
    } while (ns < CALIBRATION_NS);
    /* A counter that stands still is none. */
    if (ticks == 0)
        lab_timer_counter = false;
    else
        lab_timer_ns_per_tick = (double)ns / (double)ticks;
}

static int compare_ticks(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a;
    uint64_t y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* A counter may move in steps longer than what is measured (on some processors 10 ns), so that only
 * a mean is right. The slowest twentieth is interrupts. */
void lab_timer_measure(void)
{
    static uint64_t ticks[OVERHEAD_SAMPLES];
    enum { COUNTED = OVERHEAD_SAMPLES * 19 / 20 };
    uint64_t sum = 0;
    int i;
    for (i = 0; i < OVERHEAD_SAMPLES; i++) {
        uint64_t start = lab_tick();
        ticks[i] = lab_tick() - start;
    }
    qsort(ticks, OVERHEAD_SAMPLES, sizeof ticks[0], compare_ticks);
    for (i = 0; i < COUNTED; i++) {
        double step = (double)(ticks[i] - ticks[i > 0 ? i - 1 : 0]) * lab_timer_ns_per_tick;
        sum += ticks[i];
        if (step > 0 && (step < timer_step || timer_step == 0))
            timer_step = step;
    }
    lab_timer_overhead = (double)sum / COUNTED * lab_timer_ns_per_tick;
}

void lab_timer_init(void)
{
    lab_timer_counter = counter_is_invariant();
    if (lab_timer_counter)
        calibrate();
    lab_timer_measure();
}

void lab_timer_print(void)
{
    printf(", \"timer\": \"%s\", \"timer_overhead_ns\": %.2f, \"timer_step_ns\": %.2f",
           lab_timer_counter ? "rdtsc" : "clock_gettime", lab_timer_overhead, timer_step);
}

/* ---- Histogram ------------------------------------------------------------------------------- */

lab_histogram lab_latencies;

static const double shares[] = {0.5, 0.9, 0.95, 0.99, 0.999, 0.9999};
static const char *const share_names[] = {"p50", "p90", "p95", "p99", "p999", "p9999"};
enum { SHARES = sizeof shares / sizeof shares[0] };

/* A value keeps its eight upper bits. The first 2 × STEPS cells are the values themselves. */
static size_t cell_of(uint64_t ns)
{
    unsigned shift;
    if (ns < 2 * LAB_HISTOGRAM_STEPS)
        return (size_t)ns;
    if (ns >> LAB_HISTOGRAM_BITS != 0)
        return LAB_HISTOGRAM_CELLS - 1;
    shift = 63u - (unsigned)__builtin_clzll(ns) - 7;
    return (size_t)(shift * LAB_HISTOGRAM_STEPS + (ns >> shift));
}

/* The middle of a cell. */
static uint64_t value_of(size_t cell)
{
    uint64_t shift;
    if (cell < 2 * LAB_HISTOGRAM_STEPS)
        return cell;
    shift = cell / LAB_HISTOGRAM_STEPS - 1;
    return ((cell - shift * LAB_HISTOGRAM_STEPS) << shift) + (UINT64_C(1) << shift) / 2;
}

void lab_histogram_add(lab_histogram *histogram, uint64_t ns)
{
    histogram->counts[cell_of(ns)]++;
    histogram->total++;
    if (ns > histogram->largest)
        histogram->largest = ns;
}

void lab_histogram_merge(lab_histogram *into, const lab_histogram *from)
{
    size_t i;
    for (i = 0; i < LAB_HISTOGRAM_CELLS; i++)
        into->counts[i] += from->counts[i];
    into->total += from->total;
    if (from->largest > into->largest)
        into->largest = from->largest;
}

void lab_histogram_reset(lab_histogram *histogram)
{
    memset(histogram, 0, sizeof *histogram);
}

uint64_t lab_histogram_at(const lab_histogram *histogram, double share)
{
    double wanted = share * (double)histogram->total;
    uint64_t seen = 0;
    size_t i;
    for (i = 0; i < LAB_HISTOGRAM_CELLS; i++) {
        seen += histogram->counts[i];
        if (seen > 0 && (double)seen >= wanted) {
            uint64_t value = value_of(i);
            return value < histogram->largest ? value : histogram->largest;
        }
    }
    return histogram->largest;
}

void lab_histogram_print(const lab_histogram *histogram, const char *before)
{
    int i;
    for (i = 0; i < SHARES; i++)
        printf(", \"%s%s_ns\": %llu", before, share_names[i],
               (unsigned long long)lab_histogram_at(histogram, shares[i]));
    printf(", \"%smax_ns\": %llu", before, (unsigned long long)histogram->largest);
}

void lab_histogram_print_raw(const lab_histogram *histogram)
{
    const char *comma = "";
    size_t i;
    printf(", \"histogram_raw\": [");
    for (i = 0; i < LAB_HISTOGRAM_CELLS; i++) {
        if (histogram->counts[i] == 0)
            continue;
        printf("%s[%llu, %llu]", comma, (unsigned long long)value_of(i),
               (unsigned long long)histogram->counts[i]);
        comma = ", ";
    }
    printf("]");
}
