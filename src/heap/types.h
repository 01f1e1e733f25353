/* types.h: every struct of the heap, and the best way in.
 *
 *   region      reserved address space, cut into
 *   superslab   2 MiB, holding either
 *     slabs       of one size class with one owner: 64 KiB chunks, 1, 2, 4 or 8 of them
 *     spans       of pages, each serving one large request
 *   heap        a thread's part: a bin per class, and the slabs that it owns
 *
 * All of it lies in mappings of its own, never beside user bytes. Superslab headers and heaps are
 * never given back, so that a stale pointer to one is always readable.
 *
 * Who may touch what: fields of a slab's first line belong to the thread of the owning heap (or to
 * the holder of hak_central_lock while the slab is an orphan); the second line is shared, by atomics.
 */
#ifndef HAK_HEAP_TYPES_H
#define HAK_HEAP_TYPES_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/bits.h"
#include "base/lock.h"
#include "heap/hot.h"
#include "heap/size_class.h"

#define HAK_CHUNK_BYTES ((size_t)1 << HAK_CHUNK_SHIFT)
#define HAK_SUPERSLAB_SHIFT 21
#define HAK_SUPERSLAB_BYTES ((size_t)1 << HAK_SUPERSLAB_SHIFT)
#define HAK_SUPERSLAB_CHUNKS 32u
/* Spans are counted in units of 4 KiB whatever the system's page; where that is larger, their
 * lengths are rounded up to it. */
#define HAK_UNIT_SHIFT 12
#define HAK_UNIT_BYTES ((size_t)1 << HAK_UNIT_SHIFT)
#define HAK_SUPERSLAB_UNITS 512u
#define HAK_UNIT_WORDS (HAK_SUPERSLAB_UNITS / 64)
#define HAK_CHUNK_UNITS (HAK_SUPERSLAB_UNITS / HAK_SUPERSLAB_CHUNKS)

/* Owners in tags. 0 is nobody: tag 0 is foreign memory. The slabs of heaps whose thread has ended are
 * nobody's in particular. Chunks of spans have an owner's number that no heap gets, and class 0. */
#define HAK_OWNER_ORPHAN 1u
#define HAK_OWNER_FIRST 2u
#define HAK_OWNER_SPAN ((1u << (32 - HAK_TAG_OWNER_SHIFT)) - 1)
#define HAK_OWNER_MAX (HAK_OWNER_SPAN - 1)
#define HAK_TAG_SPAN (HAK_OWNER_SPAN << HAK_TAG_OWNER_SHIFT)

/* Whether a tag is a slab's: only those have a class. */
HAK_INLINE bool hak_tag_is_slab(uint32_t tag)
{
    return (tag & HAK_TAG_CLASS_MASK) != 0;
}

typedef struct hak_heap hak_heap;
typedef struct hak_slab hak_slab;
typedef struct hak_superslab hak_superslab;

/* Blocks of a class of 64 bytes or more fit the bitmaps inside the header. */
#define HAK_INLINE_WORDS 16u
#define HAK_BITMAP_WORDS 64u

typedef enum hak_slab_state {
    HAK_SLAB_NONE,      /* not a slab, or not its first chunk */
    HAK_SLAB_AVAILABLE, /* has blocks to give; in its heap's list of such */
    HAK_SLAB_FULL,      /* every block is in a bin, live, or on its way back */
} hak_slab_state;

struct hak_slab {
    /* The owner's line. */
    hak_slab *next; /* in one of its heap's two lists of the class */
    hak_slab *prev;
    char *start;
    uint64_t *free_bits; /* blocks below `fresh` that may be given out */
    uint64_t free_words; /* which words of free_bits are not 0 */
    uint16_t due;        /* blocks that may come back before the slab turns: see hak_slab_used */
    uint16_t beyond;     /* blocks that are used beside those */
    uint16_t fresh;      /* the first block that was never given out */
    uint16_t blocks;
    uint8_t class;
    uint8_t state; /* hak_slab_state */
    uint8_t words; /* of each bitmap */
    uint8_t order; /* log2 of its chunks */
    bool purged;   /* nothing was freed into it since its free pages were given back */
    hak_superslab *superslab;

    /* The shared line. */
    _Atomic(hak_heap *) owner HAK_ALIGNED(HAK_CACHE_LINE);
    _Atomic(hak_slab *) mail_next;
    _Atomic uint32_t mailed;
    _Atomic uint64_t *remote_bits; /* blocks freed by other heaps, not yet drained */
    char *shared_start;            /* the same as `start`, for other threads */

    uint64_t free_inline[HAK_INLINE_WORDS] HAK_ALIGNED(HAK_CACHE_LINE);
    _Atomic uint64_t remote_inline[HAK_INLINE_WORDS] HAK_ALIGNED(HAK_CACHE_LINE);
};
_Static_assert(offsetof(hak_slab, owner) == HAK_CACHE_LINE, "owner's and shared data share a line");
_Static_assert(sizeof(hak_slab) == 384, "a slab header is six lines");

/* Blocks not in the slab: live, in a bin, or posted and not yet drained. Kept in two parts, so that who
 * puts one back finds with one decrement whether the slab turns: one that is available when its last
 * block comes back (all are due, none beyond), a full one at the first (one is due). */
HAK_INLINE unsigned hak_slab_used(const hak_slab *slab)
{
    return (unsigned)slab->due + slab->beyond;
}

/* Bitmaps of slabs with more blocks than the header holds; kept in a list when not in use. */
typedef struct hak_bitmaps {
    uint64_t free_bits[HAK_BITMAP_WORDS];
    _Atomic uint64_t remote_bits[HAK_BITMAP_WORDS];
} hak_bitmaps;

typedef enum hak_superslab_kind {
    HAK_SUPERSLAB_EMPTY,
    HAK_SUPERSLAB_SLABS,
    HAK_SUPERSLAB_SPANS,
} hak_superslab_kind;

/* All fields under hak_central_lock, but those of slabs. */
struct hak_superslab {
    hak_superslab *next; /* in the central list for `bucket` of its kind */
    hak_superslab *prev;
    char *start;
    uint64_t dirty_since_ms; /* when memory was last left dirty here */
    uint32_t dirty_units;    /* free units that were touched since they were last purged */
    uint16_t bucket; /* slabs: order of the largest free run, plus 1; spans: longest free run */
    uint8_t kind;
    bool huge; /* huge pages were asked for */
    bool listed_dirty;
    hak_superslab *dirty_next; /* in the queue of superslabs to purge, oldest first */
    hak_superslab *dirty_prev;
    uint32_t free_chunks;                /* slabs: a bit for each free chunk */
    uint64_t free_units[HAK_UNIT_WORDS]; /* spans: a bit for each free unit */
    uint64_t dirty_map[HAK_UNIT_WORDS];  /* free or not: units that may have been written since they
                                           were last known to be zero */
    uint16_t span_length[HAK_SUPERSLAB_UNITS]; /* of the span that starts here, in units, and its
                                                  marks; 0: none */
    /* Not shared with the lengths: a thread that was held up between posting a free and mailing the slab
     * may still touch the header of a slab that is long gone. */
    hak_slab slabs[HAK_SUPERSLAB_CHUNKS];
};

typedef struct hak_slab_list {
    hak_slab *head;
    hak_slab *tail;
} hak_slab_list;

/* What a bin needs on its slow paths. */
typedef struct hak_bin_back {
    void **base;      /* the NULL slot under the stack; NULL while the bin was never used */
    uint32_t cap;     /* blocks it may hold now */
    uint32_t slots;   /* that its array has room for: cap grows into them */
    uint32_t low;     /* the least it was seen to hold at a heartbeat since the last trim */
    uint32_t want;    /* blocks that the next refill brings */
    uint16_t empties; /* empty slabs kept */
    uint32_t lent;    /* blocks of the cap that count in lent_bytes */
    hak_slab_list available;
    hak_slab_list full;
    uint64_t served_when_full; /* bytes that the heap had served when the bin was last full */
    uint32_t room_made;        /* how many blocks it could take then */
    uint64_t refills;
    uint64_t refill_blocks;
    uint64_t spills;
    uint64_t spill_blocks;
    uint64_t sampled_bytes; /* bytes between heartbeats credited to the class that met each one */
} hak_bin_back;

/* Freed spans that a heap keeps: a few of each large class, newest last. */
#define HAK_LARGE_CLASSES 48u
#define HAK_LARGE_SLOTS 8u

typedef struct hak_large_slots {
    char *start[HAK_LARGE_SLOTS];
} hak_large_slots;

/* Knobs as this heap goes by them, copied on slow paths when the policy's generation has moved. */
typedef struct hak_heap_knobs {
    uint64_t generation;
    uint64_t bin_bytes;
    uint64_t thread_bytes;
    uint64_t heartbeat_bytes;
    uint64_t out_bytes;
    uint64_t large_slot_bytes;
    uint32_t large_waste;
    uint32_t bin_blocks;
    uint32_t bin_start;
    uint32_t refill_percent;
    uint32_t spill_percent;
    uint32_t empty_slabs;
} hak_heap_knobs;

struct hak_heap {
    hak_hot hot; /* first: hak_heap_tls points at it */

    /* Written by other heaps, hence on a line of its own: slabs with remote frees, a stack that is
     * taken whole. Pairs: the release CAS of hak_remote_mail with the acquire exchange of
     * hak_remote_drain. */
    _Atomic(hak_slab *) mailbox HAK_ALIGNED(HAK_CACHE_LINE);

    uint32_t owner HAK_ALIGNED(HAK_CACHE_LINE); /* number in tags */
    bool live;                                  /* a thread has it */
    bool whole;        /* without a thread, but with its slabs and bins as the last one left them */
    uint64_t since_ms; /* when that was */
    bool torn;         /* its thread is not in this process: it was left behind by a fork */
    hak_heap *next_all;  /* every heap ever made */
    hak_heap *next_free; /* heaps without a thread */
    hak_heap_knobs knobs;
    int64_t countdown_start; /* what the countdown was last set to */
    uint64_t served_before;  /* bytes served up to then */
    uint64_t random;         /* state of a generator, for the length of the next countdown */
    uint32_t beats;

    uint64_t cap_bytes;   /* of the caps of all bins, beside the blocks that each may hold anyway */
    uint64_t lent_bytes;  /* of caps of bins that take in more than the thread allocates */
    uint64_t large_bytes; /* in the slots below */
    uint8_t large_count[HAK_LARGE_CLASSES];
    hak_large_slots large[HAK_LARGE_CLASSES];

    /* Room for the bins' arrays: cut from `arrays`, recycled by size. */
    char *arrays;
    size_t arrays_left;
    void **arrays_free[16];

    struct {
        uint64_t exchanged;
        uint64_t remote_posted;
        uint64_t remote_drained;
        uint64_t adopted;
        uint64_t heartbeats;
        uint64_t large_requests;
        uint64_t large_bytes;
        uint64_t large_hits;
        uint64_t large_made;
        uint64_t large_returned;
    } count;

    hak_bin_back back[HAK_CLASS_COUNT];
};

/* The heap of a hot head, and whether it is one (not hak_heap_none or hak_heap_gone). */
HAK_INLINE hak_heap *hak_heap_of(hak_hot *hot)
{
    return (hak_heap *)(void *)hot;
}

extern hak_hot hak_heap_none; /* of a thread that has not allocated yet */
extern hak_hot hak_heap_gone; /* of a thread whose heap was already given up */
extern hak_hot hak_heap_busy; /* of a thread that is in a slow path: see emergency.h */

HAK_INLINE bool hak_heap_is_real(const hak_hot *hot)
{
    return hot != &hak_heap_none && hot != &hak_heap_gone && hot != &hak_heap_busy;
}

/* A counter that one thread writes and others may read: no lock prefix, and no tearing. */
HAK_INLINE void hak_count(uint64_t *counter, uint64_t add)
{
    __atomic_store_n(counter, __atomic_load_n(counter, __ATOMIC_RELAXED) + add, __ATOMIC_RELAXED);
}

HAK_INLINE uint64_t hak_count_read(const uint64_t *counter)
{
    return __atomic_load_n(counter, __ATOMIC_RELAXED);
}

#endif
