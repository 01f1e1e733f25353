/* central.h: what all heaps share: the region, superslabs, free chunks and units, purging.
 *
 * Everything here is done under hak_central_lock (rank CENTRAL), which these functions take
 * themselves unless their name ends in _locked. No lock of a lower rank may be asked for inside.
 */
#ifndef HAK_HEAP_CENTRAL_H
#define HAK_HEAP_CENTRAL_H

#include "heap/types.h"

extern hak_lock hak_central_lock;

/* Reserves the first piece of the region and the chunk map. Idempotent; called with the central lock
 * not held. False where the system gives no address space: every allocation then fails. */
bool hak_central_init(void);

/* Superslabs by address >> HAK_SUPERSLAB_SHIFT, as many as the chunk map covers. */
extern _Atomic(hak_superslab *) *hak_superslab_table;

/* Superslab of an address below hak_chunk_map.end, or NULL. No lock: the table only grows. */
HAK_INLINE hak_superslab *hak_superslab_of(const void *address)
{
    /* Pairs: the release store where a superslab is made. */
    return atomic_load_explicit(&hak_superslab_table[(uintptr_t)address >> HAK_SUPERSLAB_SHIFT],
                                memory_order_acquire);
}

/* The slab of each chunk that lies in one, as many as the chunk map covers. */
extern _Atomic(hak_slab *) *hak_slab_table;

/* The slab of a block of ours. The tag must have said that there is one. */
HAK_INLINE hak_slab *hak_slab_of(const void *block)
{
    /* Pairs: the store in hak_slab_new. Who has a block got it from the slab's owner, and with it what was
     * written before. */
    return atomic_load_explicit(&hak_slab_table[(uintptr_t)block >> HAK_CHUNK_SHIFT],
                                memory_order_relaxed);
}

/* A fresh slab of `class` for `heap`: its header filled, its chunks tagged. NULL without memory. */
hak_slab *hak_slab_new(unsigned class, hak_heap *heap);

/* Says that a slab has given out its last fresh block: its memory is dense, as far as one can know. */
void hak_slab_carved(const hak_slab *slab);

/* Gives a slab back, none of whose blocks is used. */
void hak_slab_delete(hak_slab *slab);
void hak_slab_delete_locked(hak_slab *slab);

/* Makes `heap` (or the orphans) the slab's owner. */
void hak_slab_tag(hak_slab *slab, uint32_t owner);

/* A span of `units`, 1 .. HAK_SUPERSLAB_UNITS, on a multiple of `align_units` (a power of two). *zeroed
 * says whether it is known to read as zeros. NULL without memory. */
char *hak_span_new(uint32_t units, uint32_t align_units, bool *zeroed);
void hak_span_delete(char *span, uint32_t units);

/* The length of the span that starts at `address`, in units, with its marks. No lock: only who has the
 * block may look at it. */
HAK_INLINE uint16_t *hak_span_entry(const void *address)
{
    uintptr_t offset = (uintptr_t)address & (HAK_SUPERSLAB_BYTES - 1);
    return &hak_superslab_of(address)->span_length[offset >> HAK_UNIT_SHIFT];
}

/* Marks of a span, beside its length. KEPT: freed, and in a slot or the stock; hak_span_units then says
 * 0, so that freeing it once more is noticed. GROWN: made by realloc. Only who has the span may. ASKED: no
 * span's own entry, but the one behind a GROWN span's: how many units its program asked for. */
#define HAK_SPAN_KEPT 0x8000u
#define HAK_SPAN_GROWN 0x4000u
#define HAK_SPAN_ASKED 0x2000u
#define HAK_SPAN_UNITS 0x3FFu

/* Units of the span that starts exactly at `address`, 0 where none does. */
HAK_INLINE uint32_t hak_span_units(const void *address)
{
    if (((uintptr_t)address & (HAK_UNIT_BYTES - 1)) != 0)
        return 0;
    uint32_t length = *hak_span_entry(address);
    return (length & (HAK_SPAN_KEPT | HAK_SPAN_ASKED)) == 0 ? length & HAK_SPAN_UNITS : 0;
}

HAK_INLINE void hak_span_mark(const void *address, unsigned mark, bool on)
{
    uint16_t *length = hak_span_entry(address);
    *length = (uint16_t)(on ? *length | mark : *length & ~mark);
}

HAK_INLINE bool hak_span_is(const void *address, unsigned mark)
{
    return (*hak_span_entry(address) & mark) != 0;
}

/* Changes the length of a span where it stands; false where the units behind it are taken. *zeroed
 * as in hak_span_new, for the units gained. */
bool hak_span_resize(char *span, uint32_t units, uint32_t new_units, bool *zeroed);

/* Bytes of all spans, live and kept. No lock. */
uint64_t hak_span_bytes(void);

/* Gives back what is owed: empty pages beyond retain_bytes and older than purge_delay, at most
 * purge_batch. With `all`, every empty page. Returns the bytes given back. */
size_t hak_central_purge(bool all);

/* Whether a purge is worth a look at the clock. No lock. */
bool hak_central_purge_due(void);

typedef struct hak_central_stats {
    uint64_t reserved_bytes;
    uint64_t mapped_bytes;
    uint64_t slab_bytes;
    uint64_t span_bytes;
    uint64_t free_dirty_bytes;
    uint64_t purged_bytes;
    uint64_t purge_calls;
    uint32_t slabs[HAK_CLASS_COUNT];
} hak_central_stats;
void hak_central_stats_read(hak_central_stats *out);

/* Adds to the purged bytes what is given back elsewhere (BigCache). */
void hak_central_count_purge(uint64_t bytes, uint64_t calls);

#endif
