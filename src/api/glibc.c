/* glibc.c: the informational functions of glibc's malloc: mallinfo, mallinfo2, mallopt, malloc_stats,
 * malloc_info, malloc_trim.
 *
 * Their figures are glibc's notions, filled with what comes closest here:
 *   arena      slabs, spans, and empty pages not given back
 *   uordblks   of that, in use: slabs and spans, but for the blocks that stand in bins
 *   fordblks   the rest
 *   smblks     blocks in bins; fsmblks: their bytes
 *   hblks      big mappings; hblkhd: their bytes
 *   keepcost   what malloc_trim could give back at least
 * A slab counts as a whole: the room in it that no bin holds counts as in use.
 *
 * <malloc.h> is left out on purpose: older C libraries lack mallinfo2, and programs that were built
 * against a newer one ask for it all the same.
 */
#if !defined(HAK_NO_INTERPOSE)
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <unistd.h>

#include "api/entry.h"
#include "heap/big.h"
#include "heap/heap.h"
#include "os/os.h"
#include "policy/options.h"

struct mallinfo {
    int arena;
    int ordblks;
    int smblks;
    int hblks;
    int hblkhd;
    int usmblks;
    int fsmblks;
    int uordblks;
    int fordblks;
    int keepcost;
};

struct mallinfo2 {
    size_t arena;
    size_t ordblks;
    size_t smblks;
    size_t hblks;
    size_t hblkhd;
    size_t usmblks;
    size_t fsmblks;
    size_t uordblks;
    size_t fordblks;
    size_t keepcost;
};

HAK_EXPORT struct mallinfo mallinfo(void);
HAK_EXPORT struct mallinfo2 mallinfo2(void);
HAK_EXPORT int mallopt(int param, int value);
HAK_EXPORT void malloc_stats(void);
HAK_EXPORT int malloc_info(int options, FILE *stream);
HAK_EXPORT int malloc_trim(size_t pad);

/* ---- Figures --------------------------------------------------------------------------------- */

/* Blocks in a bin of a heap that may be at work: it may be in the middle of taking a new array, so
 * what makes no sense is taken for an empty bin. */
static uint64_t hak_bin_glance(const hak_heap *heap, unsigned class)
{
    uintptr_t top = (uintptr_t)__atomic_load_n(&heap->hot.bins[class].top, __ATOMIC_RELAXED);
    uintptr_t base = (uintptr_t)__atomic_load_n(&heap->back[class].base, __ATOMIC_RELAXED);
    uint32_t slots = __atomic_load_n(&heap->back[class].slots, __ATOMIC_RELAXED);
    if (base == 0 || top < base)
        return 0;
    uint64_t blocks = (top - base) / sizeof(void *);
    return blocks <= slots ? blocks : 0;
}

typedef struct hak_bin_sums {
    uint64_t blocks;
    uint64_t bytes;
} hak_bin_sums;

static void hak_sum_bins(hak_heap *heap, void *context)
{
    hak_bin_sums *sums = context;
    for (unsigned c = 1; c < HAK_CLASS_COUNT; c++) {
        uint64_t blocks = hak_bin_glance(heap, c);
        sums->blocks += blocks;
        sums->bytes += blocks * hak_classes[c].bytes;
    }
}

typedef struct hak_totals {
    hak_stats_data stats;
    hak_bin_sums bins;
    uint64_t arena;
    uint64_t in_use;
} hak_totals;

static void hak_totals_read(hak_totals *totals)
{
    hak_stats_collect(&totals->stats);
    totals->bins = (hak_bin_sums){0};
    hak_heaps_each(hak_sum_bins, &totals->bins);
    uint64_t held = totals->stats.slab_bytes + totals->stats.span_bytes;
    /* Other threads go on meanwhile. */
    if (totals->bins.bytes > held)
        totals->bins.bytes = held;
    totals->arena = held + totals->stats.free_dirty_bytes;
    totals->in_use = held - totals->bins.bytes;
}

/* Mappings of big blocks, those in BigCache among them. */
static uint64_t hak_big_mappings(const hak_stats_data *stats)
{
    const hak_tier_stats *big = &stats->tier[HAK_TIER_BIG];
    return big->refills > big->spills ? big->refills - big->spills : 0;
}

struct mallinfo2 mallinfo2(void)
{
    hak_totals totals;
    hak_totals_read(&totals);
    return (struct mallinfo2){
        .arena = totals.arena,
        .ordblks = totals.stats.free_dirty_bytes / HAK_UNIT_BYTES,
        .smblks = totals.bins.blocks,
        .hblks = hak_big_mappings(&totals.stats),
        .hblkhd = totals.stats.big_bytes,
        .fsmblks = totals.bins.bytes,
        .uordblks = totals.in_use,
        .fordblks = totals.arena - totals.in_use,
        .keepcost = totals.stats.free_dirty_bytes,
    };
}

/* glibc's wraps; a program that reads these ints is served better by the largest of them. */
static int hak_saturate(size_t value)
{
    return value > INT_MAX ? INT_MAX : (int)value;
}

struct mallinfo mallinfo(void)
{
    struct mallinfo2 info = mallinfo2();
    return (struct mallinfo){
        .arena = hak_saturate(info.arena),
        .ordblks = hak_saturate(info.ordblks),
        .smblks = hak_saturate(info.smblks),
        .hblks = hak_saturate(info.hblks),
        .hblkhd = hak_saturate(info.hblkhd),
        .fsmblks = hak_saturate(info.fsmblks),
        .uordblks = hak_saturate(info.uordblks),
        .fordblks = hak_saturate(info.fordblks),
        .keepcost = hak_saturate(info.keepcost),
    };
}

int mallopt(int param, int value)
{
    return hak_policy_mallopt(param, value);
}

void malloc_stats(void)
{
    hak_stats_print(STDERR_FILENO);
}

/* `pad` asks to keep some of the top of a heap, which there is none of here. */
int malloc_trim(size_t pad)
{
    (void)pad;
    return hak_purge() > 0 ? 1 : 0;
}

/* ---- malloc_info ----------------------------------------------------------------------------- */

/* A heap's element: a line for each class, and the lines around them. */
#define HAK_XML_HEAP_BYTES ((size_t)16 << 10)

static void hak_xml_attribute(hak_text *text, const char *name, uint64_t value)
{
    hak_text_char(text, ' ');
    hak_text_put(text, name);
    hak_text_put(text, "=\"");
    hak_text_unsigned(text, value);
    hak_text_char(text, '"');
}

/* <element type="type" count="..." size="..."/>; without a count where there is none to tell. */
static void hak_xml_line(hak_text *text, const char *element, const char *type,
                         const uint64_t *count, uint64_t bytes)
{
    hak_text_char(text, '<');
    hak_text_put(text, element);
    hak_text_put(text, " type=\"");
    hak_text_put(text, type);
    hak_text_char(text, '"');
    if (count != NULL)
        hak_xml_attribute(text, "count", *count);
    hak_xml_attribute(text, "size", bytes);
    hak_text_put(text, "/>\n");
}

/* Free blocks by size, as glibc has them: here, those that stand in the heap's bins. */
static void hak_xml_heap(hak_heap *heap, void *context)
{
    hak_text *text = context;
    if (heap->owner == HAK_OWNER_ORPHAN || !heap->live || heap->torn)
        return;
    if (text->capacity - text->length < 2 * HAK_XML_HEAP_BYTES)
        return;
    hak_bin_sums bins = {0};
    hak_text_put(text, "<heap");
    hak_xml_attribute(text, "nr", heap->owner - HAK_OWNER_FIRST);
    hak_text_put(text, ">\n<sizes>\n");
    for (unsigned c = 1; c < HAK_CLASS_COUNT; c++) {
        uint64_t blocks = hak_bin_glance(heap, c);
        if (blocks == 0)
            continue;
        uint64_t bytes = blocks * hak_classes[c].bytes;
        hak_text_put(text, "<size");
        hak_xml_attribute(text, "from", c == 1 ? 1 : hak_classes[c - 1].bytes + 1);
        hak_xml_attribute(text, "to", hak_classes[c].bytes);
        hak_xml_attribute(text, "total", bytes);
        hak_xml_attribute(text, "count", blocks);
        hak_text_put(text, "/>\n");
        bins.blocks += blocks;
        bins.bytes += bytes;
    }
    hak_text_put(text, "</sizes>\n");
    hak_xml_line(text, "total", "fast", &bins.blocks, bins.bytes);
    hak_text_put(text, "</heap>\n");
}

static void hak_xml_totals(hak_text *text, const hak_totals *totals)
{
    const hak_stats_data *stats = &totals->stats;
    uint64_t pages = stats->free_dirty_bytes / HAK_UNIT_BYTES;
    uint64_t big = hak_big_mappings(stats);
    hak_xml_line(text, "total", "fast", &totals->bins.blocks, totals->bins.bytes);
    hak_xml_line(text, "total", "rest", &pages, stats->free_dirty_bytes);
    hak_xml_line(text, "total", "mmap", &big, stats->big_bytes);
    hak_xml_line(text, "system", "current", NULL, totals->arena);
    hak_xml_line(text, "system", "max", NULL, stats->mapped_bytes);
    hak_xml_line(text, "aspace", "total", NULL, stats->reserved_bytes);
    hak_xml_line(text, "aspace", "mprotect", NULL, stats->mapped_bytes);
}

int malloc_info(int options, FILE *stream)
{
    if (options != 0)
        return EINVAL;
    int saved = errno;
    hak_totals totals;
    hak_totals_read(&totals);
    /* Built whole before it is written: stdio may allocate, which must not happen under the lock of
     * the heaps. Heaps that come up meanwhile are left out. */
    size_t bytes =
        hak_round_up((totals.stats.heaps_live + 2) * HAK_XML_HEAP_BYTES, hak_os_page_bytes);
    char *buffer = hak_os_map(bytes, hak_os_page_bytes);
    if (buffer == NULL) {
        errno = ENOMEM;
        return -1;
    }
    hak_text text;
    hak_text_init(&text, buffer, bytes);
    hak_text_put(&text, "<malloc version=\"1\">\n");
    hak_heaps_each(hak_xml_heap, &text);
    hak_xml_totals(&text, &totals);
    hak_text_put(&text, "</malloc>\n");
    bool written = fwrite(text.buffer, 1, text.length, stream) == text.length;
    hak_os_unmap(buffer, bytes);
    if (!written)
        return -1;
    errno = saved;
    return 0;
}
#endif
