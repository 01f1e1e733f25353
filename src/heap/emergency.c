#include "heap/emergency.h"

#include "heap/central.h"
#include "heap/remote.h"
#include "os/os.h"

/* Three sizes of slots, 64 of each; static, and untouched until they are used. */
#define HAK_SLOT_COUNT 64u
#define HAK_SLOT_SMALL 64u
#define HAK_SLOT_MIDDLE 512u
#define HAK_SLOT_LARGE 4096u

static struct {
    _Alignas(4096) char large[HAK_SLOT_COUNT][HAK_SLOT_LARGE];
    char middle[HAK_SLOT_COUNT][HAK_SLOT_MIDDLE];
    char small[HAK_SLOT_COUNT][HAK_SLOT_SMALL];
} hak_slots;

static struct hak_slot_pool {
    char *start;
    size_t bytes;
    _Atomic uint64_t taken; /* a bit for each slot */
} hak_slot_pools[] = {
    {&hak_slots.small[0][0], HAK_SLOT_SMALL, 0},
    {&hak_slots.middle[0][0], HAK_SLOT_MIDDLE, 0},
    {&hak_slots.large[0][0], HAK_SLOT_LARGE, 0},
};

/* Mappings made in an emergency, and frees put off. A slot is claimed by a CAS from 0. */
static struct {
    _Atomic uintptr_t start;
    _Atomic size_t bytes;
} hak_mapped[HAK_SLOT_COUNT];
static _Atomic uint32_t hak_mapped_count;
static _Atomic uintptr_t hak_put_off[HAK_SLOT_COUNT];
_Atomic uint32_t hak_put_off_count;

static void *hak_slot_claim(struct hak_slot_pool *pool)
{
    uint64_t taken = atomic_load_explicit(&pool->taken, memory_order_relaxed);
    while (~taken != 0) {
        unsigned slot = hak_lowest_bit(~taken);
        /* Pairs: acquire with the release in hak_emergency_give, so that the last user is done. */
        if (atomic_compare_exchange_weak_explicit(&pool->taken, &taken, taken | 1ull << slot,
                                                  memory_order_acquire, memory_order_relaxed))
            return pool->start + slot * pool->bytes;
    }
    return NULL;
}

static void *hak_emergency_map(size_t size, size_t alignment)
{
    size_t bytes = hak_round_up(size, hak_os_page_bytes);
    if (bytes < size)
        return NULL;
    for (unsigned i = 0; i < HAK_SLOT_COUNT; i++) {
        uintptr_t none = 0;
        /* 1 is no address: it holds the slot until the mapping is there. */
        if (!atomic_compare_exchange_strong_explicit(&hak_mapped[i].start, &none, 1,
                                                     memory_order_relaxed, memory_order_relaxed))
            continue;
        void *block = hak_os_map(bytes, alignment);
        if (block != NULL)
            atomic_fetch_add_explicit(&hak_mapped_count, 1, memory_order_relaxed);
        atomic_store_explicit(&hak_mapped[i].bytes, bytes, memory_order_relaxed);
        atomic_store_explicit(&hak_mapped[i].start, (uintptr_t)block, memory_order_release);
        return block;
    }
    return NULL;
}

void *hak_emergency_alloc(size_t size, size_t alignment)
{
    for (unsigned p = 0; p < HAK_COUNT_OF(hak_slot_pools); p++) {
        struct hak_slot_pool *pool = &hak_slot_pools[p];
        if (size > pool->bytes || alignment > pool->bytes)
            continue;
        void *block = hak_slot_claim(pool);
        if (block != NULL)
            return block;
    }
    return size <= (size_t)PTRDIFF_MAX ? hak_emergency_map(size, alignment) : NULL;
}

static struct hak_slot_pool *hak_slot_pool_of(const void *block)
{
    uintptr_t at = (uintptr_t)block;
    uintptr_t start = (uintptr_t)&hak_slots;
    if (at - start >= sizeof hak_slots)
        return NULL;
    for (unsigned p = 0; p < HAK_COUNT_OF(hak_slot_pools); p++) {
        struct hak_slot_pool *pool = &hak_slot_pools[p];
        if (at - (uintptr_t)pool->start < HAK_SLOT_COUNT * pool->bytes)
            return pool;
    }
    return NULL;
}

/* The place of a mapping in the table, or HAK_SLOT_COUNT. */
static unsigned hak_mapped_find(const void *block)
{
    if (atomic_load_explicit(&hak_mapped_count, memory_order_relaxed) == 0)
        return HAK_SLOT_COUNT;
    unsigned i = 0;
    while (i < HAK_SLOT_COUNT &&
           atomic_load_explicit(&hak_mapped[i].start, memory_order_acquire) != (uintptr_t)block)
        i++;
    return i;
}

bool hak_emergency_give(void *block)
{
    struct hak_slot_pool *pool = hak_slot_pool_of(block);
    if (pool != NULL) {
        size_t slot = ((uintptr_t)block - (uintptr_t)pool->start) / pool->bytes;
        /* Pairs: the acquire CAS in hak_slot_claim. */
        atomic_fetch_and_explicit(&pool->taken, ~(1ull << slot), memory_order_release);
        return true;
    }
    unsigned i = hak_mapped_find(block);
    if (i == HAK_SLOT_COUNT)
        return false;
    size_t bytes = atomic_load_explicit(&hak_mapped[i].bytes, memory_order_relaxed);
    atomic_fetch_sub_explicit(&hak_mapped_count, 1, memory_order_relaxed);
    atomic_store_explicit(&hak_mapped[i].start, 0, memory_order_release);
    hak_os_unmap(block, bytes);
    return true;
}

size_t hak_emergency_usable(const void *block)
{
    const struct hak_slot_pool *pool = hak_slot_pool_of(block);
    if (pool != NULL)
        return pool->bytes;
    unsigned i = hak_mapped_find(block);
    return i == HAK_SLOT_COUNT ? 0
                               : atomic_load_explicit(&hak_mapped[i].bytes, memory_order_relaxed);
}

void hak_emergency_free(void *block)
{
    uint64_t chunk = (uintptr_t)block >> HAK_CHUNK_SHIFT;
    uint32_t tag = chunk < hak_chunk_map.end
                       ? __atomic_load_n(&hak_chunk_map.tags[chunk], __ATOMIC_RELAXED)
                       : 0;
    if (hak_tag_is_slab(tag)) {
        /* Posting takes no lock, even to oneself. */
        hak_remote_post_one(block);
        return;
    }
    if (hak_emergency_give(block))
        return;
    for (unsigned i = 0; i < HAK_SLOT_COUNT; i++) {
        uintptr_t none = 0;
        /* Pairs: release with the acquire exchange in hak_emergency_find. */
        if (atomic_compare_exchange_strong_explicit(&hak_put_off[i], &none, (uintptr_t)block,
                                                    memory_order_release, memory_order_relaxed)) {
            atomic_fetch_add_explicit(&hak_put_off_count, 1, memory_order_relaxed);
            return;
        }
    }
    /* More than that at once are lost: better than to wait for a lock that this thread holds. */
}

void *hak_emergency_find(void)
{
    for (unsigned i = 0; i < HAK_SLOT_COUNT; i++) {
        uintptr_t block = atomic_exchange_explicit(&hak_put_off[i], 0, memory_order_acquire);
        if (block == 0)
            continue;
        atomic_fetch_sub_explicit(&hak_put_off_count, 1, memory_order_relaxed);
        return (void *)block;
    }
    return NULL;
}
