#include "observe/report.h"

#include <string.h>

/* ---- Estimates ------------------------------------------------------------------------------- */

static uint64_t hak_share(uint64_t whole, uint64_t part, uint64_t parts)
{
    return parts == 0 ? 0 : (uint64_t)((unsigned __int128)whole * part / parts);
}

static unsigned hak_tier_of(unsigned class)
{
    return class <= HAK_TINY_CLASSES ? HAK_TIER_TINY : HAK_TIER_MID;
}

void hak_report_estimate(hak_stats_data *stats, hak_class_stats class[HAK_CLASS_COUNT],
                         uint64_t small_bytes)
{
    uint64_t weight[HAK_CLASS_COUNT] = {0};
    uint64_t total = 0;
    for (unsigned c = 1; c < HAK_CLASS_COUNT; c++)
        total += class[c].sampled_bytes;
    bool sampled = total > 0 && stats->heartbeats >= HAK_ESTIMATE_BEATS;
    total = 0;
    for (unsigned c = 1; c < HAK_CLASS_COUNT; c++) {
        weight[c] =
            sampled ? class[c].sampled_bytes : class[c].refill_blocks * class[c].block_bytes;
        total += weight[c];
    }
    for (unsigned c = 1; c < HAK_CLASS_COUNT; c++) {
        hak_class_stats *k = &class[c];
        if (k->block_bytes == 0)
            continue;
        k->bytes = hak_share(small_bytes, weight[c], total);
        k->requests = (k->bytes + k->block_bytes / 2) / k->block_bytes;
        hak_tier_stats *tier = &stats->tier[hak_tier_of(c)];
        tier->bytes += k->bytes;
        tier->requests += k->requests;
    }
}

/* ---- Health ---------------------------------------------------------------------------------- */

/* A tier whose bytes served are more than twice what it can ever have held at once has used memory
 * again and again: a cache that never hit in all that does not work. Without this test a program that
 * allocates once and keeps everything would be warned of. */
static bool hak_turned_over(const hak_tier_stats *tier, uint64_t held_bytes)
{
    return tier->bytes / 2 > held_bytes;
}

static void hak_put_warning(hak_text *text, const char *tier, uint64_t requests, const char *what)
{
    hak_text_put(text, "WARNING: ");
    hak_text_put(text, tier);
    hak_text_put(text, ": ");
    hak_text_unsigned(text, requests);
    hak_text_put(text, what);
    hak_text_char(text, '\n');
}

unsigned hak_report_put_warnings(hak_text *text, const hak_report *report)
{
    static const char *const bins[] = {[HAK_TIER_TINY] = "tiny", [HAK_TIER_MID] = "mid"};
    const hak_stats_data *stats = &report->stats;
    unsigned warnings = 0;
    for (unsigned t = HAK_TIER_TINY; t <= HAK_TIER_MID; t++) {
        const hak_tier_stats *tier = &stats->tier[t];
        if (tier->requests <= 1000 || tier->refills > 0)
            continue;
        hak_put_warning(text, bins[t], tier->requests, " requests and no bin was ever filled");
        warnings++;
    }
    const hak_tier_stats *large = &stats->tier[HAK_TIER_LARGE];
    if (large->requests > 100 && large->cache_hits == 0 &&
        large->bytes / large->requests <= report->large_slot_limit &&
        hak_turned_over(large, stats->mapped_bytes)) {
        hak_put_warning(text, "large", large->requests,
                        " requests and none was served from a slot");
        warnings++;
    }
    const hak_tier_stats *big = &stats->tier[HAK_TIER_BIG];
    uint64_t held = stats->peak_resident_bytes > stats->big_bytes ? stats->peak_resident_bytes
                                                                  : stats->big_bytes;
    if (big->requests > 20 && big->cache_hits == 0 &&
        big->bytes / big->requests <= report->bigcache_limit && hak_turned_over(big, held)) {
        hak_put_warning(text, "big", big->requests, " requests and none was served from BigCache");
        warnings++;
    }
    return warnings;
}

/* ---- Cells ----------------------------------------------------------------------------------- */

static void hak_put_name(hak_text *text, const char *name, size_t width)
{
    size_t cell = text->length;
    hak_text_put(text, name);
    hak_text_left(text, cell, width);
}

static void hak_put_head(hak_text *text, const char *head, size_t width)
{
    size_t cell = text->length;
    hak_text_put(text, head);
    hak_text_right(text, cell, width);
}

static void hak_put_count(hak_text *text, uint64_t count, size_t width)
{
    size_t cell = text->length;
    hak_text_unsigned(text, count);
    hak_text_right(text, cell, width);
}

/* At most seven digits, the rest in millions. */
static void hak_put_short(hak_text *text, uint64_t count, size_t width)
{
    size_t cell = text->length;
    bool millions = count > 9999999;
    hak_text_ratio(text, count, millions ? 1000000 : 1, 0);
    if (millions)
        hak_text_char(text, 'M');
    hak_text_right(text, cell, width);
}

static void hak_put_bytes(hak_text *text, uint64_t bytes, size_t width)
{
    size_t cell = text->length;
    hak_text_bytes(text, bytes);
    hak_text_right(text, cell, width);
}

static void hak_put_percent(hak_text *text, uint64_t part, uint64_t whole, size_t width)
{
    size_t cell = text->length;
    if (whole == 0) {
        hak_text_char(text, '-');
    } else {
        hak_text_ratio(text, hak_share(100000, part, whole), 1000, 1);
        hak_text_char(text, '%');
    }
    hak_text_right(text, cell, width);
}

/* ---- Parts ----------------------------------------------------------------------------------- */

static void hak_put_title(hak_text *text, const hak_report *report)
{
    hak_text_put(text, "hakmem ");
    hak_text_put(text, hak_version());
    hak_text_put(text, "\nprocess ");
    hak_text_unsigned(text, report->process);
    if (report->program != NULL) {
        hak_text_char(text, ' ');
        hak_text_quoted(text, report->program, strnlen(report->program, 24));
    }
    if (report->preset != NULL) {
        hak_text_put(text, ", preset ");
        hak_text_put(text, report->preset);
    }
    hak_text_put(text, ", ");
    hak_text_bytes(text, report->stats.served_bytes);
    hak_text_put(text, " served\n");
}

/* Requests that met a bin with something in it, or a span that was kept. (cache_hits of large also
 * count each realloc that grew where it stood, which is no request.) */
static uint64_t hak_tier_hits(const hak_tier_stats *tier, unsigned t)
{
    if (t == HAK_TIER_BIG)
        return tier->cache_hits;
    return tier->requests > tier->refills ? tier->requests - tier->refills : 0;
}

static void hak_put_tiers(hak_text *text, const hak_report *report)
{
    static const char *const names[HAK_TIER_COUNT] = {"tiny ~", "mid ~", "large", "big"};
    hak_text_put(text, "\ntier      requests      bytes   refills   blocks in    spills"
                       "  blocks out   hits\n");
    for (unsigned t = 0; t < HAK_TIER_COUNT; t++) {
        const hak_tier_stats *tier = &report->stats.tier[t];
        hak_put_name(text, names[t], 6);
        hak_put_count(text, tier->requests, 12);
        hak_put_bytes(text, tier->bytes, 11);
        hak_put_count(text, tier->refills, 10);
        hak_put_count(text, tier->refill_blocks, 12);
        hak_put_count(text, tier->spills, 10);
        hak_put_count(text, tier->spill_blocks, 12);
        hak_put_percent(text, hak_tier_hits(tier, t), tier->requests, 7);
        hak_text_char(text, '\n');
    }
    hak_text_put(text, "~ estimated at heartbeats. In, out: blocks moved from slabs to bins, and "
                       "back;\nlarge, big: spans and mappings made, and given back. Hits: requests "
                       "served from\na bin (tiny, mid), from spans kept (large), from BigCache "
                       "(big)\n");
}

static bool hak_class_used(const hak_class_stats *k)
{
    return k->requests != 0 || k->refills != 0 || k->spills != 0;
}

static bool hak_class_before(const hak_class_stats *a, const hak_class_stats *b)
{
    if (a->bytes != b->bytes)
        return a->bytes > b->bytes;
    return a->refill_blocks * a->block_bytes > b->refill_blocks * b->block_bytes;
}

/* The classes with most bytes, in order; returns how many. Where there are estimates, a class
 * without one is too small for a heartbeat to have met it, and left out. */
static unsigned hak_classes_first(const hak_report *report, unsigned first[HAK_REPORT_CLASSES])
{
    bool estimates = false;
    for (unsigned c = 1; c < HAK_CLASS_COUNT; c++)
        estimates |= report->class[c].bytes != 0;
    unsigned count = 0;
    for (unsigned c = 1; c < HAK_CLASS_COUNT; c++) {
        const hak_class_stats *k = &report->class[c];
        if (!hak_class_used(k) || (estimates && k->bytes == 0))
            continue;
        unsigned at = count < HAK_REPORT_CLASSES ? count++ : HAK_REPORT_CLASSES;
        for (; at > 0 && hak_class_before(k, &report->class[first[at - 1]]); at--)
            if (at < HAK_REPORT_CLASSES)
                first[at] = first[at - 1];
        if (at < HAK_REPORT_CLASSES)
            first[at] = c;
    }
    return count;
}

static void hak_put_class(hak_text *text, unsigned class, const hak_class_stats *k)
{
    hak_put_count(text, class, 5);
    hak_put_count(text, k->block_bytes, 7);
    hak_put_short(text, k->slabs, 8);
    if (k->bytes == 0) {
        /* No heartbeat yet: unknown, not none. */
        hak_put_head(text, "-", 12);
        hak_put_head(text, "-", 11);
    } else {
        hak_put_count(text, k->requests, 12);
        hak_put_bytes(text, k->bytes, 11);
    }
    hak_put_short(text, k->refills, 8);
    hak_put_short(text, k->refill_blocks, 10);
    hak_put_short(text, k->spills, 8);
    hak_put_short(text, k->spill_blocks, 11);
    hak_text_char(text, '\n');
}

static void hak_put_classes(hak_text *text, const hak_report *report)
{
    unsigned first[HAK_REPORT_CLASSES];
    unsigned shown = hak_classes_first(report, first);
    unsigned used = 0;
    for (unsigned c = 1; c < HAK_CLASS_COUNT; c++)
        used += hak_class_used(&report->class[c]);
    hak_text_put(text, "\nclass  block   slabs   ~requests     ~bytes refills"
                       " blocks in  spills blocks out\n");
    for (unsigned i = 0; i < shown; i++)
        hak_put_class(text, first[i], &report->class[first[i]]);
    if (used > shown) {
        hak_text_put(text, "and ");
        hak_text_unsigned(text, used - shown);
        hak_text_put(text, used - shown == 1 ? " more class" : " more classes");
        hak_text_put(text, " with fewer bytes\n");
    }
}

static void hak_put_memory(hak_text *text, const hak_report *report)
{
    const hak_stats_data *s = &report->stats;
    const struct {
        const char *name;
        uint64_t value;
        bool bytes;
    } cells[] = {
        {"reserved", s->reserved_bytes, true},
        {"slabs", s->slab_bytes, true},
        {"resident", s->resident_bytes, true},
        {"mapped", s->mapped_bytes, true},
        {"spans", s->span_bytes, true},
        {"peak resident", s->peak_resident_bytes, true},
        {"free dirty", s->free_dirty_bytes, true},
        {"span stock", report->stock_bytes, true},
        {"minor faults", s->minor_faults, false},
        {"purged", s->purged_bytes, true},
        {"big", s->big_bytes, true},
        {"major faults", s->major_faults, false},
        {"purge calls", s->purge_calls, false},
        {"BigCache", s->bigcache_bytes, true},
        {"heartbeats", s->heartbeats, false},
        {"heaps", s->heaps, false},
        {"metadata", s->metadata_bytes, true},
        {"slabs adopted", s->slabs_adopted, false},
        {"heaps live", s->heaps_live, false},
        {"exchange", s->exchange_bytes, true},
        {"exchanged", s->exchanged, false},
        {"foreign frees", s->foreign_frees, false},
        {"remote posted", s->remote_posted, false},
        {"remote drained", s->remote_drained, false},
    };
    for (size_t i = 0; i < HAK_COUNT_OF(cells); i++) {
        hak_text_put(text, i % 3 == 0 ? "\n" : "  ");
        hak_put_name(text, cells[i].name, 14);
        if (cells[i].bytes)
            hak_put_bytes(text, cells[i].value, 11);
        else
            hak_put_count(text, cells[i].value, 11);
    }
    hak_text_char(text, '\n');
}

static void hak_put_sites(hak_text *text, const hak_report *report)
{
    size_t shown = report->sites < HAK_REPORT_SITES ? report->sites : HAK_REPORT_SITES;
    if (shown == 0)
        return;
    hak_text_put(text, "\n");
    hak_put_head(text, "allocs", 9);
    hak_put_head(text, "bytes", 11);
    hak_put_head(text, "smallest", 11);
    hak_put_head(text, "largest", 11);
    hak_put_head(text, "frees", 9);
    hak_text_put(text, "  call-site\n");
    for (size_t i = 0; i < shown; i++) {
        const hak_site_info *site = &report->site[i];
        hak_put_count(text, site->allocs, 9);
        hak_put_bytes(text, site->alloc_bytes, 11);
        hak_put_bytes(text, site->min_bytes, 11);
        hak_put_bytes(text, site->max_bytes, 11);
        hak_put_count(text, site->frees, 9);
        /* The end of a path says more than its beginning. */
        const char *file = site->file == NULL ? "?" : site->file;
        const char *slash = strrchr(file, '/');
        hak_text_put(text, "  ");
        hak_text_put_n(text, slash == NULL ? file : slash + 1,
                       strnlen(slash == NULL ? file : slash + 1, 60));
        hak_text_char(text, ':');
        hak_text_unsigned(text, site->line);
        hak_text_char(text, ' ');
        if (site->function != NULL)
            hak_text_put_n(text, site->function, strnlen(site->function, 60));
        hak_text_char(text, '\n');
    }
    if (report->sites > shown) {
        hak_text_put(text, "and ");
        hak_text_unsigned(text, report->sites - shown);
        hak_text_put(text, " more call-sites with fewer bytes\n");
    }
}

void hak_report_put(hak_text *text, const hak_report *report)
{
    hak_put_title(text, report);
    hak_put_tiers(text, report);
    hak_put_classes(text, report);
    hak_put_memory(text, report);
    hak_put_sites(text, report);
    hak_report_put_warnings(text, report);
}
