#include "heap/large.h"

#include <string.h>

#include "heap/central.h"
#include "heap/heap.h"
#include "os/os.h"
#include "policy/policy.h"

/* A span of more than this share of a thread's budget goes to the stock at once: a lock costs little beside
 * what such a span is used for, and a few of them would drive all the others out. */
#define HAK_LARGE_SHARE 8u
/* Into no more parts than this is the budget of all threads cut. */
#define HAK_LARGE_SHARES 16u

/* Spans of one class in the stock, oldest first. */
#define HAK_STOCK_DEPTH 32u

typedef struct hak_stocked {
    char *start;
    uint64_t since_ms;
} hak_stocked;

typedef struct hak_stock_shelf {
    uint32_t count;
    hak_stocked spans[HAK_STOCK_DEPTH];
} hak_stock_shelf;

hak_lock hak_stock_lock = HAK_LOCK_INIT(HAK_RANK_STOCK);

static struct {
    uint64_t shelves; /* a bit for each that is not empty */
    uint64_t bytes;
    hak_stock_shelf shelf[HAK_LARGE_CLASSES];
} hak_stock;
_Static_assert(HAK_LARGE_CLASSES <= 64, "the shelves' bits are a word");

/* Looked at without the lock: is anything old enough to be looked for? */
static _Atomic uint64_t hak_stock_oldest_ms = UINT64_MAX;

/* ---- Classes --------------------------------------------------------------------------------- */

/* The class whose spans hold `size`, above HAK_MID_MAX: the same arithmetic as for mid classes. */
static unsigned hak_large_class(size_t size)
{
    size_t x = size - 1;
    unsigned high = hak_highest_bit(x);
    return (high - 15) * 8 + (unsigned)((x >> (high - 3)) & 7);
}

/* 32 KiB and so many eighths, doubled. */
static uint32_t hak_large_class_units(unsigned class)
{
    uint32_t units = (9 + class % 8) << (class / 8);
    if (hak_unlikely(hak_os_page_bytes > HAK_UNIT_BYTES))
        units = (uint32_t)hak_round_up(units, hak_os_page_bytes >> HAK_UNIT_SHIFT);
    return units;
}
_Static_assert(HAK_MID_MAX == 8 * HAK_UNIT_BYTES, "the eighths of the first doubling are units");

/* The class of a span of exactly so many units, or HAK_LARGE_CLASSES where it is none's. */
static unsigned hak_large_class_exact(uint32_t units)
{
    if (units <= HAK_MID_MAX >> HAK_UNIT_SHIFT)
        return HAK_LARGE_CLASSES;
    unsigned class = hak_large_class((size_t)units << HAK_UNIT_SHIFT);
    return class < HAK_LARGE_CLASSES && hak_large_class_units(class) == units ? class
                                                                              : HAK_LARGE_CLASSES;
}

static uint64_t hak_large_bytes(unsigned class)
{
    return (uint64_t)hak_large_class_units(class) << HAK_UNIT_SHIFT;
}

/* ---- Stock ----------------------------------------------------------------------------------- */

static void hak_stock_publish(void)
{
    uint64_t oldest = UINT64_MAX;
    for (uint64_t left = hak_stock.shelves; left != 0; left &= left - 1) {
        uint64_t since = hak_stock.shelf[hak_lowest_bit(left)].spans[0].since_ms;
        if (since < oldest)
            oldest = since;
    }
    atomic_store_explicit(&hak_stock_oldest_ms, oldest, memory_order_relaxed);
}

static void hak_stock_drop(unsigned class, uint32_t i)
{
    hak_stock_shelf *shelf = &hak_stock.shelf[class];
    shelf->count--;
    if (i < shelf->count)
        memmove(&shelf->spans[i], &shelf->spans[i + 1],
                (shelf->count - i) * sizeof shelf->spans[0]);
    if (shelf->count == 0)
        hak_stock.shelves &= ~(1ull << class);
    hak_stock.bytes -= hak_large_bytes(class);
}

/* The shelf whose oldest span makes way: the fullest has most of what is not asked for. */
static unsigned hak_stock_victim(void)
{
    unsigned victim = HAK_LARGE_CLASSES;
    uint64_t most = 0;
    for (uint64_t left = hak_stock.shelves; left != 0; left &= left - 1) {
        unsigned c = hak_lowest_bit(left);
        uint64_t bytes = hak_stock.shelf[c].count * hak_large_bytes(c);
        if (bytes > most) {
            most = bytes;
            victim = c;
        }
    }
    return victim;
}

/* How much the stock may hold: never more than twice what the program has in spans, so that a small
 * program's stock is small. */
static uint64_t hak_stock_budget(void)
{
    uint64_t budget = hak_knob_get(HAK_KNOB_LARGE_STOCK_BYTES);
    uint64_t live = hak_span_bytes() - hak_stock.bytes;
    return 2 * live < budget ? 2 * live : budget;
}

/* Puts a span into the stock; what must make way for it, or the span itself, goes back to its
 * superslab. Returns how many went. */
static unsigned hak_stock_put(char *span, unsigned class)
{
    uint64_t bytes = hak_large_bytes(class);
    uint64_t now = hak_os_coarse_ms();
    hak_stock_shelf *shelf = &hak_stock.shelf[class];
    for (unsigned went = 0;; went++) {
        unsigned victim = HAK_LARGE_CLASSES;
        char *out = span;
        hak_lock_take(&hak_stock_lock);
        uint64_t budget = hak_stock_budget();
        if (shelf->count < HAK_STOCK_DEPTH && hak_stock.bytes + bytes <= budget) {
            shelf->spans[shelf->count++] = (hak_stocked){.start = span, .since_ms = now};
            hak_stock.shelves |= 1ull << class;
            hak_stock.bytes += bytes;
            if (now < atomic_load_explicit(&hak_stock_oldest_ms, memory_order_relaxed))
                atomic_store_explicit(&hak_stock_oldest_ms, now, memory_order_relaxed);
            out = NULL;
        } else if (bytes <= budget) {
            victim = shelf->count == HAK_STOCK_DEPTH ? class : hak_stock_victim();
            if (victim < HAK_LARGE_CLASSES) {
                out = hak_stock.shelf[victim].spans[0].start;
                hak_stock_drop(victim, 0);
            }
        }
        hak_lock_drop(&hak_stock_lock);
        if (out == NULL)
            return went;
        hak_span_delete(out, hak_large_class_units(victim < HAK_LARGE_CLASSES ? victim : class));
        if (out == span)
            return went + 1;
    }
}

/* The newest span of the class, or of the next ones, that is no larger than the knob allows. */
static char *hak_stock_take(unsigned class, unsigned most)
{
    uint64_t fit = hak_low_mask(most + 1) & ~hak_low_mask(class);
    char *start = NULL;
    hak_lock_take(&hak_stock_lock);
    if ((hak_stock.shelves & fit) != 0) {
        unsigned c = hak_lowest_bit(hak_stock.shelves & fit);
        hak_stock_shelf *shelf = &hak_stock.shelf[c];
        start = shelf->spans[shelf->count - 1].start;
        hak_stock_drop(c, shelf->count - 1);
    }
    hak_lock_drop(&hak_stock_lock);
    return start;
}

void hak_large_tidy(bool all)
{
    uint64_t oldest = atomic_load_explicit(&hak_stock_oldest_ms, memory_order_relaxed);
    if (oldest == UINT64_MAX)
        return;
    uint64_t now = hak_os_coarse_ms();
    uint64_t delay = all ? 0 : hak_knob_get(HAK_KNOB_PURGE_DELAY);
    if (oldest + delay > now)
        return;
    for (unsigned c = 0; c < HAK_LARGE_CLASSES; c++) {
        for (;;) {
            char *start = NULL;
            hak_lock_take(&hak_stock_lock);
            hak_stock_shelf *shelf = &hak_stock.shelf[c];
            if (shelf->count > 0 && shelf->spans[0].since_ms + delay <= now) {
                start = shelf->spans[0].start;
                hak_stock_drop(c, 0);
            }
            hak_lock_drop(&hak_stock_lock);
            if (start == NULL)
                break;
            hak_span_delete(start, hak_large_class_units(c));
        }
    }
    hak_lock_take(&hak_stock_lock);
    hak_stock_publish();
    hak_lock_drop(&hak_stock_lock);
}

void hak_large_stats_read(hak_large_stats *out)
{
    *out = (hak_large_stats){0};
    hak_lock_take(&hak_stock_lock);
    out->stock_bytes = hak_stock.bytes;
    for (unsigned c = 0; c < HAK_LARGE_CLASSES; c++)
        out->stock_spans += hak_stock.shelf[c].count;
    hak_lock_drop(&hak_stock_lock);
}

/* ---- A heap's slots -------------------------------------------------------------------------- */

/* The class that a request of this class may be served from at the most: each is an eighth of a doubling. */
static unsigned hak_large_most(unsigned class, uint64_t waste)
{
    unsigned most = class + (unsigned)(waste / 12);
    return most < HAK_LARGE_CLASSES ? most : HAK_LARGE_CLASSES - 1;
}

HAK_INLINE char *hak_slot_take(hak_heap *heap, unsigned class, unsigned most)
{
    for (unsigned c = class; c <= most; c++) {
        if (heap->large_count[c] == 0)
            continue;
        heap->large_bytes -= hak_large_bytes(c);
        return heap->large[c].start[--heap->large_count[c]];
    }
    return NULL;
}

/* Moves the oldest span of a class from the slots to the stock, or to its superslab. */
static void hak_slot_evict(hak_heap *heap, unsigned class)
{
    char *span = heap->large[class].start[0];
    heap->large_count[class]--;
    memmove(&heap->large[class].start[0], &heap->large[class].start[1],
            heap->large_count[class] * sizeof span);
    heap->large_bytes -= hak_large_bytes(class);
    hak_count(&heap->count.large_returned, hak_stock_put(span, class));
}

void hak_large_flush(hak_heap *heap, uint64_t bytes)
{
    for (unsigned c = HAK_LARGE_CLASSES; c-- > 0 && heap->large_bytes > bytes;)
        while (heap->large_count[c] > 0 && heap->large_bytes > bytes)
            hak_slot_evict(heap, c);
}

/* ---- Blocks ---------------------------------------------------------------------------------- */

/* A request was served: those that fail are not counted, as in the byte countdown. */
static void hak_large_count(hak_heap *heap, size_t size)
{
    hak_count(&heap->count.large_requests, 1);
    hak_count(&heap->count.large_bytes, size);
}

static void *hak_large_take(hak_heap *heap, unsigned class, size_t alignment, bool *zeroed)
{
    *zeroed = false;
    size_t page = hak_max_size(hak_os_page_bytes, HAK_UNIT_BYTES);
    size_t align = hak_max_size(alignment, page);
    if (align == page) {
        unsigned most = hak_large_most(class, hak_knob_get(HAK_KNOB_LARGE_WASTE));
        char *kept = hak_slot_take(heap, class, most);
        if (kept == NULL)
            kept = hak_stock_take(class, most);
        if (kept != NULL) {
            hak_count(&heap->count.large_hits, 1);
            hak_span_mark(kept, HAK_SPAN_KEPT, false);
            return kept;
        }
    }
    void *block =
        hak_span_new(hak_large_class_units(class), (uint32_t)(align >> HAK_UNIT_SHIFT), zeroed);
    if (block != NULL)
        hak_count(&heap->count.large_made, 1);
    return block;
}

void *hak_large_pop(hak_heap *heap, size_t size)
{
    unsigned class = hak_large_class(size);
    char *kept = hak_slot_take(heap, class, hak_large_most(class, heap->knobs.large_waste));
    if (kept == NULL)
        return NULL;
    hak_count(&heap->count.large_hits, 1);
    hak_large_count(heap, size);
    hak_span_mark(kept, HAK_SPAN_KEPT, false);
    return kept;
}

void *hak_large_alloc(hak_heap *heap, size_t size, size_t alignment, bool *zeroed)
{
    void *block = hak_large_take(heap, hak_large_class(size), alignment, zeroed);
    if (block != NULL)
        hak_large_count(heap, size);
    return block;
}

/* What a growing buffer is given: half as much again, of address space only, as long as nobody writes there.
 * Every other realloc, or many where it grows by small steps, then finds the room there. */
static size_t hak_large_ahead(size_t size)
{
    size_t ahead = size + size / 2;
    return ahead < hak_knob_get(HAK_KNOB_BIG_THRESHOLD) ? ahead : size;
}

void *hak_large_alloc_ahead(hak_heap *heap, size_t size)
{
    bool zeroed;
    unsigned class = hak_large_class(size);
    unsigned ahead = hak_large_class(hak_large_ahead(size));
    void *block = hak_large_take(heap, ahead, HAK_UNIT_BYTES, &zeroed);
    if (block == NULL && ahead > class)
        block = hak_large_take(heap, class, HAK_UNIT_BYTES, &zeroed);
    if (block != NULL)
        hak_large_count(heap, size);
    return block;
}

/* The threads' budget is one: a single thread may have all of it, many have a little each. */
static uint64_t hak_slot_budget(const hak_heap *heap)
{
    uint32_t live = hak_heaps_live();
    uint64_t budget = heap->knobs.large_slot_bytes;
    /* Most programs that come here often have one thread: no division for them. */
    if (hak_likely(live <= 1))
        return budget;
    return budget / (live > HAK_LARGE_SHARES ? HAK_LARGE_SHARES : live);
}

/* Into a slot of its class, if a heap is given and has room for it; else into the stock. */
static void hak_large_keep(hak_heap *heap, char *span, unsigned class)
{
    uint64_t bytes = hak_large_bytes(class);
    uint64_t budget = heap != NULL ? hak_slot_budget(heap) : 0;
    if (bytes > budget / HAK_LARGE_SHARE) {
        hak_stock_put(span, class);
        return;
    }
    if (hak_unlikely(heap->large_count[class] == HAK_LARGE_SLOTS))
        hak_slot_evict(heap, class);
    if (hak_unlikely(heap->large_bytes + bytes > budget))
        hak_large_flush(heap, budget / 2);
    heap->large[class].start[heap->large_count[class]++] = span;
    heap->large_bytes += bytes;
}

bool hak_large_free(hak_heap *heap, void *block)
{
    if (((uintptr_t)block & (HAK_UNIT_BYTES - 1)) != 0)
        return false;
    uint16_t *length = hak_span_entry(block);
    uint32_t units = *length & HAK_SPAN_UNITS;
    if (units == 0 || (*length & (HAK_SPAN_KEPT | HAK_SPAN_ASKED)) != 0)
        return false;
    unsigned class = hak_large_class_exact(units);
    /* A span that was grown to its size is not what the program asks for, but what it passes through: it
     * merges with its neighbours at once. */
    if (hak_unlikely(class == HAK_LARGE_CLASSES || (*length & HAK_SPAN_GROWN) != 0)) {
        if (heap != NULL)
            hak_count(&heap->count.large_returned, 1);
        length[1] = 0;
        hak_span_delete(block, units);
        return true;
    }
    *length = (uint16_t)(*length | HAK_SPAN_KEPT);
    hak_large_keep(heap, block, class);
    return true;
}

/* A large span has nine units or more, so that the entry behind its own is nobody else's. */
void hak_large_grown(void *block, size_t size)
{
    uint16_t *length = hak_span_entry(block);
    length[0] = (uint16_t)(length[0] | HAK_SPAN_GROWN);
    size_t page = hak_max_size(HAK_UNIT_BYTES, hak_os_page_bytes);
    length[1] = (uint16_t)(hak_round_up(size, page) >> HAK_UNIT_SHIFT | HAK_SPAN_ASKED);
}

size_t hak_large_usable(const void *block)
{
    uint32_t units = hak_span_units(block);
    const uint16_t *length = hak_span_entry(block);
    if (units != 0 && (length[0] & HAK_SPAN_GROWN) != 0)
        units = length[1] & HAK_SPAN_UNITS;
    return (size_t)units << HAK_UNIT_SHIFT;
}

bool hak_large_resize(hak_heap *heap, void *block, size_t size)
{
    uint32_t units = hak_span_units(block);
    uint32_t want = hak_large_class_units(hak_large_class(size));
    uint32_t most = hak_large_class_units(hak_large_class(hak_large_ahead(size)));
    bool zeroed;
    if (want > HAK_SUPERSLAB_UNITS)
        return false;
    /* Into the room that it was given. */
    if (size > hak_large_usable(block) && want <= units) {
        hak_large_grown(block, size);
        hak_count(&heap->count.large_hits, 1);
        return true;
    }
    /* One that would shrink by little stays as it is: it may grow again. */
    if (want <= units && want >= units - units / 4)
        return true;
    bool done =
        want > units && most <= HAK_SUPERSLAB_UNITS && hak_span_resize(block, units, most, &zeroed);
    if (!done && !hak_span_resize(block, units, want, &zeroed))
        return false;
    hak_large_grown(block, size);
    hak_count(&heap->count.large_hits, 1);
    return true;
}
