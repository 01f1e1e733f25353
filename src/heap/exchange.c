#include "heap/exchange.h"

#include <string.h>

#include "heap/meta.h"
#include "heap/remote.h"
#include "os/os.h"
#include "policy/policy.h"

/* Blocks of one class that the exchange has room for, whatever their size. */
#define HAK_EXCHANGE_BLOCKS 1024u

typedef struct hak_shelf {
    hak_lock lock HAK_ALIGNED(HAK_CACHE_LINE);
    _Atomic uint32_t
        count;     /* written under the lock; read without it to see whether it is worth taking */
    uint32_t low;  /* the least it held since the last trim */
    void **blocks; /* oldest first; made when first needed */
} hak_shelf;

static hak_shelf hak_shelves[HAK_CLASS_COUNT];
static _Atomic uint64_t hak_exchange_since_ms; /* of the last trim */
static _Atomic uint64_t hak_exchange_posts;

static uint32_t hak_shelf_count(const hak_shelf *shelf)
{
    return atomic_load_explicit(&shelf->count, memory_order_relaxed);
}

static void hak_shelf_set_count(hak_shelf *shelf, uint32_t count)
{
    atomic_store_explicit(&shelf->count, count, memory_order_relaxed);
}

static uint32_t hak_shelf_room(unsigned class, uint32_t count)
{
    uint64_t most = hak_knob_get(HAK_KNOB_EXCHANGE_BYTES) / hak_classes[class].bytes;
    if (most > HAK_EXCHANGE_BLOCKS)
        most = HAK_EXCHANGE_BLOCKS;
    return count < most ? (uint32_t)most - count : 0;
}

uint32_t hak_exchange_put(unsigned class, void *const *blocks, uint32_t count)
{
    hak_shelf *shelf = &hak_shelves[class];
    if (hak_shelf_room(class, hak_shelf_count(shelf)) == 0 || !hak_lock_try(&shelf->lock))
        return 0;
    uint32_t held = hak_shelf_count(shelf);
    uint32_t room = hak_shelf_room(class, held);
    if (shelf->blocks == NULL)
        shelf->blocks = hak_meta_alloc(HAK_EXCHANGE_BLOCKS * sizeof(void *), HAK_CACHE_LINE);
    if (shelf->blocks == NULL)
        room = 0;
    uint32_t put = count < room ? count : room;
    if (put > 0)
        memcpy(shelf->blocks + held, blocks + count - put, put * sizeof(void *));
    hak_shelf_set_count(shelf, held + put);
    hak_lock_drop(&shelf->lock);
    return put;
}

uint32_t hak_exchange_take(unsigned class, void **end, uint32_t want)
{
    hak_shelf *shelf = &hak_shelves[class];
    if (hak_shelf_count(shelf) == 0 || !hak_lock_try(&shelf->lock))
        return 0;
    uint32_t held = hak_shelf_count(shelf);
    uint32_t taken = want < held ? want : held;
    if (taken > 0)
        memcpy(end - taken, shelf->blocks + held - taken, taken * sizeof(void *));
    hak_shelf_set_count(shelf, held - taken);
    if (shelf->low > held - taken)
        shelf->low = held - taken;
    hak_lock_drop(&shelf->lock);
    return taken;
}

static void hak_shelf_trim(hak_shelf *shelf, bool all)
{
    if (hak_shelf_count(shelf) == 0)
        return;
    if (all)
        hak_lock_take(&shelf->lock);
    else if (!hak_lock_try(&shelf->lock))
        return;
    uint32_t held = hak_shelf_count(shelf);
    uint32_t out = all ? held : (shelf->low + 1) / 2;
    /* Posting takes no lock. */
    void **end = shelf->blocks + out;
    for (void **next = shelf->blocks; next != end;)
        next += hak_remote_post_run(next, end);
    memmove(shelf->blocks, end, (held - out) * sizeof(void *));
    hak_shelf_set_count(shelf, held - out);
    shelf->low = held - out;
    hak_lock_drop(&shelf->lock);
    atomic_fetch_add_explicit(&hak_exchange_posts, out, memory_order_relaxed);
}

void hak_exchange_trim(bool all)
{
    uint64_t now = hak_os_coarse_ms();
    uint64_t since = atomic_load_explicit(&hak_exchange_since_ms, memory_order_relaxed);
    if (!all && since + hak_knob_get(HAK_KNOB_PURGE_DELAY) > now)
        return;
    atomic_store_explicit(&hak_exchange_since_ms, now, memory_order_relaxed);
    for (unsigned c = 1; c < HAK_CLASS_COUNT; c++)
        hak_shelf_trim(&hak_shelves[c], all);
}

uint64_t hak_exchange_posted(void)
{
    return atomic_load_explicit(&hak_exchange_posts, memory_order_relaxed);
}

uint64_t hak_exchange_bytes(void)
{
    uint64_t bytes = 0;
    for (unsigned c = 1; c < HAK_CLASS_COUNT; c++)
        bytes += (uint64_t)hak_shelf_count(&hak_shelves[c]) * hak_classes[c].bytes;
    return bytes;
}

void hak_exchange_init(void)
{
    for (unsigned c = 0; c < HAK_CLASS_COUNT; c++)
        hak_shelves[c].lock.rank = HAK_RANK_EXCHANGE;
}

void hak_exchange_hold(void)
{
    hak_lock_take(&hak_shelves[0].lock);
    for (unsigned c = 1; c < HAK_CLASS_COUNT; c++)
        hak_lock_take_more(&hak_shelves[c].lock);
}

void hak_exchange_release(void)
{
    for (unsigned c = HAK_CLASS_COUNT; c-- > 1;)
        hak_lock_drop_more(&hak_shelves[c].lock);
    hak_lock_drop(&hak_shelves[0].lock);
}
