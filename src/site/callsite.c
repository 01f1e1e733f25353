#include "site/callsite.h"

#include <stdatomic.h>

#include "base/bits.h"
#include "heap/emergency.h"
#include "heap/meta.h"

typedef struct hak_site_record {
    const hak_callsite *site;
    _Atomic uint64_t allocs;
    _Atomic uint64_t alloc_bytes;
    _Atomic uint64_t min_bytes;
    _Atomic uint64_t max_bytes;
    _Atomic uint64_t frees;
    _Atomic uint64_t freed_bytes;
} hak_site_record;

/* A site's id is its place in this table, plus one. Fixed in size: a site in a program's source costs
 * a record, and more of them than this are counted together in the last. */
#define HAK_CALLSITES_MAX 4096u

hak_lock hak_callsite_lock = HAK_LOCK_INIT(HAK_RANK_SITES);
static hak_site_record *_Atomic hak_site_records[HAK_CALLSITES_MAX];
static _Atomic uint32_t hak_site_count;

/* NULL where there is no memory for a record: the site then goes uncounted until there is. */
static HAK_COLD hak_site_record *hak_callsite_register(hak_callsite *site)
{
    hak_hot *hot = hak_busy_begin();
    /* In a handler that interrupted a slow path: uncounted. */
    if (hot == &hak_heap_busy)
        return NULL;
    hak_lock_take(&hak_callsite_lock);
    uint32_t id = __atomic_load_n(&site->id, __ATOMIC_RELAXED);
    uint32_t count = atomic_load_explicit(&hak_site_count, memory_order_relaxed);
    if (id == 0 && count == HAK_CALLSITES_MAX)
        id = count;
    if (id == 0) {
        hak_site_record *record = hak_meta_alloc(sizeof *record, HAK_CACHE_LINE);
        if (record != NULL) {
            record->site = site;
            atomic_store_explicit(&record->min_bytes, UINT64_MAX, memory_order_relaxed);
            /* Pairs: both release stores with the acquire loads of readers. */
            atomic_store_explicit(&hak_site_records[count], record, memory_order_release);
            atomic_store_explicit(&hak_site_count, count + 1, memory_order_release);
            id = count + 1;
        }
    }
    /* Pairs: the acquire load in hak_callsite_record. */
    __atomic_store_n(&site->id, id, __ATOMIC_RELEASE);
    hak_lock_drop(&hak_callsite_lock);
    hak_busy_end(hot);
    return id == 0 ? NULL : atomic_load_explicit(&hak_site_records[id - 1], memory_order_relaxed);
}

static hak_site_record *hak_callsite_record(hak_callsite *site)
{
    uint32_t id = __atomic_load_n(&site->id, __ATOMIC_ACQUIRE);
    if (hak_unlikely(id == 0 || id > HAK_CALLSITES_MAX))
        return hak_callsite_register(site);
    return atomic_load_explicit(&hak_site_records[id - 1], memory_order_acquire);
}

static void hak_site_add(_Atomic uint64_t *counter, uint64_t add)
{
    atomic_fetch_add_explicit(counter, add, memory_order_relaxed);
}

void hak_callsite_alloc(hak_callsite *site, size_t bytes)
{
    hak_site_record *r = site == NULL ? NULL : hak_callsite_record(site);
    if (r == NULL)
        return;
    hak_site_add(&r->allocs, 1);
    hak_site_add(&r->alloc_bytes, bytes);
    uint64_t seen = atomic_load_explicit(&r->min_bytes, memory_order_relaxed);
    while (bytes < seen &&
           !atomic_compare_exchange_weak_explicit(&r->min_bytes, &seen, bytes, memory_order_relaxed,
                                                  memory_order_relaxed)) {
    }
    seen = atomic_load_explicit(&r->max_bytes, memory_order_relaxed);
    while (bytes > seen &&
           !atomic_compare_exchange_weak_explicit(&r->max_bytes, &seen, bytes, memory_order_relaxed,
                                                  memory_order_relaxed)) {
    }
}

void hak_callsite_free(hak_callsite *site, size_t bytes)
{
    hak_site_record *r = site == NULL ? NULL : hak_callsite_record(site);
    if (r == NULL)
        return;
    hak_site_add(&r->frees, 1);
    hak_site_add(&r->freed_bytes, bytes);
}

static hak_site_info hak_site_read(const hak_site_record *r, uint32_t id)
{
    hak_site_info info = {
        .file = r->site->file,
        /* Pairs: the store in HAK_CALLSITE(), of the same value at every pass. */
        .function = __atomic_load_n(&r->site->function, __ATOMIC_RELAXED),
        .line = r->site->line,
        .id = id,
        .allocs = atomic_load_explicit(&r->allocs, memory_order_relaxed),
        .alloc_bytes = atomic_load_explicit(&r->alloc_bytes, memory_order_relaxed),
        .max_bytes = atomic_load_explicit(&r->max_bytes, memory_order_relaxed),
        .frees = atomic_load_explicit(&r->frees, memory_order_relaxed),
        .freed_bytes = atomic_load_explicit(&r->freed_bytes, memory_order_relaxed),
    };
    if (info.allocs > 0)
        info.min_bytes = atomic_load_explicit(&r->min_bytes, memory_order_relaxed);
    return info;
}

HAK_EXPORT size_t hak_sites(hak_site_info *out, size_t max)
{
    uint32_t count = atomic_load_explicit(&hak_site_count, memory_order_acquire);
    size_t held = 0;
    if (out == NULL)
        return count;
    for (uint32_t i = 0; i < count; i++) {
        hak_site_info info =
            hak_site_read(atomic_load_explicit(&hak_site_records[i], memory_order_acquire), i + 1);
        /* Insertion keeps those with most bytes, in order. */
        size_t at = held;
        while (at > 0 && out[at - 1].alloc_bytes < info.alloc_bytes)
            at--;
        if (at >= max)
            continue;
        if (held < max)
            held++;
        for (size_t j = held - 1; j > at; j--)
            out[j] = out[j - 1];
        out[at] = info;
    }
    return count;
}
