#include "heap/central.h"

#include <string.h>

#include "heap/exchange.h"
#include "heap/meta.h"
#include "heap/region.h"
#include "heap/remote.h"
#include "observe/observe.h"
#include "os/os.h"
#include "policy/policy.h"

#define HAK_SLAB_BUCKETS 7u /* order of the largest free run, plus 1; 0: none */
#define HAK_SPAN_BUCKETS (HAK_SUPERSLAB_UNITS + 1)

typedef struct hak_superslab_list {
    hak_superslab *head;
} hak_superslab_list;

hak_lock hak_central_lock = HAK_LOCK_INIT(HAK_RANK_CENTRAL);

static struct {
    bool ready;
    hak_superslab_list empty;
    hak_superslab_list slabs[HAK_SLAB_BUCKETS];
    hak_superslab_list spans[HAK_SPAN_BUCKETS];
    uint64_t span_buckets[(HAK_SPAN_BUCKETS + 63) / 64]; /* which lists of spans are not empty */
    hak_superslab *dirty_head; /* superslabs with empty dirty units, oldest first */
    hak_superslab *dirty_tail;
    hak_bitmaps *bitmaps_free; /* linked through their first word */
    uint64_t slab_bytes;
    uint32_t slabs_of[HAK_CLASS_COUNT];
    uint64_t purge_calls;
    uint64_t purged_bytes;
} hak_central;

/* Written under the lock, looked at without it to see whether a purge is worth taking it. */
static _Atomic uint64_t hak_central_dirty_bytes;
static _Atomic uint64_t hak_central_oldest_ms;

/* Bytes of slabs that have no fresh block left. */
static _Atomic uint64_t hak_carved_bytes;

void hak_slab_carved(const hak_slab *slab)
{
    atomic_fetch_add_explicit(&hak_carved_bytes, HAK_CHUNK_BYTES << slab->order,
                              memory_order_relaxed);
}

bool hak_central_init(void)
{
    hak_lock_take(&hak_central_lock);
    if (!hak_central.ready) {
        hak_os_init();
        hak_classes_init();
        hak_exchange_init();
        hak_central.ready = hak_region_init();
    }
    bool ready = hak_central.ready;
    hak_lock_drop(&hak_central_lock);
    return ready;
}

/* ---- Bitmaps of units ------------------------------------------------------------------------ */

static void hak_units_set(uint64_t *map, uint32_t first, uint32_t count)
{
    while (count > 0) {
        uint32_t bit = first % 64;
        uint32_t here = count < 64 - bit ? count : 64 - bit;
        map[first / 64] |= hak_low_mask(here) << bit;
        first += here;
        count -= here;
    }
}

static void hak_units_clear(uint64_t *map, uint32_t first, uint32_t count)
{
    while (count > 0) {
        uint32_t bit = first % 64;
        uint32_t here = count < 64 - bit ? count : 64 - bit;
        map[first / 64] &= ~(hak_low_mask(here) << bit);
        first += here;
        count -= here;
    }
}

static bool hak_units_any(const uint64_t *map, uint32_t first, uint32_t count)
{
    while (count > 0) {
        uint32_t bit = first % 64;
        uint32_t here = count < 64 - bit ? count : 64 - bit;
        if (map[first / 64] & (hak_low_mask(here) << bit))
            return true;
        first += here;
        count -= here;
    }
    return false;
}

/* The first unit at or after `from` whose bit is `value`, or HAK_SUPERSLAB_UNITS. */
static uint32_t hak_units_next(const uint64_t *map, uint32_t from, bool value)
{
    while (from < HAK_SUPERSLAB_UNITS) {
        uint64_t word = value ? map[from / 64] : ~map[from / 64];
        word &= ~hak_low_mask(from % 64);
        if (word != 0)
            return from / 64 * 64 + hak_lowest_bit(word);
        from = from / 64 * 64 + 64;
    }
    return HAK_SUPERSLAB_UNITS;
}

static uint32_t hak_units_longest(const uint64_t *map)
{
    uint32_t longest = 0;
    for (uint32_t at = hak_units_next(map, 0, true); at < HAK_SUPERSLAB_UNITS;) {
        uint32_t end = hak_units_next(map, at, false);
        if (end - at > longest)
            longest = end - at;
        at = hak_units_next(map, end, true);
    }
    return longest;
}

static uint32_t hak_units_both(const uint64_t *a, const uint64_t *b)
{
    uint32_t count = 0;
    for (unsigned i = 0; i < HAK_UNIT_WORDS; i++)
        count += hak_popcount(a[i] & b[i]);
    return count;
}

/* ---- Lists of superslabs --------------------------------------------------------------------- */

static void hak_superslab_push(hak_superslab_list *list, hak_superslab *s)
{
    s->prev = NULL;
    s->next = list->head;
    if (s->next != NULL)
        s->next->prev = s;
    list->head = s;
}

static void hak_superslab_unlink(hak_superslab_list *list, hak_superslab *s)
{
    if (s->prev != NULL)
        s->prev->next = s->next;
    else
        list->head = s->next;
    if (s->next != NULL)
        s->next->prev = s->prev;
    s->next = s->prev = NULL;
}

/* Log2 of the largest aligned run of free chunks, plus 1; 0 where none is free. */
static unsigned hak_chunks_bucket(uint32_t free_chunks)
{
    unsigned bucket = 0;
    uint32_t starts = free_chunks; /* aligned runs of 2^(bucket) chunks, by their first chunk */
    static const uint32_t aligned[] = {0x55555555u, 0x11111111u, 0x01010101u, 0x00010001u, 0x1u};
    while (starts != 0) {
        bucket++;
        if (bucket > 5)
            break;
        starts = starts & (starts >> (1u << (bucket - 1))) & aligned[bucket - 1];
    }
    return bucket;
}

/* Puts a superslab where its free run belongs, after a change of free_chunks or free_units. */
static void hak_superslab_file(hak_superslab *s)
{
    if (s->kind == HAK_SUPERSLAB_SLABS) {
        unsigned bucket = hak_chunks_bucket(s->free_chunks);
        if (bucket == s->bucket)
            return;
        hak_superslab_unlink(&hak_central.slabs[s->bucket], s);
        s->bucket = (uint16_t)bucket;
        hak_superslab_push(&hak_central.slabs[bucket], s);
    } else {
        uint32_t bucket = hak_units_longest(s->free_units);
        if (bucket == s->bucket)
            return;
        hak_superslab_unlink(&hak_central.spans[s->bucket], s);
        if (hak_central.spans[s->bucket].head == NULL)
            hak_units_clear(hak_central.span_buckets, s->bucket, 1);
        s->bucket = (uint16_t)bucket;
        hak_superslab_push(&hak_central.spans[bucket], s);
        hak_units_set(hak_central.span_buckets, bucket, 1);
    }
}

/* ---- Dirty units ----------------------------------------------------------------------------- */

static void hak_dirty_publish(void)
{
    atomic_store_explicit(&hak_central_oldest_ms,
                          hak_central.dirty_head ? hak_central.dirty_head->dirty_since_ms : 0,
                          memory_order_relaxed);
}

static void hak_dirty_unlist(hak_superslab *s)
{
    if (!s->listed_dirty)
        return;
    if (s->dirty_prev != NULL)
        s->dirty_prev->dirty_next = s->dirty_next;
    else
        hak_central.dirty_head = s->dirty_next;
    if (s->dirty_next != NULL)
        s->dirty_next->dirty_prev = s->dirty_prev;
    else
        hak_central.dirty_tail = s->dirty_prev;
    s->dirty_next = s->dirty_prev = NULL;
    s->listed_dirty = false;
    hak_dirty_publish();
}

static void hak_dirty_list(hak_superslab *s)
{
    if (s->listed_dirty)
        return;
    s->dirty_since_ms = hak_os_coarse_ms();
    s->dirty_prev = hak_central.dirty_tail;
    s->dirty_next = NULL;
    if (hak_central.dirty_tail != NULL)
        hak_central.dirty_tail->dirty_next = s;
    else
        hak_central.dirty_head = s;
    hak_central.dirty_tail = s;
    s->listed_dirty = true;
    hak_dirty_publish();
}

/* A superslab that has run empty. Where it has huge pages, what was never given out is resident too. */
static void hak_superslab_emptied(hak_superslab *s)
{
    s->kind = HAK_SUPERSLAB_EMPTY;
    hak_superslab_push(&hak_central.empty, s);
    if (s->huge)
        hak_units_set(s->dirty_map, 0, HAK_SUPERSLAB_UNITS);
}

/* Recounts the free dirty units of a superslab after a change. */
static void hak_dirty_recount(hak_superslab *s)
{
    uint32_t now = hak_units_both(s->free_units, s->dirty_map);
    uint64_t total = atomic_load_explicit(&hak_central_dirty_bytes, memory_order_relaxed);
    total =
        total + ((uint64_t)now << HAK_UNIT_SHIFT) - ((uint64_t)s->dirty_units << HAK_UNIT_SHIFT);
    atomic_store_explicit(&hak_central_dirty_bytes, total, memory_order_relaxed);
    s->dirty_units = now;
    if (now == 0)
        hak_dirty_unlist(s);
    else
        hak_dirty_list(s);
}

static size_t hak_superslab_purge(hak_superslab *s)
{
    size_t page_units = hak_os_page_bytes >> HAK_UNIT_SHIFT;
    size_t purged = 0;
    uint64_t map[HAK_UNIT_WORDS];
    for (unsigned i = 0; i < HAK_UNIT_WORDS; i++)
        map[i] = s->free_units[i] & s->dirty_map[i];
    for (uint32_t at = hak_units_next(map, 0, true); at < HAK_SUPERSLAB_UNITS;) {
        uint32_t end = hak_units_next(map, at, false);
        uint32_t first = (uint32_t)hak_round_up(at, page_units);
        uint32_t last = (uint32_t)hak_round_down(end, page_units);
        if (first < last) {
            size_t bytes = (size_t)(last - first) << HAK_UNIT_SHIFT;
            if (hak_os_purge(s->start + ((size_t)first << HAK_UNIT_SHIFT), bytes)) {
                hak_units_clear(s->dirty_map, first, last - first);
                purged += bytes;
            }
            hak_central.purge_calls++;
        }
        at = hak_units_next(map, end, true);
    }
    hak_dirty_recount(s);
    /* What could not be given back (locked pages, parts of a page) must not stop the queue. */
    hak_dirty_unlist(s);
    return purged;
}

bool hak_central_purge_due(void)
{
    uint64_t dirty = atomic_load_explicit(&hak_central_dirty_bytes, memory_order_relaxed);
    /* What the system would not take (locked pages) is counted, but nowhere in the queue. */
    return dirty > hak_knob_get(HAK_KNOB_RETAIN_BYTES) &&
           atomic_load_explicit(&hak_central_oldest_ms, memory_order_relaxed) != 0;
}

size_t hak_central_purge(bool all)
{
    uint64_t begun = hak_prof_begin();
    uint64_t retain = all ? 0 : hak_knob_get(HAK_KNOB_RETAIN_BYTES);
    uint64_t batch = all ? UINT64_MAX : hak_knob_get(HAK_KNOB_PURGE_BATCH);
    uint64_t delay = all ? 0 : hak_knob_get(HAK_KNOB_PURGE_DELAY);
    uint64_t now = hak_os_coarse_ms();
    size_t purged = 0;
    hak_lock_take(&hak_central_lock);
    uint64_t calls = hak_central.purge_calls;
    while (purged < batch && hak_central.dirty_head != NULL &&
           atomic_load_explicit(&hak_central_dirty_bytes, memory_order_relaxed) > retain) {
        hak_superslab *s = hak_central.dirty_head;
        if (!all && s->dirty_since_ms + delay > now)
            break;
        purged += hak_superslab_purge(s);
    }
    hak_central.purged_bytes += purged;
    calls = hak_central.purge_calls - calls;
    hak_lock_drop(&hak_central_lock);
    if (calls > 0)
        hak_trace(HAK_EVENT_PURGE, purged, calls);
    hak_prof_end(HAK_PROF_PURGE, begun);
    return purged;
}

void hak_central_count_purge(uint64_t bytes, uint64_t calls)
{
    hak_lock_take(&hak_central_lock);
    hak_central.purged_bytes += bytes;
    hak_central.purge_calls += calls;
    hak_lock_drop(&hak_central_lock);
}

/* ---- Superslabs ------------------------------------------------------------------------------ */

static void hak_tags_set(const char *start, size_t chunks, uint32_t tag)
{
    uint32_t *tags = &hak_chunk_map.tags[(uintptr_t)start >> HAK_CHUNK_SHIFT];
    for (size_t i = 0; i < chunks; i++)
        __atomic_store_n(&tags[i], tag, __ATOMIC_RELAXED);
}

static hak_superslab *hak_superslab_new(void)
{
    char *start = hak_region_take();
    if (start == NULL)
        return NULL;
    hak_superslab *s = hak_meta_alloc(sizeof *s, HAK_CACHE_LINE);
    if (s == NULL) {
        hak_region_untake(start);
        return NULL;
    }
    s->start = start;
    /* Where the system makes everything huge, a heap that is small or sparse asks it not to. */
    if (hak_os_huge_always && hak_knob_get(HAK_KNOB_THP) != 2)
        hak_os_huge(start, HAK_SUPERSLAB_BYTES, false);
    for (unsigned i = 0; i < HAK_UNIT_WORDS; i++)
        s->free_units[i] = ~0ull;
    /* Pairs: the acquire load in hak_superslab_of. */
    atomic_store_explicit(&hak_superslab_table[(uintptr_t)start >> HAK_SUPERSLAB_SHIFT], s,
                          memory_order_release);
    return s;
}

/* Huge pages for superslabs of slabs where the heap is large, by what was carved out of slabs and not by
 * what they could hold, and three quarters of it dense: many threads with a page of each slab in use
 * must not be given 2 MiB for each. Spans are often touched in part only. */
static bool hak_dense(void)
{
    uint64_t carved = atomic_load_explicit(&hak_carved_bytes, memory_order_relaxed);
    return carved > hak_knob_get(HAK_KNOB_HUGE_GATE) && carved > hak_central.slab_bytes / 4 * 3;
}

static void hak_superslab_huge(hak_superslab *s)
{
    uint64_t thp = hak_knob_get(HAK_KNOB_THP);
    bool huge = hak_os_huge_given &&
                (thp == 2 || (thp == 1 && s->kind == HAK_SUPERSLAB_SLABS && hak_dense()));
    if (huge == s->huge)
        return;
    s->huge = huge;
    hak_os_huge(s->start, HAK_SUPERSLAB_BYTES, huge);
}

/* An empty superslab, made one of `kind`, in no list. */
static hak_superslab *hak_superslab_take(hak_superslab_kind kind)
{
    hak_superslab *s = hak_central.empty.head;
    if (s != NULL)
        hak_superslab_unlink(&hak_central.empty, s);
    else if ((s = hak_superslab_new()) == NULL)
        return NULL;
    s->kind = (uint8_t)kind;
    hak_superslab_huge(s);
    if (kind == HAK_SUPERSLAB_SLABS) {
        /* Headers keep what a delayed post may still touch: owner, mailed, mail_next. */
        s->free_chunks = UINT32_MAX;
        s->bucket = 6;
        hak_superslab_push(&hak_central.slabs[s->bucket], s);
    } else {
        s->bucket = HAK_SUPERSLAB_UNITS;
        hak_superslab_push(&hak_central.spans[s->bucket], s);
        hak_units_set(hak_central.span_buckets, s->bucket, 1);
        hak_tags_set(s->start, HAK_SUPERSLAB_CHUNKS, HAK_TAG_SPAN);
    }
    return s;
}

/* ---- Slabs ----------------------------------------------------------------------------------- */

void hak_slab_tag(hak_slab *slab, uint32_t owner)
{
    hak_tags_set(slab->start, (size_t)1 << slab->order,
                 (owner << HAK_TAG_OWNER_SHIFT) | ((uint32_t)slab->class << HAK_CLASS_SHIFT));
}

static hak_bitmaps *hak_bitmaps_take(void)
{
    hak_bitmaps *maps = hak_central.bitmaps_free;
    if (maps == NULL)
        return hak_meta_alloc(sizeof *maps, HAK_CACHE_LINE);
    hak_central.bitmaps_free = (hak_bitmaps *)(uintptr_t)maps->free_bits[0];
    maps->free_bits[0] = 0;
    return maps;
}

static void hak_bitmaps_give(hak_bitmaps *maps)
{
    maps->free_bits[0] = (uintptr_t)hak_central.bitmaps_free;
    hak_central.bitmaps_free = maps;
}

static hak_superslab *hak_slab_superslab(unsigned order)
{
    for (unsigned bucket = order + 1; bucket < HAK_SLAB_BUCKETS; bucket++)
        if (hak_central.slabs[bucket].head != NULL)
            return hak_central.slabs[bucket].head;
    return hak_superslab_take(HAK_SUPERSLAB_SLABS);
}

/* The first aligned run of 2^order free chunks. */
static unsigned hak_chunks_find(uint32_t free_chunks, unsigned order)
{
    uint32_t starts = free_chunks;
    static const uint32_t aligned[] = {0xFFFFFFFFu, 0x55555555u, 0x11111111u, 0x01010101u};
    for (unsigned i = 0; i < order; i++)
        starts &= starts >> (1u << i);
    return hak_lowest_bit(starts & aligned[order]);
}

hak_slab *hak_slab_new(unsigned class, hak_heap *heap)
{
    uint64_t begun = hak_prof_begin();
    const hak_class_info *info = &hak_classes[class];
    unsigned words = (info->blocks + 63u) / 64u;
    hak_slab *slab = NULL;
    hak_lock_take(&hak_central_lock);
    hak_bitmaps *maps = NULL;
    if (words > HAK_INLINE_WORDS && (maps = hak_bitmaps_take()) == NULL)
        goto done;
    hak_superslab *s = hak_slab_superslab(info->order);
    if (s == NULL) {
        if (maps != NULL)
            hak_bitmaps_give(maps);
        goto done;
    }
    unsigned first = hak_chunks_find(s->free_chunks, info->order);
    s->free_chunks &= ~(uint32_t)(hak_low_mask(info->chunks) << first);
    hak_units_clear(s->free_units, first * HAK_CHUNK_UNITS, info->chunks * HAK_CHUNK_UNITS);
    hak_superslab_file(s);
    hak_dirty_recount(s);
    hak_central.slab_bytes += (uint64_t)info->chunks << HAK_CHUNK_SHIFT;
    hak_central.slabs_of[class]++;

    slab = &s->slabs[first];
    slab->next = slab->prev = NULL;
    slab->start = s->start + ((size_t)first << HAK_CHUNK_SHIFT);
    slab->superslab = s;
    slab->free_bits = maps != NULL ? maps->free_bits : slab->free_inline;
    slab->remote_bits = maps != NULL ? maps->remote_bits : slab->remote_inline;
    slab->free_words = 0;
    slab->due = 0;
    slab->beyond = 0;
    slab->fresh = 0;
    slab->blocks = info->blocks;
    slab->class = (uint8_t) class;
    slab->order = info->order;
    slab->words = (uint8_t)words;
    slab->state = HAK_SLAB_AVAILABLE;
    slab->purged = false;
    slab->shared_start = slab->start;
    size_t chunk = (uintptr_t)slab->start >> HAK_CHUNK_SHIFT;
    for (size_t i = 0; i < info->chunks; i++)
        atomic_store_explicit(&hak_slab_table[chunk + i], slab, memory_order_relaxed);
    atomic_store_explicit(&slab->owner, heap, memory_order_release);
    hak_slab_tag(slab, heap->owner);
    /* Mail of the slab that was here before may still lie with the orphans, and until it is passed on
     * nobody mails this one. */
    if (atomic_load_explicit(&slab->mailed, memory_order_relaxed) != 0)
        hak_orphans_drain_locked();
done:
    hak_lock_drop(&hak_central_lock);
    if (slab != NULL)
        hak_trace(HAK_EVENT_SLAB_NEW, class, info->chunks);
    hak_prof_end(HAK_PROF_SLAB, begun);
    return slab;
}

void hak_slab_delete_locked(hak_slab *slab)
{
    const hak_class_info *info = &hak_classes[slab->class];
    hak_superslab *s = slab->superslab;
    unsigned first = (unsigned)(slab - s->slabs);
    hak_assert(hak_slab_used(slab) == 0);
    hak_tags_set(slab->start, info->chunks, 0);
    if (slab->fresh == slab->blocks)
        atomic_fetch_sub_explicit(&hak_carved_bytes, HAK_CHUNK_BYTES << slab->order,
                                  memory_order_relaxed);
    /* All bits are back: the bitmaps are zero but for the blocks given out before. */
    for (unsigned i = 0; i < slab->words; i++)
        slab->free_bits[i] = 0;
    if (slab->words > HAK_INLINE_WORDS)
        hak_bitmaps_give((hak_bitmaps *)(void *)slab->free_bits);
    slab->state = HAK_SLAB_NONE;
    /* A late mail of it goes to the orphans, whose drain holds the lock that slabs are made under: so
     * no heap ever takes for its own a slab that is being made for another. */
    atomic_store_explicit(&slab->owner, &hak_orphans, memory_order_release);
    size_t touched = (size_t)slab->fresh * info->bytes;
    hak_units_set(s->dirty_map, first * HAK_CHUNK_UNITS,
                  (uint32_t)(hak_round_up(touched, HAK_UNIT_BYTES) >> HAK_UNIT_SHIFT));
    hak_units_set(s->free_units, first * HAK_CHUNK_UNITS, info->chunks * HAK_CHUNK_UNITS);
    s->free_chunks |= (uint32_t)(hak_low_mask(info->chunks) << first);
    hak_central.slab_bytes -= (uint64_t)info->chunks << HAK_CHUNK_SHIFT;
    hak_central.slabs_of[slab->class]--;
    if (s->free_chunks == UINT32_MAX) {
        hak_superslab_unlink(&hak_central.slabs[s->bucket], s);
        hak_superslab_emptied(s);
    } else {
        hak_superslab_file(s);
    }
    hak_dirty_recount(s);
    hak_trace(HAK_EVENT_SLAB_FREE, slab->class, info->chunks);
}

void hak_slab_delete(hak_slab *slab)
{
    uint64_t begun = hak_prof_begin();
    hak_lock_take(&hak_central_lock);
    hak_slab_delete_locked(slab);
    hak_lock_drop(&hak_central_lock);
    hak_prof_end(HAK_PROF_SLAB, begun);
    if (hak_central_purge_due())
        hak_central_purge(false);
}

/* ---- Spans ----------------------------------------------------------------------------------- */

static _Atomic uint64_t hak_span_bytes_now; /* written under the lock */

static void hak_span_bytes_add(uint64_t bytes)
{
    uint64_t now = atomic_load_explicit(&hak_span_bytes_now, memory_order_relaxed);
    atomic_store_explicit(&hak_span_bytes_now, now + bytes, memory_order_relaxed);
}

uint64_t hak_span_bytes(void)
{
    return atomic_load_explicit(&hak_span_bytes_now, memory_order_relaxed);
}

/* The first run of `units` free units on a multiple of `align`, or HAK_SUPERSLAB_UNITS. */
static uint32_t hak_span_find(const uint64_t *map, uint32_t units, uint32_t align)
{
    uint32_t at = hak_units_next(map, 0, true);
    while (at < HAK_SUPERSLAB_UNITS) {
        uint32_t end = hak_units_next(map, at, false);
        uint32_t start = (uint32_t)hak_round_up(at, align);
        if (start + units <= end)
            return start;
        at = hak_units_next(map, end, true);
    }
    return HAK_SUPERSLAB_UNITS;
}

/* The superslab whose longest free run fits most closely, and where in it. */
static hak_superslab *hak_span_superslab(uint32_t units, uint32_t align, uint32_t *first)
{
    for (uint32_t bucket = units; bucket <= HAK_SUPERSLAB_UNITS; bucket++) {
        uint64_t word = hak_central.span_buckets[bucket / 64] & ~hak_low_mask(bucket % 64);
        if (word == 0) {
            bucket = bucket / 64 * 64 + 63;
            continue;
        }
        bucket = bucket / 64 * 64 + hak_lowest_bit(word);
        for (hak_superslab *s = hak_central.spans[bucket].head; s != NULL; s = s->next) {
            *first = hak_span_find(s->free_units, units, align);
            if (*first < HAK_SUPERSLAB_UNITS)
                return s;
        }
    }
    *first = 0;
    return hak_superslab_take(HAK_SUPERSLAB_SPANS);
}

char *hak_span_new(uint32_t units, uint32_t align_units, bool *zeroed)
{
    uint64_t begun = hak_prof_begin();
    char *span = NULL;
    uint32_t first;
    hak_lock_take(&hak_central_lock);
    hak_superslab *s = hak_span_superslab(units, align_units, &first);
    if (s != NULL) {
        hak_units_clear(s->free_units, first, units);
        *zeroed = !hak_units_any(s->dirty_map, first, units);
        s->span_length[first] = (uint16_t)units;
        hak_superslab_file(s);
        hak_dirty_recount(s);
        hak_span_bytes_add((uint64_t)units << HAK_UNIT_SHIFT);
        span = s->start + ((size_t)first << HAK_UNIT_SHIFT);
    }
    hak_lock_drop(&hak_central_lock);
    if (span != NULL)
        hak_trace(HAK_EVENT_SPAN_NEW, (uint64_t)units << HAK_UNIT_SHIFT, *zeroed);
    hak_prof_end(HAK_PROF_SPAN, begun);
    return span;
}

/* Units [first, first + units) become free and dirty. */
static void hak_span_release(hak_superslab *s, uint32_t first, uint32_t units)
{
    hak_units_set(s->free_units, first, units);
    hak_units_set(s->dirty_map, first, units);
    hak_span_bytes_add(-((uint64_t)units << HAK_UNIT_SHIFT));
    hak_superslab_file(s);
    if (s->bucket == HAK_SUPERSLAB_UNITS) {
        hak_superslab_unlink(&hak_central.spans[s->bucket], s);
        if (hak_central.spans[s->bucket].head == NULL)
            hak_units_clear(hak_central.span_buckets, s->bucket, 1);
        hak_superslab_emptied(s);
        hak_tags_set(s->start, HAK_SUPERSLAB_CHUNKS, 0);
    }
    hak_dirty_recount(s);
}

void hak_span_delete(char *span, uint32_t units)
{
    uint64_t begun = hak_prof_begin();
    hak_superslab *s = hak_superslab_of(span);
    uint32_t first = (uint32_t)((size_t)(span - s->start) >> HAK_UNIT_SHIFT);
    hak_lock_take(&hak_central_lock);
    s->span_length[first] = 0;
    hak_span_release(s, first, units);
    uint64_t dirty = atomic_load_explicit(&hak_central_dirty_bytes, memory_order_relaxed);
    hak_lock_drop(&hak_central_lock);
    hak_trace(HAK_EVENT_SPAN_FREE, (uint64_t)units << HAK_UNIT_SHIFT, dirty);
    hak_prof_end(HAK_PROF_SPAN, begun);
    if (hak_central_purge_due())
        hak_central_purge(false);
}

static uint32_t hak_span_first(const hak_superslab *s, const void *address)
{
    return (uint32_t)((size_t)((const char *)address - s->start) >> HAK_UNIT_SHIFT);
}

bool hak_span_resize(char *span, uint32_t units, uint32_t new_units, bool *zeroed)
{
    hak_superslab *s = hak_superslab_of(span);
    uint32_t first = hak_span_first(s, span);
    bool done = true;
    hak_lock_take(&hak_central_lock);
    if (new_units > units) {
        uint32_t behind = first + units;
        uint32_t gain = new_units - units;
        done = behind + gain <= HAK_SUPERSLAB_UNITS &&
               hak_units_next(s->free_units, behind, false) >= behind + gain;
        if (done) {
            hak_units_clear(s->free_units, behind, gain);
            *zeroed = !hak_units_any(s->dirty_map, behind, gain);
            hak_span_bytes_add((uint64_t)gain << HAK_UNIT_SHIFT);
            s->span_length[first] = (uint16_t)new_units;
            hak_superslab_file(s);
            hak_dirty_recount(s);
        }
    } else if (new_units < units) {
        s->span_length[first] = (uint16_t)new_units;
        hak_span_release(s, first + new_units, units - new_units);
    }
    hak_lock_drop(&hak_central_lock);
    return done;
}

void hak_central_stats_read(hak_central_stats *out)
{
    hak_lock_take(&hak_central_lock);
    out->reserved_bytes = hak_region_reserved();
    out->mapped_bytes = hak_region_mapped();
    out->slab_bytes = hak_central.slab_bytes;
    out->span_bytes = hak_span_bytes();
    out->free_dirty_bytes = atomic_load_explicit(&hak_central_dirty_bytes, memory_order_relaxed);
    out->purged_bytes = hak_central.purged_bytes;
    out->purge_calls = hak_central.purge_calls;
    memcpy(out->slabs, hak_central.slabs_of, sizeof out->slabs);
    hak_lock_drop(&hak_central_lock);
}
