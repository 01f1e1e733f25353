/* Every knob is read by the code that it governs: for each, the same work under two settings, and a
 * figure that must differ in the direction that the knob's text says.
 *
 * The work is done in a process of its own, so that every measurement begins with the same heap:
 * forked, with the policy published there; or executed anew with HAKMEM_* set, for the knobs that are
 * read once, by the constructor.
 */
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>
#include <hakmem/hakmem.h>

#include "heap/bin.h"
#include "heap/central.h"
#include "heap/heap.h"
#include "heap/large.h"
#include "policy/policy.h"

/* Through these no compiler removes a pair of calls. */
static void *(*volatile take)(size_t) = hak_malloc;
static void (*volatile give)(void *) = hak_free;

#define KIB(n) ((size_t)(n) << 10)
#define MIB(n) ((size_t)(n) << 20)
#define BLOCKS_MAX 8192u

/* Ends a hanging measurement, and with it the test. */
#define ALARM_SECONDS 60u

static void *blocks[BLOCKS_MAX];

static void take_blocks(unsigned count, size_t size)
{
    for (unsigned i = 0; i < count; i++)
        blocks[i] = take(size);
}

static void give_blocks(unsigned count)
{
    for (unsigned i = 0; i < count; i++)
        give(blocks[i]);
}

static hak_heap *my_heap(void)
{
    return hak_heap_mine(hak_heap_tls);
}

static hak_bin_back *my_bin(size_t size)
{
    return &my_heap()->back[hak_class_of(size)];
}

static hak_stats_data stats_now(void)
{
    hak_stats_data stats;
    if (hak_stats(&stats, sizeof stats) != 0)
        _exit(3);
    return stats;
}

static void set_knob(const char *name, const char *value)
{
    hak_policy policy;
    if (hak_policy_read(&policy) != 0 || hak_policy_set(&policy, name, value) != 0 ||
        hak_policy_publish(&policy) != 0)
        _exit(2);
}

/* "name=value name=value". */
static void set_knobs(const char *settings)
{
    char text[256];
    char *rest = text;
    char *one;
    if (strlen(settings) >= sizeof text)
        _exit(2);
    memcpy(text, settings, strlen(settings) + 1);
    while ((one = strtok_r(rest, " ", &rest)) != NULL) {
        char *value = strchr(one, '=');
        *value = '\0';
        set_knob(one, value + 1);
    }
}

/* What `work` returns in a child that has published `settings`. */
static uint64_t measure(const char *settings, uint64_t (*work)(void))
{
    int ends[2];
    uint64_t figure = 0;
    int status = 0;
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        alarm(ALARM_SECONDS);
        set_knobs(settings);
        figure = work();
        _exit(write(ends[1], &figure, sizeof figure) == (ssize_t)sizeof figure ? 0 : 4);
    }
    close(ends[1]);
    ssize_t got = read(ends[0], &figure, sizeof figure);
    close(ends[0]);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(got, sizeof figure);
    return figure;
}

/* ---- Bins */

static uint64_t spills_of_tiny(void)
{
    take_blocks(8000, 16);
    give_blocks(8000);
    return my_bin(16)->spills;
}

static uint64_t spills_of_1k(void)
{
    take_blocks(4000, 1024);
    give_blocks(4000);
    return my_bin(1024)->spills;
}

/* Freed by a thread that goes on allocating, though other sizes. */
static uint64_t spills_of_tiny_in_use(void)
{
    take_blocks(8000, 16);
    for (unsigned i = 0; i < 8000; i++) {
        give(blocks[i]);
        give(take(64));
    }
    return my_bin(16)->spills;
}

static uint64_t refills_of_tiny(void)
{
    take_blocks(8000, 16);
    return my_bin(16)->refills;
}

static uint64_t blocks_of_first_refill(void)
{
    take_blocks(1, 16);
    return my_bin(16)->refill_blocks;
}

static void bin_bytes(void **state)
{
    (void)state;
    uint64_t small = measure("bin_bytes=32k", spills_of_1k);
    uint64_t large = measure("bin_bytes=256k", spills_of_1k);
    assert_in_range(large, 1, small / 4);
}

static uint64_t bytes_of_caps(void)
{
    for (unsigned size = 256; size <= 1024; size += 32) {
        take_blocks(400, size);
        give_blocks(400);
    }
    return my_heap()->cap_bytes;
}

static void thread_bytes(void **state)
{
    (void)state;
    uint64_t little = measure("thread_bytes=64k", bytes_of_caps);
    uint64_t much = measure("thread_bytes=4m", bytes_of_caps);
    assert_in_range(little, KIB(32), much / 3);
}

static void bin_blocks(void **state)
{
    (void)state;
    uint64_t few = measure("bin_blocks=16 bin_start=16", spills_of_tiny);
    uint64_t many = measure("bin_blocks=2048 bin_start=16", spills_of_tiny);
    assert_in_range(many, 1, few / 16);
}

static void bin_start(void **state)
{
    (void)state;
    assert_int_equal(measure("bin_start=4", blocks_of_first_refill), 4);
    assert_in_range(measure("bin_start=64", blocks_of_first_refill), 5, 64);
}

static void refill_percent(void **state)
{
    (void)state;
    uint64_t little = measure("refill_percent=1", refills_of_tiny);
    uint64_t much = measure("refill_percent=100", refills_of_tiny);
    assert_in_range(much, 1, little / 4);
}

static void spill_percent(void **state)
{
    (void)state;
    uint64_t little = measure("spill_percent=1", spills_of_tiny_in_use);
    uint64_t much = measure("spill_percent=100", spills_of_tiny_in_use);
    assert_in_range(much, 1, little / 8);
}

static uint64_t heartbeats_in_8m(void)
{
    /* The interval that runs was begun under the policy before. */
    for (unsigned i = 0; i < 4096; i++)
        give(take(1024));
    uint64_t before = stats_now().heartbeats;
    for (unsigned i = 0; i < 8192; i++)
        give(take(1024));
    return stats_now().heartbeats - before;
}

static void heartbeat_bytes(void **state)
{
    (void)state;
    uint64_t often = measure("heartbeat_bytes=16k", heartbeats_in_8m);
    uint64_t seldom = measure("heartbeat_bytes=1m", heartbeats_in_8m);
    assert_in_range(often, 8192 / 16 / 2, 8192 / 16 * 2);
    assert_in_range(seldom, 8 / 2, 8 * 2);
}

static void *take_in_thread(void *size)
{
    take_blocks(400, *(const size_t *)size);
    return NULL;
}

static uint64_t posted_of_400(void)
{
    size_t size = 64;
    pthread_t thread;
    /* First a heap of its own, so as not to take over that of the thread. */
    give(take(size));
    if (pthread_create(&thread, NULL, take_in_thread, &size) != 0)
        return UINT64_MAX;
    pthread_join(thread, NULL);
    give_blocks(400); /* fewer than a bin holds */
    return stats_now().remote_posted;
}

static void out_bytes(void **state)
{
    (void)state;
    assert_int_equal(measure("out_bytes=1m exchange_bytes=0", posted_of_400), 0);
    assert_in_range(measure("out_bytes=0 exchange_bytes=0", posted_of_400), 300, 400);
}

static void exchange_bytes(void **state)
{
    (void)state;
    assert_in_range(measure("exchange_bytes=8k out_bytes=0", posted_of_400), 200, 300);
    assert_int_equal(measure("exchange_bytes=64k out_bytes=0", posted_of_400), 0);
}

static uint64_t slab_bytes_after_all_is_freed(void)
{
    take_blocks(4000, 1024);
    give_blocks(4000);
    hak_heap_empty(my_heap());
    return stats_now().slab_bytes;
}

static void empty_slabs(void **state)
{
    (void)state;
    uint64_t none = measure("empty_slabs=0", slab_bytes_after_all_is_freed);
    uint64_t some = measure("empty_slabs=16", slab_bytes_after_all_is_freed);
    assert_in_range(some - none, MIB(1), MIB(4));
}

/* ---- Spans */

static uint64_t large_kept_by_the_heap(void)
{
    /* Enough for a heartbeat, at which a heap takes the knobs in. */
    take_blocks(16, 100000);
    give_blocks(16);
    return my_heap()->large_bytes;
}

static void large_slot_bytes(void **state)
{
    (void)state;
    assert_int_equal(measure("large_slot_bytes=0", large_kept_by_the_heap), 0);
    assert_in_range(measure("large_slot_bytes=1m", large_kept_by_the_heap), 100000, MIB(1));
}

static uint64_t larger_span_is_reused(void)
{
    give(take(200000));
    uint64_t before = stats_now().tier[HAK_TIER_LARGE].cache_hits;
    take_blocks(1, 120000);
    return stats_now().tier[HAK_TIER_LARGE].cache_hits - before;
}

static void large_waste(void **state)
{
    (void)state;
    assert_int_equal(measure("large_waste=12", larger_span_is_reused), 0);
    assert_int_equal(measure("large_waste=100", larger_span_is_reused), 1);
}

static uint64_t large_in_the_stock(void)
{
    hak_large_stats large;
    take_blocks(16, 500000);
    give_blocks(8);
    hak_large_stats_read(&large);
    return large.stock_bytes;
}

static void large_stock_bytes(void **state)
{
    (void)state;
    assert_int_equal(measure("large_slot_bytes=0 large_stock_bytes=0", large_in_the_stock), 0);
    uint64_t some = measure("large_slot_bytes=0 large_stock_bytes=2m", large_in_the_stock);
    uint64_t all = measure("large_slot_bytes=0 large_stock_bytes=64m", large_in_the_stock);
    assert_in_range(some, 500000, MIB(2));
    assert_in_range(all, 8 * 500000, 10 * 500000);
}

/* ---- Big mappings */

static uint64_t big_requests_of_300k(void)
{
    uint64_t before = stats_now().tier[HAK_TIER_BIG].requests;
    take_blocks(5, 300000);
    return stats_now().tier[HAK_TIER_BIG].requests - before;
}

static void big_threshold(void **state)
{
    (void)state;
    assert_int_equal(measure("big_threshold=2m", big_requests_of_300k), 0);
    assert_int_equal(measure("big_threshold=256k", big_requests_of_300k), 5);
}

static uint64_t bigcache_after_frees(void)
{
    take_blocks(4, MIB(3));
    give_blocks(4);
    return stats_now().bigcache_bytes;
}

static void bigcache_bytes(void **state)
{
    (void)state;
    assert_int_equal(measure("bigcache_bytes=0", bigcache_after_frees), 0);
    assert_in_range(measure("bigcache_bytes=8m", bigcache_after_frees), MIB(3), MIB(8));
    assert_int_equal(measure("bigcache_bytes=64m", bigcache_after_frees), MIB(12));
}

static uint64_t size_from_a_kept_mapping_slightly_larger(void)
{
    give(take(MIB(3) + KIB(32)));
    return hak_usable_size(take(MIB(3)));
}

static void big_waste(void **state)
{
    (void)state;
    assert_int_equal(measure("big_waste=0", size_from_a_kept_mapping_slightly_larger), MIB(3));
    assert_int_equal(measure("big_waste=25", size_from_a_kept_mapping_slightly_larger),
                     MIB(3) + KIB(32));
}

/* ---- Purging */

#define NO_STOCK "large_slot_bytes=0 large_stock_bytes=0 bigcache_bytes=0 "

static void make_dirty_spans(void)
{
    take_blocks(32, MIB(1));
    for (unsigned i = 0; i < 32; i++)
        memset(blocks[i], 1, MIB(1));
    give_blocks(32);
}

static uint64_t purged_after_frees(void)
{
    uint64_t before = stats_now().purged_bytes;
    make_dirty_spans();
    return stats_now().purged_bytes - before;
}

static void purge_delay(void **state)
{
    (void)state;
    assert_in_range(measure(NO_STOCK "retain_bytes=0 purge_delay=0", purged_after_frees), MIB(16),
                    MIB(40));
    assert_int_equal(measure(NO_STOCK "retain_bytes=0 purge_delay=3600000", purged_after_frees), 0);
}

static void retain_bytes(void **state)
{
    (void)state;
    assert_int_equal(measure(NO_STOCK "purge_delay=0 retain_bytes=1g", purged_after_frees), 0);
    assert_in_range(measure(NO_STOCK "purge_delay=0 retain_bytes=24m", purged_after_frees), MIB(4),
                    MIB(12));
}

/* Much is owed at once: one more free pays a batch of it. */
static uint64_t purged_by_one_free(void)
{
    void *one = take(KIB(600));
    make_dirty_spans();
    uint64_t before = stats_now().purged_bytes;
    set_knob("retain_bytes", "0");
    give(one);
    return stats_now().purged_bytes - before;
}

static void purge_batch(void **state)
{
    (void)state;
    /* The purge goes by whole superslabs. */
    assert_in_range(
        measure(NO_STOCK "purge_delay=0 retain_bytes=1g purge_batch=4k", purged_by_one_free),
        KIB(4), MIB(2));
    assert_in_range(
        measure(NO_STOCK "purge_delay=0 retain_bytes=1g purge_batch=1g", purged_by_one_free),
        MIB(24), MIB(40));
}

/* ---- Huge pages */

/* Whether the kernel was asked for huge pages at `address` ("hg" among the flags of its mapping). */
static bool asked_for_huge(const void *address)
{
    static char line[1024];
    bool inside = false;
    bool huge = false;
    FILE *maps = fopen("/proc/self/smaps", "re");
    if (maps == NULL)
        return false;
    while (fgets(line, sizeof line, maps) != NULL) {
        unsigned long start;
        unsigned long end;
        if (sscanf(line, "%lx-%lx ", &start, &end) == 2)
            inside = (uintptr_t)address >= start && (uintptr_t)address < end;
        else if (inside && strncmp(line, "VmFlags:", 8) == 0)
            huge = strstr(line, " hg") != NULL;
    }
    fclose(maps);
    return huge;
}

static bool huge_pages_can_be_asked_for(void)
{
    return access("/sys/kernel/mm/transparent_hugepage/enabled", R_OK) == 0 &&
           access("/proc/self/smaps", R_OK) == 0;
}

/* In a superslab that is taken under the policy of now. */
static uint64_t spans_are_huge(void)
{
    take_blocks(8, MIB(1) + KIB(512));
    return asked_for_huge(blocks[7]);
}

static uint64_t big_mappings_are_huge(void)
{
    return asked_for_huge(take(MIB(8)));
}

static void thp(void **state)
{
    (void)state;
    if (!huge_pages_can_be_asked_for())
        skip();
    assert_int_equal(measure("thp=0", spans_are_huge), 0);
    assert_int_equal(measure("thp=2", spans_are_huge), 1);
    assert_int_equal(measure("thp=1", big_mappings_are_huge), 0);
    assert_int_equal(measure("thp=2", big_mappings_are_huge), 1);
}

static uint64_t slabs_are_huge_after_8m(void)
{
    take_blocks(8192, 1024);
    return asked_for_huge(blocks[8191]);
}

static void huge_gate(void **state)
{
    (void)state;
    if (!huge_pages_can_be_asked_for())
        skip();
    assert_int_equal(measure("thp=1 huge_gate=64m", slabs_are_huge_after_8m), 0);
    assert_int_equal(measure("thp=1 huge_gate=2m", slabs_are_huge_after_8m), 1);
    assert_int_equal(measure("thp=0 huge_gate=2m", slabs_are_huge_after_8m), 0);
}

/* ---- What the constructor reads */

#define REPORT_BYTES KIB(256)
static char report[REPORT_BYTES];

/* Runs this program once more with `variables` set, as "as_told" below. What it writes on stderr
 * stands in `report`. Returns what waitpid says of it. */
static int run_with(const char *const variables[])
{
    int ends[2];
    int status = 0;
    size_t length = 0;
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        dup2(ends[1], STDERR_FILENO);
        close(ends[0]);
        close(ends[1]);
        for (size_t i = 0; variables[i] != NULL; i += 2)
            setenv(variables[i], variables[i + 1], 1);
        execl("/proc/self/exe", "test_knobs", "as_told", (char *)NULL);
        _exit(5);
    }
    close(ends[1]);
    for (;;) {
        ssize_t got = read(ends[0], report + length, sizeof report - 1 - length);
        if (got <= 0)
            break;
        length += (size_t)got;
    }
    close(ends[0]);
    report[length] = '\0';
    assert_int_equal(waitpid(child, &status, 0), child);
    return status;
}

static int as_told(void)
{
    struct rlimit no_core = {0, 0};
    alarm(ALARM_SECONDS);
    setrlimit(RLIMIT_CORE, &no_core);
    take_blocks(1000, 64);
    give_blocks(1000);
    if (getenv("RAISE") != NULL)
        raise(SIGUSR2);
    return 0;
}

static void stats(void **state)
{
    (void)state;
    assert_int_equal(run_with((const char *const[]){"HAKMEM_STATS", "0", NULL}), 0);
    assert_null(strstr(report, "hakmem"));
    assert_int_equal(run_with((const char *const[]){"HAKMEM_STATS", "1", NULL}), 0);
    assert_non_null(strstr(report, "hakmem"));
    assert_null(strstr(report, "self-profile"));
}

static void prof(void **state)
{
    (void)state;
    assert_int_equal(run_with((const char *const[]){"HAKMEM_PROF", "0", NULL}), 0);
    assert_null(strstr(report, "self-profile"));
    assert_int_equal(run_with((const char *const[]){"HAKMEM_PROF", "1", NULL}), 0);
    assert_non_null(strstr(report, "self-profile"));
}

/* Lines of a dump that tell of an event. */
static unsigned refills_reported(void)
{
    unsigned count = 0;
    for (const char *at = report; (at = strstr(at, " refill ")) != NULL; at++)
        count++;
    return count;
}

static void trace_ring(void **state)
{
    (void)state;
    static const char *const none[] = {
        "HAKMEM_TRACE_RING", "0", "HAKMEM_TRACE_SIGNAL", "1", "HAKMEM_LOG", "error", NULL};
    static const char *const four[] = {
        "HAKMEM_TRACE_RING", "4", "HAKMEM_TRACE_SIGNAL", "1", "RAISE", "1", NULL};
    static const char *const many[] = {
        "HAKMEM_TRACE_RING", "4096", "HAKMEM_TRACE_SIGNAL", "1", "RAISE", "1", NULL};
    assert_int_equal(run_with(none), 0);
    assert_int_equal(refills_reported(), 0);
    assert_int_equal(run_with(four), 0);
    size_t little = strlen(report);
    assert_true(little > 0);
    assert_int_equal(run_with(many), 0);
    assert_true(refills_reported() > 4);
    assert_true(strlen(report) > 2 * little);
}

static void trace_signal(void **state)
{
    (void)state;
    static const char *const off[] = {
        "HAKMEM_TRACE_RING", "64", "HAKMEM_TRACE_SIGNAL", "0", "RAISE", "1", NULL};
    static const char *const on[] = {
        "HAKMEM_TRACE_RING", "64", "HAKMEM_TRACE_SIGNAL", "1", "RAISE", "1", NULL};
    int status = run_with(off);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGUSR2);
    assert_int_equal(strlen(report), 0);
    assert_int_equal(run_with(on), 0);
    assert_true(strlen(report) > 0);
}

/* ---- The table */

#define TEST_OF(ID, name) [HAK_KNOB_##ID] = {#name, name, NULL, NULL, NULL}

static const struct CMUnitTest tests[HAK_KNOB_COUNT] = {
    TEST_OF(BIN_BYTES, bin_bytes),
    TEST_OF(BIN_BLOCKS, bin_blocks),
    TEST_OF(BIN_START, bin_start),
    TEST_OF(REFILL_PERCENT, refill_percent),
    TEST_OF(SPILL_PERCENT, spill_percent),
    TEST_OF(HEARTBEAT_BYTES, heartbeat_bytes),
    TEST_OF(OUT_BYTES, out_bytes),
    TEST_OF(EXCHANGE_BYTES, exchange_bytes),
    TEST_OF(THREAD_BYTES, thread_bytes),
    TEST_OF(EMPTY_SLABS, empty_slabs),
    TEST_OF(LARGE_SLOT_BYTES, large_slot_bytes),
    TEST_OF(LARGE_WASTE, large_waste),
    TEST_OF(LARGE_STOCK_BYTES, large_stock_bytes),
    TEST_OF(BIG_THRESHOLD, big_threshold),
    TEST_OF(BIGCACHE_BYTES, bigcache_bytes),
    TEST_OF(BIG_WASTE, big_waste),
    TEST_OF(PURGE_DELAY, purge_delay),
    TEST_OF(PURGE_BATCH, purge_batch),
    TEST_OF(RETAIN_BYTES, retain_bytes),
    TEST_OF(THP, thp),
    TEST_OF(HUGE_GATE, huge_gate),
    TEST_OF(STATS, stats),
    TEST_OF(PROF, prof),
    TEST_OF(TRACE_RING, trace_ring),
    TEST_OF(TRACE_SIGNAL, trace_signal),
};

static void a_knob_has_no_test(void **state)
{
    (void)state;
    unsigned missing = 0;
    for (int i = 0; i < HAK_KNOB_COUNT; i++) {
        if (tests[i].test_func != NULL && strcmp(tests[i].name, hak_policy_name(i)) == 0)
            continue;
        print_error("%s has no test\n", hak_policy_name(i));
        missing++;
    }
    assert_int_equal(missing, 0);
}

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "as_told") == 0)
        return as_told();
    struct CMUnitTest all[HAK_KNOB_COUNT + 1];
    size_t count = 0;
    for (size_t i = 0; i < HAK_KNOB_COUNT; i++)
        if (tests[i].test_func != NULL)
            all[count++] = tests[i];
    all[count++] = (struct CMUnitTest)cmocka_unit_test(a_knob_has_no_test);
    return _cmocka_run_group_tests("knobs", all, count, NULL, NULL);
}
