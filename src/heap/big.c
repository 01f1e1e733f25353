#include "heap/big.h"

#include <string.h>

#include "heap/central.h"
#include "heap/types.h"
#include "observe/observe.h"
#include "os/os.h"
#include "policy/policy.h"

typedef struct hak_big_entry {
    uintptr_t start; /* 0: free */
    size_t bytes;
} hak_big_entry;

typedef struct hak_cached {
    char *start;
    size_t bytes;
    uint64_t since_ms;
} hak_cached;

#define HAK_BIG_TABLE_FIRST 256u
#define HAK_BIGCACHE_MAX 64u
/* Moving page tables beats faulting pages in, if at least one in so many is there already. */
#define HAK_BIGCACHE_GROW 4u

hak_lock hak_big_lock = HAK_LOCK_INIT(HAK_RANK_BIG);

static struct {
    hak_big_entry *table; /* open addressing, linear probing; a power of two of entries */
    size_t capacity;
    size_t used;
    uint32_t cached_count;
    hak_cached cached[HAK_BIGCACHE_MAX]; /* oldest first */
    hak_big_stats stats;
} hak_big;

/* Looked at without the lock: is there anything old enough to look for? */
static _Atomic uint64_t hak_bigcache_oldest_ms;

/* ---- The table ------------------------------------------------------------------------------- */

static size_t hak_big_hash(uintptr_t start)
{
    return (size_t)((start >> 12) * 0x9E3779B97F4A7C15ull >> 20) & (hak_big.capacity - 1);
}

static hak_big_entry *hak_big_find(uintptr_t start)
{
    if (hak_big.capacity == 0 || start == 0)
        return NULL;
    for (size_t i = hak_big_hash(start);; i = (i + 1) & (hak_big.capacity - 1)) {
        if (hak_big.table[i].start == start)
            return &hak_big.table[i];
        if (hak_big.table[i].start == 0)
            return NULL;
    }
}

static void hak_big_insert(uintptr_t start, size_t bytes)
{
    size_t i = hak_big_hash(start);
    while (hak_big.table[i].start != 0)
        i = (i + 1) & (hak_big.capacity - 1);
    hak_big.table[i] = (hak_big_entry){.start = start, .bytes = bytes};
    hak_big.used++;
    hak_big.stats.live_bytes += bytes;
}

/* Removes an entry and closes the gap in its probe sequence. */
static void hak_big_remove(hak_big_entry *entry)
{
    size_t mask = hak_big.capacity - 1;
    size_t hole = (size_t)(entry - hak_big.table);
    hak_big.stats.live_bytes -= entry->bytes;
    for (size_t i = (hole + 1) & mask; hak_big.table[i].start != 0; i = (i + 1) & mask) {
        size_t home = hak_big_hash(hak_big.table[i].start);
        if (((i - home) & mask) < ((i - hole) & mask))
            continue;
        hak_big.table[hole] = hak_big.table[i];
        hole = i;
    }
    hak_big.table[hole].start = 0;
    hak_big.used--;
}

/* Room for one more entry at a load of a half. */
static bool hak_big_reserve_entry(void)
{
    if (hak_big.used * 2 < hak_big.capacity)
        return true;
    size_t old_capacity = hak_big.capacity;
    hak_big_entry *old = hak_big.table;
    size_t capacity = old_capacity == 0 ? HAK_BIG_TABLE_FIRST : old_capacity * 2;
    size_t bytes = hak_round_up(capacity * sizeof *old, hak_os_page_bytes);
    hak_big_entry *table = hak_os_map(bytes, hak_os_page_bytes);
    if (table == NULL)
        return hak_big.used + 1 < hak_big.capacity;
    uint64_t live = hak_big.stats.live_bytes;
    hak_big.table = table;
    hak_big.capacity = capacity;
    hak_big.used = 0;
    for (size_t i = 0; i < old_capacity; i++)
        if (old[i].start != 0)
            hak_big_insert(old[i].start, old[i].bytes);
    hak_big.stats.live_bytes = live;
    if (old != NULL)
        hak_os_unmap(old, hak_round_up(old_capacity * sizeof *old, hak_os_page_bytes));
    return true;
}

/* ---- BigCache -------------------------------------------------------------------------------- */

static void hak_bigcache_publish(void)
{
    atomic_store_explicit(&hak_bigcache_oldest_ms,
                          hak_big.cached_count > 0 ? hak_big.cached[0].since_ms : UINT64_MAX,
                          memory_order_relaxed);
}

static void hak_bigcache_remove(uint32_t i)
{
    hak_big.stats.cached_bytes -= hak_big.cached[i].bytes;
    hak_big.cached_count--;
    memmove(&hak_big.cached[i], &hak_big.cached[i + 1],
            (hak_big.cached_count - i) * sizeof hak_big.cached[0]);
    hak_bigcache_publish();
}

static void hak_bigcache_drop(uint32_t i)
{
    hak_cached gone = hak_big.cached[i];
    hak_bigcache_remove(i);
    hak_os_unmap(gone.start, gone.bytes);
    hak_big.stats.unmapped++;
}

/* Keeps a mapping if the budget has room once older ones have made way. Neighbours become one: what was
 * cut for one request serves a larger one again. */
static bool hak_bigcache_keep(char *start, size_t bytes)
{
    uint64_t budget = hak_knob_get(HAK_KNOB_BIGCACHE_BYTES);
    if (bytes > budget)
        return false;
    while (hak_big.cached_count > 0 && hak_big.stats.cached_bytes + bytes > budget)
        hak_bigcache_drop(0);
    for (uint32_t i = 0; i < hak_big.cached_count;) {
        hak_cached c = hak_big.cached[i];
        if (c.start + c.bytes == start) {
            start = c.start;
        } else if (start + bytes != c.start) {
            i++;
            continue;
        }
        bytes += c.bytes;
        hak_bigcache_remove(i);
    }
    if (hak_big.cached_count == HAK_BIGCACHE_MAX)
        hak_bigcache_drop(0);
    hak_big.cached[hak_big.cached_count++] =
        (hak_cached){.start = start, .bytes = bytes, .since_ms = hak_os_coarse_ms()};
    hak_big.stats.cached_bytes += bytes;
    hak_bigcache_publish();
    return true;
}

/* The kept mapping that fits most closely, or else the largest; HAK_BIGCACHE_MAX where there is none. */
static uint32_t hak_bigcache_find(size_t need, size_t alignment)
{
    uint32_t best = HAK_BIGCACHE_MAX;
    for (uint32_t i = 0; i < hak_big.cached_count; i++) {
        const hak_cached *c = &hak_big.cached[i];
        if (((uintptr_t)c->start & (alignment - 1)) != 0)
            continue;
        if (best == HAK_BIGCACHE_MAX) {
            best = i;
            continue;
        }
        size_t held = hak_big.cached[best].bytes;
        if (held >= need ? c->bytes >= need && c->bytes < held : c->bytes > held)
            best = i;
    }
    return best;
}

/* A kept mapping made to fit: cut if it is too large by more than the knob allows, grown by moving its
 * page tables if it is too small. What is resident stays so, which is what a kept mapping is for. */
static char *hak_bigcache_take(size_t *bytes, size_t alignment)
{
    size_t need = *bytes;
    uint32_t i = hak_bigcache_find(need, alignment);
    if (i == HAK_BIGCACHE_MAX)
        return NULL;
    hak_cached *c = &hak_big.cached[i];
    char *start = c->start;
    if (c->bytes < need) {
        if (c->bytes < need / HAK_BIGCACHE_GROW)
            return NULL;
        start = hak_os_remap(start, c->bytes, need, alignment <= hak_os_page_bytes);
        if (start != NULL)
            hak_bigcache_remove(i);
        return start;
    }
    size_t waste = (size_t)((uint64_t)need / 100 * hak_knob_get(HAK_KNOB_BIG_WASTE));
    if (c->bytes - need > waste) {
        c->start += need;
        c->bytes -= need;
        hak_big.stats.cached_bytes -= need;
    } else {
        *bytes = c->bytes;
        hak_bigcache_remove(i);
    }
    return start;
}

size_t hak_bigcache_purge(bool all)
{
    uint64_t oldest = atomic_load_explicit(&hak_bigcache_oldest_ms, memory_order_relaxed);
    if (oldest == UINT64_MAX || oldest == 0)
        return 0;
    uint64_t now = hak_os_coarse_ms();
    uint64_t delay = hak_knob_get(HAK_KNOB_PURGE_DELAY);
    if (!all && oldest + delay > now)
        return 0;
    uint64_t begun = hak_prof_begin();
    size_t bytes = 0;
    uint64_t calls = 0;
    hak_lock_take(&hak_big_lock);
    while (hak_big.cached_count > 0 && (all || hak_big.cached[0].since_ms + delay <= now)) {
        bytes += hak_big.cached[0].bytes;
        calls++;
        hak_bigcache_drop(0);
    }
    hak_lock_drop(&hak_big_lock);
    hak_central_count_purge(bytes, calls);
    hak_trace(HAK_EVENT_PURGE, bytes, calls);
    hak_prof_end(HAK_PROF_PURGE, begun);
    return bytes;
}

/* ---- Blocks ---------------------------------------------------------------------------------- */

/* A request was served: those that fail are not counted, as their sizes may be anything. */
static void hak_big_count(size_t size)
{
    hak_big.stats.requests++;
    hak_big.stats.request_bytes += size;
}

void *hak_big_alloc(size_t size, size_t alignment, bool *zeroed)
{
    uint64_t begun = hak_prof_begin();
    size_t bytes = hak_round_up(size, hak_os_page_bytes);
    if (bytes < size)
        return NULL;
    *zeroed = false;
    hak_lock_take(&hak_big_lock);
    bool room = hak_big_reserve_entry();
    char *start = room ? hak_bigcache_take(&bytes, alignment) : NULL;
    bool cached = start != NULL;
    if (cached) {
        hak_big.stats.hits++;
        hak_big_count(size);
        hak_big_insert((uintptr_t)start, bytes);
    }
    hak_lock_drop(&hak_big_lock);
    if (!cached && room) {
        start = hak_os_map(bytes, alignment);
        if (start == NULL && hak_bigcache_purge(true) + hak_central_purge(true) > 0)
            start = hak_os_map(bytes, alignment);
        if (start != NULL) {
            bool huge = hak_knob_get(HAK_KNOB_THP) == 2;
            hak_lock_take(&hak_big_lock);
            if (hak_big_reserve_entry()) {
                hak_big_insert((uintptr_t)start, bytes);
                hak_big.stats.mapped++;
                hak_big_count(size);
            } else {
                hak_os_unmap(start, bytes);
                start = NULL;
            }
            hak_lock_drop(&hak_big_lock);
            if (start != NULL && huge)
                hak_os_huge(start, bytes, true);
            *zeroed = true;
        }
    }
    if (start != NULL)
        hak_trace(HAK_EVENT_BIG_NEW, bytes, cached);
    hak_prof_end(HAK_PROF_BIG, begun);
    return start;
}

bool hak_big_free(void *block)
{
    uint64_t begun = hak_prof_begin();
    size_t bytes = 0;
    bool kept = false;
    hak_lock_take(&hak_big_lock);
    hak_big_entry *entry = hak_big_find((uintptr_t)block);
    if (entry != NULL) {
        bytes = entry->bytes;
        hak_big_remove(entry);
        kept = hak_bigcache_keep(block, bytes);
        if (!kept)
            hak_big.stats.unmapped++;
    }
    hak_lock_drop(&hak_big_lock);
    if (bytes == 0)
        return false;
    if (!kept)
        hak_os_unmap(block, bytes);
    hak_trace(HAK_EVENT_BIG_FREE, bytes, kept);
    hak_prof_end(HAK_PROF_BIG, begun);
    hak_bigcache_purge(false);
    return true;
}

size_t hak_big_usable(const void *block)
{
    hak_lock_take(&hak_big_lock);
    const hak_big_entry *entry = hak_big_find((uintptr_t)block);
    size_t bytes = entry != NULL ? entry->bytes : 0;
    hak_lock_drop(&hak_big_lock);
    return bytes;
}

void *hak_big_resize(void *block, size_t size)
{
    size_t bytes = hak_round_up(size, hak_os_page_bytes);
    if (bytes < size)
        return NULL;
    hak_lock_take(&hak_big_lock);
    hak_big_entry *entry = hak_big_find((uintptr_t)block);
    size_t old = entry != NULL ? entry->bytes : 0;
    /* Out of the table while it moves: the address it leaves may be mapped by another thread at once. */
    if (entry != NULL)
        hak_big_remove(entry);
    hak_lock_drop(&hak_big_lock);
    if (old == 0)
        return NULL;
    /* One that would shrink by little stays as it is: it may grow again. */
    bool stay = bytes <= old && bytes >= old - old / 4;
    char *start = stay ? block : hak_os_remap(block, old, bytes, true);
    hak_lock_take(&hak_big_lock);
    /* The entry just removed left room for one. */
    hak_big_insert(start != NULL ? (uintptr_t)start : (uintptr_t)block,
                   start != NULL && !stay ? bytes : old);
    hak_lock_drop(&hak_big_lock);
    return start;
}

void hak_big_stats_read(hak_big_stats *out)
{
    hak_lock_take(&hak_big_lock);
    *out = hak_big.stats;
    out->live = hak_big.used;
    hak_lock_drop(&hak_big_lock);
}
