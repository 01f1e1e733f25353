/* hot.h: the hot path of malloc and free, and the few fields that it touches.
 *
 * Included by every entry point, C and C++ (hence no C11 atomics here), and inlined into each. The
 * whole state of the hot path is one line of the heap, one bin, and one word of the chunk map:
 *
 *   malloc   size -> bin by arithmetic; bytes off the countdown; pop the bin's array
 *   free     address -> tag by one load; its class -> bin; push the bin's array
 *
 * What is not the common case fails one of the tests that are there anyway (size, countdown, empty
 * bin, full bin) and goes to the slow path with nothing done. Takes no lock, makes no
 * system call, reads no clock. tests/golden/ counts its instructions, loads, stores and branches.
 */
#ifndef HAK_HEAP_HOT_H
#define HAK_HEAP_HOT_H

#include "base/bits.h"

/* A class's number times 16 is its offset into the bins, and for tiny classes its size as well. */
#define HAK_TINY_MAX 1024u
#define HAK_CLASS_SHIFT 4
#define HAK_CLASS_COUNT 113 /* 0 unused; 1..64 tiny; 65..104 mid; 105..112 learned */

#define HAK_CHUNK_SHIFT 16 /* granule of the chunk map: 64 KiB */
/* A tag: the owner's number, and in these bits the class's offset into the bins. */
#define HAK_TAG_OWNER_SHIFT 12
#define HAK_TAG_CLASS_MASK ((1u << HAK_TAG_OWNER_SHIFT) - 1)

/* A stack of pointers to free blocks, outside user memory. top points at the last one pushed; under
 * the first one lies a NULL, so that an empty bin needs no bound; limit is where top stands when the
 * bin is full. A bin that was never used has top at a NULL and limit equal to top. */
typedef struct hak_bin {
    void **top;
    void **limit;
} hak_bin;

/* The head of a heap: what the hot path touches. */
typedef struct hak_hot {
    int64_t countdown; /* bytes until the next heartbeat */
    hak_bin bins[HAK_CLASS_COUNT];
} hak_hot;

struct hak_heap;

#ifdef __cplusplus
extern "C" {
#endif

/* The chunk map: for each 64 KiB of the address space below `end` chunks, a tag: the owner's number
 * and the class's offset, or 0 where the memory isn't ours. Read-only zeros until used. */
typedef struct hak_chunk_map_view {
    uint32_t *tags;
    uint64_t end;
} hak_chunk_map_view;
extern hak_chunk_map_view hak_chunk_map __attribute__((visibility("hidden")));

/* The calling thread's heap. Never NULL: a thread without one has hak_heap_none, whose countdown is below
 * zero and whose bins have no room. */
extern __thread hak_hot *hak_heap_tls
    __attribute__((tls_model("initial-exec"), visibility("hidden")));

/* nothrow, so that C++ calls them in tail position from functions that may not throw. */
#define HAK_HOT_SLOW __attribute__((nothrow, visibility("hidden")))

/* Everything that the hot path does not do, with nothing done yet. Return NULL with errno ENOMEM. */
void *hak_malloc_slow(size_t size, hak_hot *hot) HAK_HOT_SLOW;
void hak_free_slow(void *block, hak_hot *hot) HAK_HOT_SLOW;
/* A block of at least `size` bytes aligned to the power of two `alignment`. */
void *hak_aligned_slow(size_t alignment, size_t size) HAK_HOT_SLOW;

/* The move of a bin's top in malloc, which leaves it one slot on whatever comes of it. Written as x86-64
 * instructions because compilers spend more on it: they do not fold load, add and store into one
 * instruction where the old value is needed too. Plain C elsewhere, and in debug and sanitizer builds,
 * which must see the accesses.
 *
 * The countdown likewise: other threads read it for the statistics (pairs: the relaxed load in
 * hak_heap_served), and threads without a heap share one. An atomic access is not folded either. */
#if defined(__x86_64__) && !defined(__ILP32__) && !defined(HAK_DEBUG)
#define HAK_HOT_ASM 1
#endif

HAK_INLINE int64_t hak_countdown(const hak_hot *heap)
{
    return __atomic_load_n(&heap->countdown, __ATOMIC_RELAXED);
}

HAK_INLINE void hak_countdown_set(hak_hot *heap, int64_t left)
{
    __atomic_store_n(&heap->countdown, left, __ATOMIC_RELAXED);
}

/* Takes bytes off, and says whether it is below zero. Two threads without a heap may take off at the
 * same time, and only one be counted: it never rises so. */
HAK_INLINE bool hak_countdown_take(hak_hot *heap, size_t bytes)
{
    bool below;
#if defined(HAK_HOT_ASM)
    __asm__("subq %[bytes], %[left]"
            : [left] "+m"(heap->countdown), "=@ccs"(below)
            : [bytes] "r"(bytes)
            : "cc");
#else
    int64_t left = hak_countdown(heap) - (int64_t)bytes;
    hak_countdown_set(heap, left);
    below = left < 0;
#endif
    return below;
}

HAK_INLINE void **hak_bin_pop_slot(hak_bin *bin)
{
    void **top;
#if defined(HAK_HOT_ASM)
    __asm__("movq %[bin], %[top]\n\t"
            "subq $8, %[bin]"
            : [top] "=&r"(top), [bin] "+m"(bin->top)
            :
            : "cc");
#else
    top = bin->top;
    bin->top = top - 1;
#endif
    return top;
}

HAK_INLINE hak_bin *hak_bin_at(hak_hot *heap, size_t offset)
{
    return (hak_bin *)(void *)((char *)heap->bins + offset);
}

/* `slow` is a constant, called in tail position. What it finds: for size > HAK_TINY_MAX, nothing
 * done. Below, the countdown taken off; and where that is not negative, the bin was empty and its top
 * stands one slot too low (hak_malloc_slow puts it right: undoing it here would cost the hot path an
 * instruction). */
HAK_INLINE void *hak_hot_alloc(size_t size, void *(*slow)(size_t, hak_hot *))
{
    hak_hot *heap = hak_heap_tls;
    if (hak_unlikely(size > HAK_TINY_MAX))
        return slow(size, heap);
    /* malloc(0) has offset 0, whose bin is always empty: the slow path makes it 16. */
    size_t offset = (size + 15) & ~(size_t)15;
    if (hak_unlikely(hak_countdown_take(heap, offset)))
        return slow(size, heap);
    void *block = *hak_bin_pop_slot(hak_bin_at(heap, offset));
    if (hak_unlikely(block == NULL))
        return slow(size, heap);
    return block;
}

/* Into the bin of its class, whoever owns the block: that is looked at when the bin spills. What is not in
 * slabs has the tag's class 0, whose bin is always full, as are all bins of a thread without a heap.
 * Nothing is changed before a slow path is taken. */
HAK_INLINE void hak_hot_free(void *block)
{
    hak_hot *heap = hak_heap_tls;
    uint64_t chunk = (uintptr_t)block >> HAK_CHUNK_SHIFT;
    if (hak_unlikely(chunk >= hak_chunk_map.end)) {
        hak_free_slow(block, heap);
        return;
    }
    /* Pairs: the relaxed stores of hak_tags_set. The class of a live block's tag never changes. */
    uint32_t tag = __atomic_load_n(&hak_chunk_map.tags[chunk], __ATOMIC_RELAXED);
    hak_bin *bin = hak_bin_at(heap, tag & HAK_TAG_CLASS_MASK);
    void **top = bin->top;
    if (hak_unlikely(top == bin->limit)) {
        hak_free_slow(block, heap);
        return;
    }
    top[1] = block;
    bin->top = top + 1;
}

#ifdef __cplusplus
}
#endif

#endif
