#include "heap/heap.h"

#include <pthread.h>

#include "heap/big.h"
#include "heap/bin.h"
#include "heap/central.h"
#include "heap/emergency.h"
#include "heap/exchange.h"
#include "heap/large.h"
#include "heap/meta.h"
#include "heap/remote.h"
#include "observe/observe.h"
#include "os/os.h"
#include "policy/policy.h"

/* Bits of the count of heartbeats at whose change bins are looked at, and trimmed; and what a heartbeat
 * counts that a tiny or mid request met. */
#define HAK_BEAT_BINS 16u
#define HAK_BEATS_TIDY 16u
#define HAK_BEATS_WATCH 256u
#define HAK_BEATS_TRIM 2048u

/* Their countdown is below zero from the start, so that even malloc(0) never gets to their bins; and these
 * are full, with no room at all. */
hak_hot hak_heap_none = {.countdown = -1};
hak_hot hak_heap_busy = {.countdown = -1};
hak_hot hak_heap_gone = {.countdown = -1};
__thread hak_hot *hak_heap_tls = &hak_heap_none;

hak_lock hak_heaps_lock = HAK_LOCK_INIT(HAK_RANK_HEAPS);
static hak_heap *hak_heaps_all;
static hak_heap *hak_heaps_free;
static uint32_t hak_heaps_next_owner = HAK_OWNER_FIRST;

/* Heaps without a thread that are whole; looked at without the lock. */
static _Atomic uint32_t hak_heaps_whole;

/* Since when the oldest of them has been so, or earlier. */
static _Atomic uint64_t hak_heaps_oldest_ms;

static void hak_heaps_whole_add(int change)
{
    uint32_t count = atomic_load_explicit(&hak_heaps_whole, memory_order_relaxed);
    atomic_store_explicit(&hak_heaps_whole, count + (uint32_t)change, memory_order_relaxed);
}

static _Atomic uint32_t hak_heaps_live_now; /* written under the lock of the heaps */

uint32_t hak_heaps_live(void)
{
    return atomic_load_explicit(&hak_heaps_live_now, memory_order_relaxed);
}

static void hak_heaps_live_add(int change)
{
    atomic_store_explicit(&hak_heaps_live_now, hak_heaps_live() + (uint32_t)change,
                          memory_order_relaxed);
}

static pthread_key_t hak_thread_key;
static _Atomic bool hak_thread_key_ready;

/* ---- Taking and giving up -------------------------------------------------------------------- */

/* Anything from half to one and a half times the knob, so that a program with a rhythm of its own does
 * not meet every heartbeat with the same request. */
static void hak_countdown_start(hak_heap *heap)
{
    uint64_t mean = heap->knobs.heartbeat_bytes;
    heap->random = heap->random * 6364136223846793005ull + 1442695040888963407ull;
    int64_t start = (int64_t)(mean / 2 + ((heap->random >> 32) * mean >> 32));
    __atomic_store_n(&heap->countdown_start, start, __ATOMIC_RELAXED);
    __atomic_store_n(&heap->hot.countdown, start, __ATOMIC_RELAXED);
}

uint64_t hak_heap_served(const hak_heap *heap)
{
    return hak_count_read(&heap->served_before) +
           (uint64_t)(__atomic_load_n(&heap->countdown_start, __ATOMIC_RELAXED) -
                      __atomic_load_n(&heap->hot.countdown, __ATOMIC_RELAXED));
}

/* A heap without a thread, or a new one. */
static hak_heap *hak_heap_take(void)
{
    if (!hak_central_init())
        return NULL;
    uint64_t begun = hak_prof_begin();
    hak_lock_take(&hak_heaps_lock);
    hak_heap *heap = hak_heaps_free;
    bool reused = heap != NULL;
    if (reused) {
        hak_heaps_free = heap->next_free;
        if (heap->whole) {
            heap->whole = false;
            hak_heaps_whole_add(-1);
        }
    } else if (hak_heaps_next_owner <= HAK_OWNER_MAX) {
        heap = hak_meta_alloc(sizeof *heap, HAK_CACHE_LINE);
        if (heap != NULL) {
            heap->owner = hak_heaps_next_owner++;
            heap->random = heap->owner;
            heap->knobs.generation = UINT64_MAX;
            hak_bins_init(heap);
            heap->next_all = hak_heaps_all;
            hak_heaps_all = heap;
        }
    }
    if (heap != NULL) {
        heap->live = true;
        hak_heaps_live_add(1);
    }
    hak_lock_drop(&hak_heaps_lock);
    if (heap != NULL) {
        hak_heap_follow_policy(heap);
        hak_countdown_start(heap);
        hak_trace(HAK_EVENT_HEAP_TAKE, heap->owner, reused);
    }
    hak_prof_end(HAK_PROF_HEAP, begun);
    return heap;
}

void hak_heap_empty(hak_heap *heap)
{
    hak_remote_drain(heap);
    for (unsigned c = 1; c < HAK_CLASS_COUNT; c++)
        hak_bin_spill(heap, c, hak_bin_count(heap, c));
    hak_large_flush(heap, 0);
}

size_t hak_heap_purge(hak_heap *heap)
{
    uint64_t begun = hak_prof_begin();
    uint64_t calls = 0;
    size_t purged = 0;
    for (unsigned c = 1; c < HAK_CLASS_COUNT; c++)
        purged += hak_slabs_purge(&heap->back[c].available, &calls);
    if (calls > 0) {
        hak_central_count_purge(purged, calls);
        hak_trace(HAK_EVENT_PURGE, purged, calls);
    }
    hak_prof_end(HAK_PROF_PURGE, begun);
    return purged;
}

/* What others may need at once is let go of: their blocks, and spans. The rest waits for the next
 * thread: programs that end threads mostly start others. */
static void hak_heap_give(hak_heap *heap)
{
    uint64_t begun = hak_prof_begin();
    hak_bins_part(heap);
    hak_remote_drain(heap);
    hak_large_flush(heap, 0);
    hak_count(&heap->served_before, (uint64_t)(heap->countdown_start - heap->hot.countdown));
    __atomic_store_n(&heap->countdown_start, 0, __ATOMIC_RELAXED);
    __atomic_store_n(&heap->hot.countdown, 0, __ATOMIC_RELAXED);
    hak_trace(HAK_EVENT_HEAP_GIVE, heap->owner, hak_heaps_live() - 1);
    uint64_t now = hak_os_coarse_ms();
    hak_lock_take(&hak_heaps_lock);
    heap->live = false;
    hak_heaps_live_add(-1);
    heap->whole = true;
    heap->since_ms = now;
    heap->next_free = hak_heaps_free;
    hak_heaps_free = heap;
    if (atomic_load_explicit(&hak_heaps_whole, memory_order_relaxed) == 0)
        atomic_store_explicit(&hak_heaps_oldest_ms, now, memory_order_relaxed);
    hak_heaps_whole_add(1);
    hak_lock_drop(&hak_heaps_lock);
    hak_prof_end(HAK_PROF_HEAP, begun);
}

/* Newest first in the list, and whole ones before those that were dissolved: the last whole one is the
 * oldest. NULL where it is younger than `before_ms`. Taken out of the list. */
static hak_heap *hak_heaps_take_oldest(uint64_t before_ms)
{
    hak_heap **link = &hak_heaps_free;
    hak_heap **oldest = NULL;
    for (; *link != NULL && (*link)->whole; link = &(*link)->next_free)
        oldest = link;
    uint64_t since = oldest != NULL ? (*oldest)->since_ms : 0;
    atomic_store_explicit(&hak_heaps_oldest_ms, since, memory_order_relaxed);
    if (oldest == NULL || since > before_ms)
        return NULL;
    hak_heap *heap = *oldest;
    *oldest = heap->next_free;
    heap->whole = false;
    hak_heaps_whole_add(-1);
    return heap;
}

/* Done without the lock of the heaps, so that threads start and end meanwhile: nobody else knows of the
 * heap then. One at a time, but where all are asked for. */
void hak_heaps_dissolve(bool all)
{
    if (atomic_load_explicit(&hak_heaps_whole, memory_order_relaxed) == 0)
        return;
    uint64_t delay = all ? 0 : hak_knob_get(HAK_KNOB_PURGE_DELAY);
    uint64_t now = hak_os_coarse_ms();
    if (!all && atomic_load_explicit(&hak_heaps_oldest_ms, memory_order_relaxed) + delay > now)
        return;
    do {
        hak_lock_take(&hak_heaps_lock);
        hak_heap *heap = hak_heaps_take_oldest(now - delay);
        hak_lock_drop(&hak_heaps_lock);
        if (heap == NULL)
            return;
        hak_heap_empty(heap);
        hak_orphans_leave(heap);
        hak_mailbox_forward(heap);
        hak_lock_take(&hak_heaps_lock);
        hak_heap **end = &hak_heaps_free;
        while (*end != NULL)
            end = &(*end)->next_free;
        heap->next_free = NULL;
        *end = heap;
        hak_lock_drop(&hak_heaps_lock);
    } while (all);
}

static void hak_thread_ends(void *hot)
{
    /* Cancelled in the middle of a slow path: the heap may be half changed, and goes to nobody. */
    bool whole = hak_heap_tls != &hak_heap_busy;
    hak_heap_tls = &hak_heap_busy;
    if (hot != NULL && whole)
        hak_heap_give(hak_heap_of(hot));
    hak_heap_tls = &hak_heap_gone;
}

void hak_heap_watch_threads(void)
{
    if (pthread_key_create(&hak_thread_key, hak_thread_ends) == 0)
        atomic_store_explicit(&hak_thread_key_ready, true, memory_order_release);
}

hak_heap *hak_heap_mine(hak_hot *hot)
{
    if (hak_likely(hak_heap_is_real(hot)))
        return hak_heap_of(hot);
    if (hot == &hak_heap_gone)
        return NULL;
    hak_busy_begin();
    hak_heap *heap = hak_heap_take();
    hak_busy_end(heap != NULL ? &heap->hot : hot);
    if (heap == NULL)
        return NULL;
    /* First the pointer: pthread_setspecific may allocate. Pairs with the release store above. The
     * thread that runs the constructors may lack the key: it ends with the process. */
    if (atomic_load_explicit(&hak_thread_key_ready, memory_order_acquire))
        pthread_setspecific(hak_thread_key, heap);
    return heap;
}

hak_heap *hak_heap_borrow(void)
{
    return hak_heap_take();
}

void hak_heap_return(hak_heap *heap)
{
    hak_heap_give(heap);
}

void hak_heaps_each(void (*visit)(hak_heap *heap, void *context), void *context)
{
    hak_hot *hot = hak_busy_begin();
    hak_lock_take(&hak_heaps_lock);
    visit(&hak_orphans, context);
    for (hak_heap *heap = hak_heaps_all; heap != NULL; heap = heap->next_all)
        visit(heap, context);
    hak_lock_drop(&hak_heaps_lock);
    hak_busy_end(hot);
}

void hak_heaps_forked(const hak_heap *mine)
{
    hak_lock_take(&hak_heaps_lock);
    for (hak_heap *heap = hak_heaps_all; heap != NULL; heap = heap->next_all)
        if (heap->live && heap != mine)
            heap->torn = true;
    atomic_store_explicit(&hak_heaps_live_now, mine != NULL, memory_order_relaxed);
    hak_lock_drop(&hak_heaps_lock);
}

/* ---- Policy ---------------------------------------------------------------------------------- */

/* Bins that hold more than the knobs now allow give it back. */
static void hak_heap_lower_caps(hak_heap *heap)
{
    for (unsigned c = 1; c < HAK_CLASS_COUNT; c++)
        hak_bin_bound(heap, c);
}

void hak_heap_follow_policy(hak_heap *heap)
{
    uint64_t generation = atomic_load_explicit(&hak_policy_generation, memory_order_acquire);
    if (hak_likely(heap->knobs.generation == generation))
        return;
    hak_policy policy;
    if (hak_policy_read(&policy) != 0)
        return;
    const uint64_t *value = policy.value;
    heap->knobs = (hak_heap_knobs){
        .generation = generation,
        .bin_bytes = value[HAK_KNOB_BIN_BYTES],
        .thread_bytes = value[HAK_KNOB_THREAD_BYTES],
        .heartbeat_bytes = value[HAK_KNOB_HEARTBEAT_BYTES],
        .out_bytes = value[HAK_KNOB_OUT_BYTES],
        .large_slot_bytes = value[HAK_KNOB_LARGE_SLOT_BYTES],
        .large_waste = (uint32_t)value[HAK_KNOB_LARGE_WASTE],
        .bin_blocks = (uint32_t)value[HAK_KNOB_BIN_BLOCKS],
        .bin_start = (uint32_t)value[HAK_KNOB_BIN_START],
        .refill_percent = (uint32_t)value[HAK_KNOB_REFILL_PERCENT],
        .spill_percent = (uint32_t)value[HAK_KNOB_SPILL_PERCENT],
        .empty_slabs = (uint32_t)value[HAK_KNOB_EMPTY_SLABS],
    };
    hak_trace(HAK_EVENT_POLICY, generation, heap->owner);
    hak_heap_lower_caps(heap);
    hak_large_flush(heap, heap->knobs.large_slot_bytes);
}

/* ---- Heartbeat ------------------------------------------------------------------------------- */

void hak_heartbeat(hak_heap *heap, unsigned class)
{
    uint64_t begun = hak_prof_begin();
    uint64_t served = (uint64_t)(heap->countdown_start - heap->hot.countdown);
    hak_count(&heap->served_before, served);
    /* A request meets the heartbeat as often as its share of the bytes: so the interval's bytes,
     * credited to its class, estimate without bias what each class served. */
    hak_count(&heap->back[class].sampled_bytes, served);
    hak_count(&heap->count.heartbeats, 1);
    hak_heap_follow_policy(heap);
    hak_countdown_start(heap);
    /* A large or big request may be a heartbeat all by itself: it says little of the bins, and what is
     * kept need not be looked through each time. */
    uint32_t before = heap->beats;
    heap->beats += class != 0 ? HAK_BEAT_BINS : 1;
    if (((before ^ heap->beats) & HAK_BEATS_TIDY) == 0) {
        hak_prof_end(HAK_PROF_HEARTBEAT, begun);
        return;
    }
    hak_remote_drain(heap);
    if ((before ^ heap->beats) & HAK_BEATS_WATCH)
        hak_bins_watch(heap);
    if ((before ^ heap->beats) & HAK_BEATS_TRIM) {
        hak_bins_trim(heap);
        hak_large_flush(heap, heap->large_bytes / 2);
    }
    hak_prof_end(HAK_PROF_HEARTBEAT, begun);
    hak_heaps_dissolve(false);
    hak_orphans_drain();
    hak_exchange_trim(false);
    hak_large_tidy(false);
    hak_bigcache_purge(false);
    if (hak_central_purge_due())
        hak_central_purge(false);
}
