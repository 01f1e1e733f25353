/* hak.c: what hakmem says about itself: hak_stats, hak_stats_print, hak_version, and the reports at
 * exit. The figures are gathered here; observe/ makes text of them. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "api/entry.h"
#include "base/log.h"
#include "base/syscall.h"
#include "heap/big.h"
#include "heap/central.h"
#include "heap/emergency.h"
#include "heap/exchange.h"
#include "heap/heap.h"
#include "heap/large.h"
#include "heap/meta.h"
#include "observe/observe.h"
#include "observe/report.h"
#include "os/os.h"
#include "policy/options.h"

#define HAK_TEXT_OF_(x) #x
#define HAK_TEXT_OF(x) HAK_TEXT_OF_(x)
#define HAK_VERSION_TEXT                                                                           \
    HAK_TEXT_OF(HAK_VERSION_MAJOR)                                                                 \
    "." HAK_TEXT_OF(HAK_VERSION_MINOR) "." HAK_TEXT_OF(HAK_VERSION_PATCH)

HAK_EXPORT const char *hak_version(void)
{
#if defined(HAK_BUILD_INFO)
    return HAK_VERSION_TEXT " (built with " HAK_BUILD_INFO ")";
#else
    return HAK_VERSION_TEXT;
#endif
}

/* ---- Figures --------------------------------------------------------------------------------- */

typedef struct hak_sums {
    hak_stats_data *stats;
    hak_class_stats *class;
} hak_sums;

/* Under HAK_RANK_HEAPS. Counters of other threads are read while they run: each is whole, the sums
 * are of slightly different moments. */
static void hak_sum_heap(hak_heap *heap, void *context)
{
    hak_sums *sums = context;
    hak_stats_data *stats = sums->stats;
    if (heap->owner != HAK_OWNER_ORPHAN) {
        stats->heaps++;
        stats->heaps_live += heap->live && !heap->torn;
    }
    stats->served_bytes += hak_heap_served(heap);
    stats->exchanged += hak_count_read(&heap->count.exchanged);
    stats->remote_posted += hak_count_read(&heap->count.remote_posted);
    stats->remote_drained += hak_count_read(&heap->count.remote_drained);
    stats->slabs_adopted += hak_count_read(&heap->count.adopted);
    stats->heartbeats += hak_count_read(&heap->count.heartbeats);
    hak_tier_stats *large = &stats->tier[HAK_TIER_LARGE];
    large->requests += hak_count_read(&heap->count.large_requests);
    large->bytes += hak_count_read(&heap->count.large_bytes);
    large->refills += hak_count_read(&heap->count.large_made);
    large->spills += hak_count_read(&heap->count.large_returned);
    large->cache_hits += hak_count_read(&heap->count.large_hits);
    for (unsigned c = 1; c < HAK_CLASS_COUNT; c++) {
        const hak_bin_back *back = &heap->back[c];
        hak_class_stats *k = &sums->class[c];
        k->refills += hak_count_read(&back->refills);
        k->refill_blocks += hak_count_read(&back->refill_blocks);
        k->spills += hak_count_read(&back->spills);
        k->spill_blocks += hak_count_read(&back->spill_blocks);
        k->sampled_bytes += hak_count_read(&back->sampled_bytes);
    }
}

static void hak_sum_classes(hak_stats_data *stats, hak_class_stats class[HAK_CLASS_COUNT])
{
    for (unsigned c = 1; c < HAK_CLASS_COUNT; c++) {
        class[c].block_bytes = hak_classes[c].bytes;
        hak_tier_stats *tier = &stats->tier[c <= HAK_TINY_CLASSES ? HAK_TIER_TINY : HAK_TIER_MID];
        tier->refills += class[c].refills;
        tier->refill_blocks += class[c].refill_blocks;
        tier->spills += class[c].spills;
        tier->spill_blocks += class[c].spill_blocks;
    }
    stats->tier[HAK_TIER_LARGE].refill_blocks = stats->tier[HAK_TIER_LARGE].refills;
    stats->tier[HAK_TIER_LARGE].spill_blocks = stats->tier[HAK_TIER_LARGE].spills;
}

static void hak_collect_big(hak_stats_data *stats)
{
    hak_big_stats big;
    hak_big_stats_read(&big);
    stats->big_bytes = big.live_bytes;
    stats->bigcache_bytes = big.cached_bytes;
    stats->tier[HAK_TIER_BIG] = (hak_tier_stats){
        .requests = big.requests,
        .bytes = big.request_bytes,
        .refills = big.mapped,
        .refill_blocks = big.mapped,
        .spills = big.unmapped,
        .spill_blocks = big.unmapped,
        .cache_hits = big.hits,
    };
}

static void hak_collect_memory(hak_stats_data *stats, hak_class_stats class[HAK_CLASS_COUNT])
{
    hak_central_stats central;
    hak_central_stats_read(&central);
    for (unsigned c = 1; c < HAK_CLASS_COUNT; c++)
        class[c].slabs = central.slabs[c];
    stats->reserved_bytes = central.reserved_bytes;
    stats->mapped_bytes = central.mapped_bytes;
    stats->slab_bytes = central.slab_bytes;
    stats->span_bytes = central.span_bytes;
    stats->free_dirty_bytes = central.free_dirty_bytes;
    stats->purged_bytes = central.purged_bytes;
    stats->purge_calls = central.purge_calls;
    stats->metadata_bytes = hak_meta_bytes();
    hak_os_usage usage;
    hak_os_usage_read(&usage);
    stats->resident_bytes = usage.resident_bytes;
    /* The system brings the peak up to date now and then only. */
    stats->peak_resident_bytes = usage.peak_resident_bytes > usage.resident_bytes
                                     ? usage.peak_resident_bytes
                                     : usage.resident_bytes;
    stats->minor_faults = usage.minor_faults;
    stats->major_faults = usage.major_faults;
}

/* `class` zeroed. */
static void hak_collect(hak_stats_data *stats, hak_class_stats class[HAK_CLASS_COUNT])
{
    hak_sums sums = {.stats = stats, .class = class};
    *stats = (hak_stats_data){.struct_bytes = sizeof *stats};
    hak_hot *hot = hak_busy_begin();
    /* In a handler that interrupted a slow path: its locks may be ours. */
    if (hot == &hak_heap_busy)
        return;
    /* Before the heaps: what other threads do meanwhile then makes small bytes too many, not too few
     * by an underflow. */
    hak_collect_big(stats);
    hak_heaps_each(hak_sum_heap, &sums);
    hak_sum_classes(stats, class);
    hak_collect_memory(stats, class);
    stats->foreign_frees = hak_foreign_frees();
    stats->exchange_bytes = hak_exchange_bytes();
    stats->remote_posted += hak_exchange_posted();
    uint64_t pages = stats->tier[HAK_TIER_LARGE].bytes + stats->tier[HAK_TIER_BIG].bytes;
    hak_report_estimate(stats, class,
                        stats->served_bytes > pages ? stats->served_bytes - pages : 0);
    hak_busy_end(hot);
}

void hak_stats_collect(hak_stats_data *out)
{
    hak_class_stats class[HAK_CLASS_COUNT] = {0};
    hak_collect(out, class);
}

HAK_EXPORT int hak_stats(hak_stats_data *out, size_t bytes)
{
    if (out == NULL || bytes == 0)
        return EINVAL;
    hak_stats_data stats;
    hak_stats_collect(&stats);
    memcpy(out, &stats, hak_min_size(bytes, sizeof stats));
    return 0;
}

/* ---- Reports --------------------------------------------------------------------------------- */

/* Figures and text lie in a mapping for the time of the call: together they are more than the stack
 * of a small thread, and the text is to be one write, so that the reports of several processes into
 * one file don't mix. */
typedef struct hak_print_room {
    hak_report report;
    char text[HAK_REPORT_BYTES];
} hak_print_room;

static void hak_report_fill(hak_report *report)
{
    hak_collect(&report->stats, report->class);
    hak_large_stats large;
    hak_large_stats_read(&large);
    report->stock_bytes = large.stock_bytes;
    report->program = program_invocation_short_name;
    report->preset = hak_preset_name(hak_settings_in_force.preset);
    report->process = (uint64_t)getpid();
    report->large_slot_limit = hak_knob_get(HAK_KNOB_LARGE_SLOT_BYTES);
    report->bigcache_limit = hak_knob_get(HAK_KNOB_BIGCACHE_BYTES);
    report->sites = hak_sites(report->site, HAK_REPORT_SITES);
}

HAK_EXPORT void hak_stats_print(int fd)
{
    size_t bytes = hak_round_up(sizeof(hak_print_room), hak_os_page_bytes);
    hak_print_room *room = hak_os_map(bytes, hak_os_page_bytes);
    if (room == NULL) {
        hak_log(HAK_LOG_ERROR, "no memory for the statistics");
        return;
    }
    hak_report_fill(&room->report);
    hak_text text;
    hak_text_init(&text, room->text, sizeof room->text);
    hak_report_put(&text, &room->report);
    if (hak_prof_on) {
        hak_text_char(&text, '\n');
        hak_prof_put(&text);
    }
    hak_text_write(&text, fd);
    hak_os_unmap(room, bytes);
}

/* Non-blocking: a FIFO without a reader must not keep the process from ending. */
static int hak_stats_file_open(const char *path)
{
    const long flags = O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOCTTY | O_NONBLOCK;
    long fd = hak_syscall4(SYS_openat, AT_FDCWD, (long)path, flags, 0644);
    if (!hak_syscall_failed(fd))
        return (int)fd;
    hak_line line;
    hak_line_start(&line);
    hak_text_put(&line.text, "can't open HAKMEM_STATS_FILE ");
    hak_text_quoted(&line.text, path, strlen(path));
    hak_text_put(&line.text, ": errno ");
    hak_text_signed(&line.text, -fd);
    hak_line_end(&line, HAK_LOG_WARN);
    return -1;
}

void hak_observe_exit(void)
{
    bool stats = hak_knob_get(HAK_KNOB_STATS) != 0;
    if (!stats && !hak_prof_on)
        return;
    int fd = hak_stats_path != NULL ? hak_stats_file_open(hak_stats_path) : hak_observe_fd();
    if (fd < 0)
        return;
    if (stats) {
        hak_stats_print(fd);
        hak_ring_print(fd);
    } else {
        hak_prof_print(fd);
    }
    if (hak_stats_path != NULL)
        hak_syscall3(SYS_close, fd, 0, 0);
}
