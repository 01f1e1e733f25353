/* Statistics, their report and its warnings, the self-profile, the event ring. */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>
#include <hakmem/hakmem.h>

#include "api/entry.h"
#include "heap/size_class.h"
#include "observe/observe.h"
#include "observe/report.h"
#include "observe/ring.h"
#include "policy/policy.h"

/* Through these no compiler removes a pair of calls. */
static void *(*volatile take)(size_t) = hak_malloc;
static void (*volatile give)(void *) = hak_free;

static hak_stats_data stats_now(void)
{
    hak_stats_data stats;
    hak_stats_collect(&stats);
    return stats;
}

/* ---- Statistics */

static void work(size_t size, unsigned times)
{
    for (unsigned i = 0; i < times; i++) {
        void *block = take(size);
        assert_non_null(block);
        give(block);
    }
}

static void served_bytes_are_not_exact(void **state)
{
    (void)state;
    uint64_t before = stats_now().served_bytes;
    work(200, 10001); /* 208: tiny sizes count in steps of 16, the others as asked */
    work(20000, 301);
    work(300000, 17);
    work(3000000, 3);
    uint64_t served = stats_now().served_bytes - before;
    assert_int_equal(served, 208u * 10001 + 20000u * 301 + 300000u * 17 + 3000000u * 3);
}

static void *work_in_thread(void *size)
{
    work(*(size_t *)size, 1000);
    return NULL;
}

static void bytes_of_a_thread_that_ended_are_lost(void **state)
{
    (void)state;
    size_t size = 1024;
    uint64_t before = stats_now().served_bytes;
    for (int i = 0; i < 3; i++) {
        pthread_t thread;
        assert_int_equal(pthread_create(&thread, NULL, work_in_thread, &size), 0);
        pthread_join(thread, NULL);
    }
    uint64_t served = stats_now().served_bytes - before;
    /* What the thread library allocates comes on top. */
    assert_in_range(served, 3 * 1024 * 1000, 3 * 1024 * 1000 + 65536);
}

static void large_and_big_are_miscounted(void **state)
{
    (void)state;
    hak_stats_data before = stats_now();
    work(300000, 17);
    work(3000000, 30);
    hak_stats_data after = stats_now();
    const hak_tier_stats *large = &after.tier[HAK_TIER_LARGE];
    assert_int_equal(large->requests - before.tier[HAK_TIER_LARGE].requests, 17);
    assert_int_equal(large->bytes - before.tier[HAK_TIER_LARGE].bytes, 17 * 300000);
    assert_true(large->cache_hits - before.tier[HAK_TIER_LARGE].cache_hits >= 16);
    const hak_tier_stats *big = &after.tier[HAK_TIER_BIG];
    assert_int_equal(big->requests - before.tier[HAK_TIER_BIG].requests, 30);
    assert_int_equal(big->bytes - before.tier[HAK_TIER_BIG].bytes, 30 * 3000000);
    assert_true(big->cache_hits - before.tier[HAK_TIER_BIG].cache_hits >= 29);
    assert_true(after.bigcache_bytes >= 3000000);
}

/* Tiny and mid together are exact; the share of each is right to within a few heartbeats. */
static void tiers_do_not_add_up(void **state)
{
    (void)state;
    hak_stats_data before = stats_now();
    uint64_t small = 0, random = 1;
    for (unsigned i = 0; i < 106250; i++) {
        random = random * 6364136223846793005u + 1442695040888963407u;
        bool mid = (random >> 33) % 17 == 0; /* as many bytes of one as of the other */
        work(mid ? 8192 : 512, 1);
        small += mid ? 8192 : 512;
    }
    hak_stats_data after = stats_now();
    uint64_t tier[HAK_TIER_COUNT], all = 0;
    for (unsigned t = 0; t < HAK_TIER_COUNT; t++) {
        tier[t] = after.tier[t].bytes - before.tier[t].bytes;
        all += after.tier[t].bytes;
    }
    assert_in_range(after.served_bytes - all, 0, HAK_CLASS_COUNT);
    assert_in_range(tier[HAK_TIER_TINY] + tier[HAK_TIER_MID], small - HAK_CLASS_COUNT,
                    small + HAK_CLASS_COUNT);
    assert_in_range(tier[HAK_TIER_TINY], small / 3, small / 3 * 2);
}

static void estimates_ignore_what_heartbeats_saw(void **state)
{
    (void)state;
    static hak_class_stats class[HAK_CLASS_COUNT];
    memset(class, 0, sizeof class);
    class[2] = (hak_class_stats){.block_bytes = 32, .refill_blocks = 500, .sampled_bytes = 3000};
    class[65] = (hak_class_stats){.block_bytes = 1152, .refill_blocks = 1, .sampled_bytes = 1000};

    hak_stats_data stats = {.heartbeats = HAK_ESTIMATE_BEATS};
    hak_report_estimate(&stats, class, 8000);
    assert_int_equal(class[2].bytes, 6000);
    assert_int_equal(class[2].requests, 188);
    assert_int_equal(stats.tier[HAK_TIER_TINY].bytes, 6000);
    assert_int_equal(stats.tier[HAK_TIER_MID].bytes, 2000);
    assert_int_equal(stats.tier[HAK_TIER_MID].requests, 2);

    /* Too few heartbeats: by the blocks that went into bins. */
    stats = (hak_stats_data){.heartbeats = HAK_ESTIMATE_BEATS - 1};
    hak_report_estimate(&stats, class, 17152 * 2);
    assert_int_equal(stats.tier[HAK_TIER_TINY].bytes, 32000);
    assert_int_equal(stats.tier[HAK_TIER_MID].bytes, 2304);

    /* Nothing known at all. */
    memset(class, 0, sizeof class);
    stats = (hak_stats_data){0};
    hak_report_estimate(&stats, class, 100);
    assert_int_equal(stats.tier[HAK_TIER_TINY].bytes, 0);
}

/* ---- Warnings */

static hak_report report;
static char text_buffer[HAK_REPORT_BYTES];
static hak_text text;

static int fresh_report(void **state)
{
    (void)state;
    memset(&report, 0, sizeof report);
    report.large_slot_limit = 4 << 20;
    report.bigcache_limit = 64 << 20;
    report.stats.mapped_bytes = 10 << 20;
    report.stats.peak_resident_bytes = 10 << 20;
    hak_text_init(&text, text_buffer, sizeof text_buffer);
    return 0;
}

static unsigned warnings(void)
{
    hak_text_clear(&text);
    return hak_report_put_warnings(&text, &report);
}

static void bins_that_never_filled_go_unnoticed(void **state)
{
    (void)state;
    report.stats.tier[HAK_TIER_TINY].requests = 1000; /* may be an estimate gone wrong */
    assert_int_equal(warnings(), 0);
    report.stats.tier[HAK_TIER_TINY].requests = 1001;
    assert_int_equal(warnings(), 1);
    assert_string_equal(text_buffer, "WARNING: tiny: 1001 requests and no bin was ever filled\n");
    report.stats.tier[HAK_TIER_MID].requests = 5000;
    assert_int_equal(warnings(), 2);
    report.stats.tier[HAK_TIER_TINY].refills = 1;
    assert_int_equal(warnings(), 1);
    assert_non_null(strstr(text_buffer, "mid: 5000"));
}

static void slots_that_never_hit_go_unnoticed(void **state)
{
    (void)state;
    hak_tier_stats *large = &report.stats.tier[HAK_TIER_LARGE];
    *large = (hak_tier_stats){.requests = 1000, .bytes = 100 << 20, .refills = 1000};
    assert_int_equal(warnings(), 1);
    assert_string_equal(text_buffer,
                        "WARNING: large: 1000 requests and none was served from a slot\n");
    /* All of it may be live at once. */
    report.stats.mapped_bytes = 100 << 20;
    assert_int_equal(warnings(), 0);
    report.stats.mapped_bytes = 10 << 20;
    /* Slots are off, or too small for these. */
    report.large_slot_limit = 0;
    assert_int_equal(warnings(), 0);
    report.large_slot_limit = 4 << 20;
    large->cache_hits = 1;
    assert_int_equal(warnings(), 0);
}

static void a_bigcache_that_never_hit_goes_unnoticed(void **state)
{
    (void)state;
    hak_tier_stats *big = &report.stats.tier[HAK_TIER_BIG];
    *big = (hak_tier_stats){.requests = 30, .bytes = 30ull * (3 << 20), .refills = 30};
    assert_int_equal(warnings(), 1);
    assert_string_equal(text_buffer,
                        "WARNING: big: 30 requests and none was served from BigCache\n");
    report.stats.big_bytes = 90 << 20; /* all live */
    assert_int_equal(warnings(), 0);
    report.stats.big_bytes = 0;
    report.bigcache_limit = 0;
    assert_int_equal(warnings(), 0);
    report.bigcache_limit = 2 << 20; /* none fits */
    assert_int_equal(warnings(), 0);
    report.bigcache_limit = 64 << 20;
    big->requests = 20;
    assert_int_equal(warnings(), 0);
}

/* ---- The report */

/* Every line fits a terminal, whatever the figures; call-sites may be long, their figures are not. */
static void the_report_is_wider_than_a_terminal(void **state)
{
    (void)state;
    hak_stats_data *stats = &report.stats;
    stats->served_bytes = stats->reserved_bytes = 999ull << 40;
    stats->minor_faults = stats->remote_posted = 99999999999;
    for (unsigned t = 0; t < HAK_TIER_COUNT; t++)
        stats->tier[t] = (hak_tier_stats){.requests = 99999999999,
                                          .bytes = (999ull << 40) + 1,
                                          .refills = 999999999,
                                          .refill_blocks = 99999999999,
                                          .spills = 999999999,
                                          .spill_blocks = 99999999999,
                                          .cache_hits = 99999999999};
    for (unsigned c = 1; c < HAK_CLASS_COUNT; c++)
        report.class[c] = (hak_class_stats){.block_bytes = 32768,
                                            .requests = 9999999999,
                                            .bytes = (999ull << 40) + 1,
                                            .slabs = 999999999,
                                            .refills = 999999999,
                                            .refill_blocks = 99999999999,
                                            .spills = 999999999,
                                            .spill_blocks = 99999999999};
    report.program = "a_program_with_a_rather_long_name";
    report.preset = "research";
    report.process = 4194304;
    report.sites = HAK_REPORT_SITES + 1;
    for (unsigned i = 0; i < HAK_REPORT_SITES; i++)
        report.site[i] = (hak_site_info){.file = "/somewhere/else/file.c",
                                         .function = "function",
                                         .line = 1234,
                                         .allocs = 99999999,
                                         .alloc_bytes = (999ull << 40) + 1,
                                         .min_bytes = 1023,
                                         .max_bytes = (999ull << 30) + 1,
                                         .frees = 99999999};
    hak_report_put(&text, &report);
    assert_false(text.truncated);
    assert_int_equal(text_buffer[text.length - 1], '\n');
    const char *line = text_buffer;
    for (const char *end; (end = strchr(line, '\n')) != NULL; line = end + 1)
        if (end - line > 80)
            fail_msg("%.*s", (int)(end - line), line);
    assert_non_null(strstr(text_buffer, "file.c:1234 function\n"));
    assert_non_null(strstr(text_buffer, "and 1 more call-sites"));
    assert_null(strstr(text_buffer, "somewhere"));
}

/* Counts the rows of the class table; class and block size of the first of them are copied. */
static unsigned class_rows(char first[5][13])
{
    hak_text_clear(&text);
    hak_report_put(&text, &report);
    const char *line = strstr(text_buffer, "\nclass ");
    assert_non_null(line);
    unsigned rows = 0;
    for (line = strchr(line + 1, '\n') + 1; line[0] == ' '; line = strchr(line, '\n') + 1) {
        if (rows < 5)
            snprintf(first[rows], 13, "%.12s", line);
        rows++;
    }
    return rows;
}

static void classes_stand_in_the_order_of_their_numbers(void **state)
{
    (void)state;
    char first[5][13];
    /* None has an estimate: all are shown, with most bytes in bins first. */
    report.class[3] = (hak_class_stats){.block_bytes = 48, .refills = 1, .refill_blocks = 10};
    report.class[4] = (hak_class_stats){.block_bytes = 64, .refills = 1, .refill_blocks = 10};
    assert_int_equal(class_rows(first), 2);
    assert_string_equal(first[0], "    4     64");
    assert_null(strstr(text_buffer, " more class"));

    /* Where one has, those without are left out, and counted. */
    report.class[3].bytes = 480;
    report.class[3].slabs = 7654321;
    assert_int_equal(class_rows(first), 1);
    assert_string_equal(first[0], "    3     48");
    assert_non_null(strstr(text_buffer, "    3     48 7654321 "));
    assert_non_null(strstr(text_buffer, "\nand 1 more class with fewer bytes\n"));

    /* The twenty with most bytes, the largest first. */
    for (unsigned c = 1; c <= 50; c++)
        report.class[c] = (hak_class_stats){.block_bytes = 16, .refills = 1, .bytes = 100 + c % 50};
    assert_int_equal(class_rows(first), HAK_REPORT_CLASSES);
    assert_string_equal(first[0], "   49     16");
    assert_string_equal(first[4], "   45     16");
    assert_non_null(strstr(text_buffer, "\n   30     16 "));
    assert_null(strstr(text_buffer, "\n   29     16 "));
    assert_non_null(strstr(text_buffer, "\nand 30 more classes with fewer bytes\n"));
}

static void the_stock_of_spans_is_not_shown(void **state)
{
    (void)state;
    report.stock_bytes = 3 << 20;
    hak_report_put(&text, &report);
    assert_non_null(strstr(text_buffer, "span stock          3 MiB"));
}

static void a_program_name_forges_a_line(void **state)
{
    (void)state;
    report.program = "evil\nWARNING: tiny";
    hak_report_put(&text, &report);
    assert_null(strstr(text_buffer, "\nWARNING"));
}

static size_t print_to_pipe(char *out, size_t room, void (*print)(int))
{
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    print(ends[1]);
    close(ends[1]);
    size_t length = 0;
    for (ssize_t got; (got = read(ends[0], out + length, room - 1 - length)) > 0;)
        length += (size_t)got;
    close(ends[0]);
    out[length] = '\0';
    return length;
}

static void the_report_lacks_a_part(void **state)
{
    (void)state;
    static char out[60000];
    static const char *const parts[] = {
        "hakmem ", "process ", "tiny ~",   "mid ~",      "large",        "big",
        "class",   "reserved", "BigCache", "heaps live", "minor faults", "test_observe.c:"};
    void *block = hak_alloc_cs(5000, HAK_CALLSITE());
    work(64, 100);
    print_to_pipe(out, sizeof out, hak_stats_print);
    hak_free(block);
    for (size_t i = 0; i < HAK_COUNT_OF(parts); i++)
        assert_non_null(strstr(out, parts[i]));
    assert_null(strstr(out, "self-profile"));
    assert_null(strstr(out, "WARNING"));
}

static void hak_stats_writes_beyond_what_the_caller_knows(void **state)
{
    (void)state;
    hak_stats_data stats;
    memset(&stats, 0x5a, sizeof stats);
    assert_int_equal(hak_stats(NULL, sizeof stats), EINVAL);
    assert_int_equal(hak_stats(&stats, 0), EINVAL);
    assert_int_equal(hak_stats(&stats, 16), 0);
    assert_int_equal(stats.struct_bytes, sizeof stats);
    assert_int_equal(stats.heaps, 0x5a5a5a5a5a5a5a5a);
}

static void the_version_is_not_the_headers(void **state)
{
    (void)state;
    char expected[32];
    hak_text t;
    hak_text_init(&t, expected, sizeof expected);
    hak_text_unsigned(&t, HAK_VERSION_MAJOR);
    hak_text_char(&t, '.');
    hak_text_unsigned(&t, HAK_VERSION_MINOR);
    hak_text_char(&t, '.');
    hak_text_unsigned(&t, HAK_VERSION_PATCH);
    assert_memory_equal(hak_version(), expected, t.length);
}

/* ---- Self-profile */

#define ADDERS 4
#define ADDS 20000

static void *add_to_profile(void *number)
{
    for (unsigned i = 0; i < ADDS; i++)
        hak_prof_add(HAK_PROF_MAP, *(unsigned *)number + i % 7);
    return NULL;
}

static void the_profile_loses_counts(void **state)
{
    (void)state;
    assert_false(hak_prof_on);
    hak_prof_figures before = hak_prof_read(HAK_PROF_MAP);
    pthread_t thread[ADDERS];
    unsigned number[ADDERS];
    uint64_t total = 0;
    for (unsigned t = 0; t < ADDERS; t++) {
        number[t] = 1000 * (t + 1);
        for (unsigned i = 0; i < ADDS; i++)
            total += number[t] + i % 7;
        assert_int_equal(pthread_create(&thread[t], NULL, add_to_profile, &number[t]), 0);
    }
    for (unsigned t = 0; t < ADDERS; t++)
        pthread_join(thread[t], NULL);
    hak_prof_figures after = hak_prof_read(HAK_PROF_MAP);
    assert_int_equal(after.count - before.count, ADDERS * ADDS);
    assert_int_equal(after.total_ns - before.total_ns, total);
    assert_int_equal(after.max_ns, 4006);
}

static void slow_paths_are_timed_though_nobody_asked(void **state)
{
    (void)state;
    hak_prof_figures before = hak_prof_read(HAK_PROF_BIG);
    work(3000000, 5);
    assert_int_equal(hak_prof_read(HAK_PROF_BIG).count, before.count);
    hak_prof_on = true;
    work(3000000, 5);
    hak_prof_on = false;
    hak_prof_figures after = hak_prof_read(HAK_PROF_BIG);
    assert_int_equal(after.count - before.count, 10);
    assert_true(after.total_ns > before.total_ns);
    assert_true(after.max_ns <= after.total_ns);
}

static void the_profile_prints_no_mean(void **state)
{
    (void)state;
    static char out[8192];
    hak_prof_figures before = hak_prof_read(HAK_PROF_HEAP);
    if (before.count == 0) {
        hak_prof_add(HAK_PROF_HEAP, 1000);
        hak_prof_add(HAK_PROF_HEAP, 2000);
    }
    print_to_pipe(out, sizeof out, hak_prof_print);
    const char *row = strstr(out, "\nheap ");
    assert_non_null(row);
    assert_memory_equal(row, "\nheap                 2         0.003        1500          2000\n",
                        63);
    static const char *const names[] = {
#define X(ID, name, what) name, what,
        HAK_PROF_CATEGORIES(X)
#undef X
    };
    for (size_t i = 0; i < HAK_COUNT_OF(names); i++)
        assert_non_null(strstr(out, names[i]));
}

/* ---- Event ring: the tests below run in their order, on one ring of 64 entries */

static void there_is_a_ring_though_nobody_asked(void **state)
{
    (void)state;
    static char out[256];
    hak_ring_record record;
    assert_int_equal(hak_ring_capacity(), 0);
    assert_false(hak_ring_read(0, &record));
    assert_int_equal(print_to_pipe(out, sizeof out, hak_ring_print), 0);
    assert_false(hak_ring_start(0));
    assert_false(hak_ring_on);
}

static void a_ring_is_not_a_power_of_two(void **state)
{
    (void)state;
    assert_true(hak_ring_start(33));
    assert_true(hak_ring_on);
    assert_int_equal(hak_ring_capacity(), 64);
    assert_false(hak_ring_start(128));
    hak_ring_on = false; /* from here on the tests alone add */
}

static void events_come_out_of_order(void **state)
{
    (void)state;
    uint64_t first = hak_ring_position();
    for (unsigned i = 0; i < 100; i++)
        hak_ring_add(HAK_EVENT_REFILL, i, 2 * i);
    assert_int_equal(hak_ring_position(), first + 100);
    hak_ring_record record;
    for (unsigned i = 0; i < 36; i++)
        assert_false(hak_ring_read(first + i, &record));
    uint64_t time_ns = 0;
    for (unsigned i = 36; i < 100; i++) {
        assert_true(hak_ring_read(first + i, &record));
        assert_int_equal(record.a, i);
        assert_int_equal(record.b, 2 * i);
        assert_int_equal(record.event, HAK_EVENT_REFILL);
        assert_int_equal(record.thread, gettid());
        assert_true(record.time_ns >= time_ns);
        time_ns = record.time_ns;
    }
    assert_false(hak_ring_read(first + 100, &record));
}

static void events_print_without_names(void **state)
{
    (void)state;
    static char out[16384];
    hak_ring_add(HAK_EVENT_SPAN_NEW, 4096, 1);
    hak_ring_add(HAK_EVENT_FOREIGN, 0xabcdef0, 0x1010);
    size_t length = print_to_pipe(out, sizeof out, hak_ring_print);
    assert_true(length > 0 && out[length - 1] == '\n');
    const char *last = strstr(out, "span-new bytes=4096 zeroed=1\n");
    assert_non_null(last);
    assert_non_null(strstr(last, "foreign-free address=0xabcdef0 tag=0x1010\n"));
    assert_non_null(strstr(last, "end of the event ring: 64 of "));
    size_t lines = 0;
    for (const char *at = out; (at = strchr(at, '\n')) != NULL; at++)
        lines++;
    assert_int_equal(lines, 66);
}

/* Each event says in b what its a and its kind must be; four threads wrap the ring of 64 thousands of
 * times while one reads. */
static uint64_t check_word(uint64_t a, uint64_t event)
{
    return (a * 0x9e3779b97f4a7c15u) ^ event;
}

static void *add_events(void *number)
{
    for (uint64_t i = 0; i < 50000; i++) {
        uint64_t a = i * ADDERS + *(unsigned *)number;
        hak_event event = (hak_event)(a % HAK_EVENT_COUNT);
        hak_ring_add(event, a, check_word(a, event));
    }
    return NULL;
}

static uint64_t check_events(void)
{
    uint64_t good = 0;
    uint64_t end = hak_ring_position();
    for (uint64_t at = end > 64 ? end - 64 : 0; at < end; at++) {
        hak_ring_record record;
        if (!hak_ring_read(at, &record))
            continue;
        assert_int_equal(record.event, record.a % HAK_EVENT_COUNT);
        assert_int_equal(record.b, check_word(record.a, record.event));
        good++;
    }
    return good;
}

static void a_torn_event_is_read(void **state)
{
    (void)state;
    pthread_t thread[ADDERS];
    unsigned number[ADDERS];
    uint64_t first = hak_ring_position();
    /* Those of earlier tests have no check word. */
    for (unsigned i = 0; i < 64; i++)
        hak_ring_add((hak_event)(i % HAK_EVENT_COUNT), i, check_word(i, i % HAK_EVENT_COUNT));
    for (unsigned t = 0; t < ADDERS; t++) {
        number[t] = t;
        assert_int_equal(pthread_create(&thread[t], NULL, add_events, &number[t]), 0);
    }
    uint64_t good = 0;
    while (hak_ring_position() < first + 64 + 50000 * ADDERS)
        good += check_events();
    for (unsigned t = 0; t < ADDERS; t++)
        pthread_join(thread[t], NULL);
    assert_int_equal(hak_ring_position(), first + 64 + 50000 * ADDERS);
    /* At rest, all of them stand but those that met a writer a whole round behind. */
    assert_in_range(check_events(), 32, 64);
    assert_true(good > 0);
}

/* What the slow paths do is in the ring. */
static void slow_paths_leave_no_events(void **state)
{
    (void)state;
    uint64_t first = hak_ring_position();
    hak_ring_on = true;
    work(3000000, 1);
    hak_ring_on = false;
    bool found[HAK_EVENT_COUNT] = {false};
    for (uint64_t at = first; at < hak_ring_position(); at++) {
        hak_ring_record record;
        if (hak_ring_read(at, &record))
            found[record.event] = true;
    }
    assert_true(found[HAK_EVENT_BIG_NEW]);
    assert_true(found[HAK_EVENT_BIG_FREE]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(served_bytes_are_not_exact),
        cmocka_unit_test(bytes_of_a_thread_that_ended_are_lost),
        cmocka_unit_test(large_and_big_are_miscounted),
        cmocka_unit_test(tiers_do_not_add_up),
        cmocka_unit_test(estimates_ignore_what_heartbeats_saw),
        cmocka_unit_test_setup(bins_that_never_filled_go_unnoticed, fresh_report),
        cmocka_unit_test_setup(slots_that_never_hit_go_unnoticed, fresh_report),
        cmocka_unit_test_setup(a_bigcache_that_never_hit_goes_unnoticed, fresh_report),
        cmocka_unit_test_setup(the_report_is_wider_than_a_terminal, fresh_report),
        cmocka_unit_test_setup(classes_stand_in_the_order_of_their_numbers, fresh_report),
        cmocka_unit_test_setup(the_stock_of_spans_is_not_shown, fresh_report),
        cmocka_unit_test_setup(a_program_name_forges_a_line, fresh_report),
        cmocka_unit_test(the_report_lacks_a_part),
        cmocka_unit_test(hak_stats_writes_beyond_what_the_caller_knows),
        cmocka_unit_test(the_version_is_not_the_headers),
        cmocka_unit_test(the_profile_loses_counts),
        cmocka_unit_test(slow_paths_are_timed_though_nobody_asked),
        cmocka_unit_test(the_profile_prints_no_mean),
        cmocka_unit_test(there_is_a_ring_though_nobody_asked),
        cmocka_unit_test(a_ring_is_not_a_power_of_two),
        cmocka_unit_test(events_come_out_of_order),
        cmocka_unit_test(events_print_without_names),
        cmocka_unit_test(a_torn_event_is_read),
        cmocka_unit_test(slow_paths_leave_no_events),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
