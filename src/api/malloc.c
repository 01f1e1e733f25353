/* malloc.c: malloc, free and their kin. The hot paths are in heap/hot.h; here is what follows when
 * they don't serve, and the rest of the family. */
#include <errno.h>
#include <stdint.h>
#include <string.h>

#include "api/entry.h"
#include "heap/big.h"
#include "heap/bin.h"
#include "heap/central.h"
#include "heap/emergency.h"
#include "heap/heap.h"
#include "heap/large.h"
#include "heap/remote.h"
#include "observe/observe.h"
#include "os/os.h"
#include "policy/policy.h"

/* ---- Allocation ------------------------------------------------------------------------------ */

static HAK_COLD void *hak_no_memory(size_t size)
{
    hak_trace(HAK_EVENT_NO_MEMORY, size, ENOMEM);
    errno = ENOMEM;
    return NULL;
}

/* A block of `class` from its bin; the countdown was seen to. */
HAK_INLINE void *hak_pop(hak_heap *heap, unsigned class)
{
    hak_bin *bin = &heap->hot.bins[class];
    void *block = *bin->top;
    if (hak_unlikely(block == NULL)) {
        if (!hak_bin_refill(heap, class))
            return NULL;
        block = *bin->top;
    }
    bin->top--;
    return block;
}

HAK_INLINE void hak_count_down(hak_heap *heap, size_t bytes, unsigned class)
{
    if (hak_unlikely(hak_countdown_take(&heap->hot, bytes)))
        hak_heartbeat(heap, class);
}

/* Class that stands for large and big requests where the heartbeat credits bytes. */
#define HAK_CLASS_NONE 0u

HAK_INLINE void *hak_alloc_pages(hak_heap *heap, size_t size, size_t alignment, bool *zeroed)
{
    if (hak_unlikely(size > HAK_REQUEST_MAX))
        return NULL;
    bool big = size >= hak_knob_get(HAK_KNOB_BIG_THRESHOLD) || alignment > HAK_SUPERSLAB_BYTES / 2;
    void *block = big ? hak_big_alloc(size, alignment, zeroed)
                      : hak_large_alloc(heap, size, alignment, zeroed);
    /* Only what was served counts: what the system refuses may be half of what the meter can hold. */
    if (hak_likely(block != NULL))
        hak_count_down(heap, size, HAK_CLASS_NONE);
    return block;
}

/* A block of `class`, and its bytes off the countdown: those of the class for tiny ones, as in the hot
 * path. Only what was served counts. */
static void *hak_pop_counted(hak_heap *heap, unsigned class, size_t size)
{
    void *block = hak_pop(heap, class);
    if (hak_likely(block != NULL))
        hak_count_down(heap, class <= HAK_TINY_CLASSES ? hak_classes[class].bytes : size, class);
    return block;
}

/* Any size, with nothing done yet. */
HAK_INLINE void *hak_alloc_any(hak_heap *heap, size_t size, bool *zeroed)
{
    *zeroed = false;
    if (size > HAK_MID_MAX)
        return hak_alloc_pages(heap, size, HAK_UNIT_BYTES, zeroed);
    unsigned class = hak_class_of(size == 0 ? 1 : size);
    return hak_pop_counted(heap, class, size);
}

/* Every slow path runs between hak_slow_begin and hak_slow_end, during which the thread counts as busy:
 * what interrupts it goes to emergency.h. NULL where the thread has no heap and gets none. */
static hak_heap *hak_slow_begin(hak_hot **hot)
{
    hak_heap *heap = hak_likely(hak_heap_is_real(hak_heap_tls)) ? hak_heap_of(hak_heap_tls)
                                                                : hak_heap_mine(hak_heap_tls);
    *hot = hak_busy_begin();
    return heap;
}

static HAK_NOINLINE void hak_free_put_off(hak_heap *heap, void *block);

HAK_INLINE void hak_slow_end(hak_heap *heap, hak_hot *hot)
{
    void *block;
    while (heap != NULL && hak_unlikely((block = hak_emergency_next()) != NULL))
        hak_free_put_off(heap, block);
    hak_busy_end(hot);
}

/* Any size and alignment, with nothing done yet, in a thread that is busy already. Where the heap is NULL
 * one is borrowed for this call. A second try after everything that can be was given back. */
static HAK_COLD void *hak_alloc_again(hak_heap *heap, size_t size, size_t alignment, bool *zeroed)
{
    /* With a heap, a first try was made. */
    for (int attempt = heap != NULL; attempt < 2; attempt++) {
        if (attempt > 0)
            hak_purge_all(heap);
        hak_heap *borrowed = heap == NULL ? hak_heap_borrow() : NULL;
        hak_heap *with = heap != NULL ? heap : borrowed;
        void *block = NULL;
        if (with != NULL)
            block = alignment > HAK_UNIT_BYTES ? hak_alloc_pages(with, size, alignment, zeroed)
                                               : hak_alloc_any(with, size, zeroed);
        if (borrowed != NULL)
            hak_heap_return(borrowed);
        if (block != NULL || size > HAK_REQUEST_MAX)
            return block;
    }
    return NULL;
}

/* From a public call to a block: the whole slow path. */
static void *hak_alloc_hard(size_t size, size_t alignment, bool *zeroed)
{
    *zeroed = false;
    if (hak_unlikely(hak_heap_tls == &hak_heap_busy))
        return hak_emergency_alloc(size, alignment);
    hak_hot *hot;
    hak_heap *heap = hak_slow_begin(&hot);
    void *block = NULL;
    if (hak_likely(heap != NULL && alignment <= HAK_UNIT_BYTES))
        block = hak_alloc_any(heap, size, zeroed);
    if (hak_unlikely(block == NULL))
        block = hak_alloc_again(heap, size, alignment, zeroed);
    hak_slow_end(heap, hot);
    return block;
}

/* A tiny size whose bin was empty, or that met the heartbeat. */
static void *hak_malloc_tiny(hak_heap *heap, size_t size)
{
    unsigned class = hak_class_of(size == 0 ? 1 : size);
    /* The hot path took a slot from an empty bin. */
    if (hak_unlikely(size == 0))
        heap->hot.bins[0].top = heap->hot.bins[0].limit;
    else if (hak_likely(hak_countdown(&heap->hot) >= 0))
        heap->hot.bins[class].top++;
    if (hak_unlikely(hak_countdown(&heap->hot) < 0))
        hak_heartbeat(heap, class);
    return hak_pop(heap, class);
}

/* Every size, where the hot paths found nothing. */
static HAK_NOINLINE void *hak_malloc_hard(size_t size, hak_hot *hot)
{
    bool zeroed;
    void *block = NULL;
    if (hak_likely(hak_heap_is_real(hot))) {
        hak_heap *heap = hak_heap_of(hot);
        hak_busy_begin();
        if (size <= HAK_TINY_MAX)
            block = hak_malloc_tiny(heap, size);
        else if (size <= HAK_MID_MAX || size >= hak_knob_get(HAK_KNOB_BIG_THRESHOLD) ||
                 (block = hak_large_pop(heap, size)) == NULL)
            block = hak_alloc_any(heap, size, &zeroed);
        else
            hak_count_down(heap, size, HAK_CLASS_NONE);
        if (hak_unlikely(block == NULL)) {
            /* Nothing was served yet: what the hot path took off goes back. */
            if (size <= HAK_TINY_MAX)
                hak_countdown_take(hot, -hak_round_up(size, 16));
            block = hak_alloc_again(heap, size, 1, &zeroed);
        }
        hak_slow_end(heap, hot);
    } else {
        block = hak_alloc_hard(size, 1, &zeroed);
    }
    return hak_likely(block != NULL) ? block : hak_no_memory(size);
}

void *hak_malloc_slow(size_t size, hak_hot *hot)
{
    /* The hot path of mid sizes: the same steps, with more arithmetic to the class. A thread without a
     * heap has a countdown below zero, as on the other path. */
    if (hak_likely(size - HAK_TINY_MAX - 1 < HAK_MID_MAX - HAK_TINY_MAX)) {
        /* Written back only with a heap: threads without one share theirs, and of two that take off
         * and add again at once, one lost write would lift it above zero. */
        int64_t left = hak_countdown(hot) - (int64_t)size;
        if (hak_likely(left >= 0)) {
            hak_bin *bin = &hot->bins[hak_class_of_mid(size)];
            void *block = *bin->top;
            if (hak_likely(block != NULL)) {
                bin->top--;
                hak_countdown_set(hot, left);
                return block;
            }
        }
    }
    return hak_malloc_hard(size, hot);
}

/* Class of blocks that all lie on multiples of `alignment` and hold `size`; 0 where there is none. */
static unsigned hak_class_aligned(size_t alignment, size_t size)
{
    if (size == 0)
        size = 1;
    if (alignment > HAK_MID_MAX || size > HAK_MID_MAX)
        return 0;
    size_t rounded = hak_round_up(size, alignment);
    if (rounded > HAK_MID_MAX)
        return 0;
    unsigned class = hak_class_of(rounded);
    while (class <= HAK_MID_LAST && hak_classes[class].bytes % alignment != 0)
        class ++;
    return class <= HAK_MID_LAST ? class : 0;
}

void *hak_aligned_slow(size_t alignment, size_t size)
{
    if (alignment <= 16)
        return hak_malloc(size);
    bool zeroed;
    void *block = NULL;
    unsigned class = hak_class_aligned(alignment, size);
    if (class != 0 && hak_heap_tls != &hak_heap_busy) {
        hak_hot *hot;
        hak_heap *heap = hak_slow_begin(&hot);
        if (heap != NULL)
            block = hak_pop_counted(heap, class, size);
        hak_slow_end(heap, hot);
    }
    if (block != NULL)
        return block;
    /* Spans begin on pages, and with them every alignment up to a page is had. */
    size_t pages = size > HAK_MID_MAX ? size : HAK_MID_MAX + 1;
    if (hak_heap_tls == &hak_heap_busy)
        pages = size;
    block = hak_alloc_hard(pages, alignment, &zeroed);
    return block != NULL ? block : hak_no_memory(size);
}

HAK_EXPORT void *hak_malloc(size_t size)
{
    return hak_hot_alloc(size, hak_malloc_slow);
}

static void *hak_calloc_slow(size_t size)
{
    bool zeroed;
    void *block = hak_alloc_hard(size, 1, &zeroed);
    if (hak_unlikely(block == NULL))
        return hak_no_memory(size);
    return zeroed ? block : memset(block, 0, size);
}

HAK_EXPORT void *hak_calloc(size_t count, size_t size)
{
    size_t bytes;
    if (hak_unlikely(__builtin_mul_overflow(count, size, &bytes)))
        return hak_no_memory(SIZE_MAX);
    if (hak_unlikely(bytes > HAK_TINY_MAX))
        return hak_calloc_slow(bytes);
    void *block = hak_hot_alloc(bytes, hak_malloc_slow);
    return hak_likely(block != NULL) ? memset(block, 0, bytes) : NULL;
}

/* ---- Freeing --------------------------------------------------------------------------------- */

static _Atomic uint64_t hak_foreign_count;

uint64_t hak_foreign_frees(void)
{
    return atomic_load_explicit(&hak_foreign_count, memory_order_relaxed);
}

/* A pointer that we did not return, or that was freed already: left alone. It may be another
 * allocator's, from before we were loaded, and following it could end the program. */
static HAK_COLD void hak_free_foreign(const void *block, uint32_t tag)
{
    atomic_fetch_add_explicit(&hak_foreign_count, 1, memory_order_relaxed);
    hak_trace(HAK_EVENT_FOREIGN, (uintptr_t)block, tag);
}

static uint32_t hak_tag_of(const void *block)
{
    uint64_t chunk = (uintptr_t)block >> HAK_CHUNK_SHIFT;
    return chunk < hak_chunk_map.end ? __atomic_load_n(&hak_chunk_map.tags[chunk], __ATOMIC_RELAXED)
                                     : 0;
}

/* Any block, in a thread that is busy; `heap` is NULL where it has none. */
HAK_INLINE void hak_free_in(hak_heap *heap, void *block)
{
    uint32_t tag = hak_tag_of(block);
    if (hak_tag_is_slab(tag)) {
        if (heap == NULL)
            hak_remote_post_one(block);
        else
            hak_bin_free_full(heap, (tag & HAK_TAG_CLASS_MASK) >> HAK_CLASS_SHIFT, block);
    } else if (tag == HAK_TAG_SPAN) {
        if (!hak_large_free(heap, block))
            hak_free_foreign(block, tag);
    } else if (!hak_big_free(block) && !hak_emergency_give(block)) {
        hak_free_foreign(block, tag);
    }
}

/* What a signal handler could not free. */
static HAK_NOINLINE void hak_free_put_off(hak_heap *heap, void *block)
{
    hak_free_in(heap, block);
}

/* A block whose bin is full; spans, big blocks, what is not ours; and everything of a thread without a
 * heap. */
void hak_free_slow(void *block, hak_hot *hot)
{
    if (block == NULL)
        return;
    if (hak_likely(hak_heap_is_real(hot))) {
        hak_heap *heap = hak_heap_of(hot);
        hak_busy_begin();
        hak_free_in(heap, block);
        hak_slow_end(heap, hot);
        return;
    }
    if (hot == &hak_heap_busy) {
        hak_emergency_free(block);
        return;
    }
    hak_heap *heap = hak_slow_begin(&hot);
    hak_free_in(heap, block);
    hak_slow_end(heap, hot);
}

HAK_EXPORT void hak_free(void *block)
{
    hak_hot_free(block);
}

HAK_EXPORT void hak_free_sized(void *block, size_t size)
{
    (void)size;
    hak_hot_free(block);
}

HAK_EXPORT void hak_free_aligned_sized(void *block, size_t alignment, size_t size)
{
    (void)alignment;
    (void)size;
    hak_hot_free(block);
}

/* ---- Size ------------------------------------------------------------------------------------ */

size_t hak_usable(const void *block)
{
    if (block == NULL)
        return 0;
    uint32_t tag = hak_tag_of(block);
    if (hak_tag_is_slab(tag))
        return hak_classes[(tag & HAK_TAG_CLASS_MASK) >> HAK_CLASS_SHIFT].bytes;
    if (tag == HAK_TAG_SPAN)
        return hak_large_usable(block);
    if (hak_heap_tls == &hak_heap_busy)
        return hak_emergency_usable(block);
    hak_hot *hot = hak_busy_begin();
    size_t bytes = hak_big_usable(block);
    hak_busy_end(hot);
    return bytes != 0 ? bytes : hak_emergency_usable(block);
}

HAK_EXPORT size_t hak_usable_size(const void *block)
{
    return hak_usable(block);
}

/* ---- realloc --------------------------------------------------------------------------------- */

/* Blocks smaller than this are not yet taken for a buffer that grows and grows. */
#define HAK_BUFFER_LEAST 4096u

/* Where a block moves to that changes its size. */
static void *hak_realloc_to(size_t old, size_t size)
{
    hak_hot *hot = hak_heap_tls;
    if (size <= old || old < HAK_BUFFER_LEAST || size <= HAK_MID_MAX ||
        size >= hak_knob_get(HAK_KNOB_BIG_THRESHOLD) || !hak_heap_is_real(hot))
        return hak_malloc(size);
    hak_heap *heap = hak_heap_of(hot);
    hak_busy_begin();
    void *block = hak_large_alloc_ahead(heap, size);
    if (hak_likely(block != NULL))
        hak_count_down(heap, size, HAK_CLASS_NONE);
    hak_slow_end(heap, hot);
    return hak_likely(block != NULL) ? block : hak_malloc(size);
}

static void *hak_realloc_move(void *block, size_t old, size_t size)
{
    int saved = errno;
    void *moved = hak_realloc_to(old, size);
    if (moved == NULL) {
        if (size > old)
            return NULL;
        /* What was to shrink serves as it is. */
        errno = saved;
        return block;
    }
    memcpy(moved, block, old < size ? old : size);
    /* Spans on the way to another size are not kept for the next request of this one. */
    if (hak_tag_of(moved) == HAK_TAG_SPAN)
        hak_large_grown(moved, size);
    if (hak_tag_of(block) == HAK_TAG_SPAN)
        hak_large_grown(block, old);
    hak_free(block);
    return moved;
}

/* Blocks of pages, which can often be made longer or shorter where they stand, or moved without
 * copying. */
static void *hak_realloc_pages(void *block, uint32_t tag, size_t old, size_t size)
{
    if (hak_unlikely(hak_heap_tls == &hak_heap_busy))
        return hak_realloc_move(block, old, size);
    uint64_t big = hak_knob_get(HAK_KNOB_BIG_THRESHOLD);
    void *moved = NULL;
    hak_hot *hot;
    hak_heap *heap = hak_slow_begin(&hot);
    if (tag == HAK_TAG_SPAN) {
        if (heap != NULL && size > HAK_MID_MAX && size < big && hak_large_resize(heap, block, size))
            moved = block;
    } else if (size >= big) {
        moved = hak_big_resize(block, size);
    }
    hak_slow_end(heap, hot);
    return moved != NULL ? moved : hak_realloc_move(block, old, size);
}

HAK_EXPORT void *hak_realloc(void *block, size_t size)
{
    if (block == NULL)
        return hak_malloc(size);
    if (size == 0) {
        hak_free(block);
        return NULL;
    }
    if (size > HAK_REQUEST_MAX)
        return hak_no_memory(size);
    uint32_t tag = hak_tag_of(block);
    size_t old = hak_usable(block);
    if (old == 0) {
        /* In the middle of a slow path a big block can't be looked up. */
        if (hak_heap_tls != &hak_heap_busy)
            hak_free_foreign(block, tag);
        return hak_no_memory(size);
    }
    /* A block that would lose less than half stays, as it may grow again. */
    if (size <= old && (size >= old / 2 || old <= 64))
        return block;
    if (!hak_tag_is_slab(tag))
        return hak_realloc_pages(block, tag, old, size);
    return hak_realloc_move(block, old, size);
}

HAK_EXPORT void *hak_reallocarray(void *block, size_t count, size_t size)
{
    size_t bytes;
    if (__builtin_mul_overflow(count, size, &bytes))
        return hak_no_memory(SIZE_MAX);
    return hak_realloc(block, bytes);
}

/* ---- Aligned --------------------------------------------------------------------------------- */

HAK_EXPORT void *hak_aligned_alloc(size_t alignment, size_t size)
{
    /* C17 allows any power of two and any size. */
    if (!hak_is_power_of_two(alignment)) {
        errno = EINVAL;
        return NULL;
    }
    return hak_aligned_slow(alignment, size);
}

HAK_EXPORT int hak_posix_memalign(void **out, size_t alignment, size_t size)
{
    if (!hak_is_power_of_two(alignment) || alignment % sizeof(void *) != 0)
        return EINVAL;
    int saved = errno;
    void *block = hak_aligned_slow(alignment, size);
    errno = saved;
    if (block == NULL)
        return ENOMEM;
    *out = block;
    return 0;
}

/* glibc's memalign takes any alignment and rounds it up to a power of two. */
void *hak_memalign(size_t alignment, size_t size);
void *hak_memalign(size_t alignment, size_t size)
{
    if (alignment > HAK_REQUEST_MAX / 2 + 1) {
        errno = EINVAL;
        return NULL;
    }
    size_t power = 16;
    while (power < alignment)
        power <<= 1;
    return hak_aligned_slow(power, size);
}

#if !defined(HAK_NO_INTERPOSE)
void *hak_valloc(size_t size);
void *hak_valloc(size_t size)
{
    return hak_aligned_slow(hak_os_page_bytes, size);
}

void *hak_pvalloc(size_t size);
void *hak_pvalloc(size_t size)
{
    if (size > HAK_REQUEST_MAX)
        return hak_no_memory(size);
    size_t whole = hak_round_up(size == 0 ? 1 : size, hak_os_page_bytes);
    return hak_aligned_slow(hak_os_page_bytes, whole);
}

/* ---- The names that every program calls ------------------------------------------------------ */

#if defined(__GNUC__) && !defined(__clang__)
#define HAK_ALIAS(of) HAK_EXPORT __attribute__((alias(#of), copy(of)))
#else
#define HAK_ALIAS(of) HAK_EXPORT __attribute__((alias(#of)))
#endif

void *malloc(size_t size) HAK_ALIAS(hak_malloc);
void *calloc(size_t count, size_t size) HAK_ALIAS(hak_calloc);
void *realloc(void *block, size_t size) HAK_ALIAS(hak_realloc);
void *reallocarray(void *block, size_t count, size_t size) HAK_ALIAS(hak_reallocarray);
void free(void *block) HAK_ALIAS(hak_free);
void cfree(void *block) HAK_ALIAS(hak_free);
void free_sized(void *block, size_t size) HAK_ALIAS(hak_free_sized);
void free_aligned_sized(void *block, size_t alignment, size_t size)
    HAK_ALIAS(hak_free_aligned_sized);
void *aligned_alloc(size_t alignment, size_t size) HAK_ALIAS(hak_aligned_alloc);
int posix_memalign(void **out, size_t alignment, size_t size) HAK_ALIAS(hak_posix_memalign);
void *memalign(size_t alignment, size_t size) HAK_ALIAS(hak_memalign);
void *valloc(size_t size) HAK_ALIAS(hak_valloc);
void *pvalloc(size_t size) HAK_ALIAS(hak_pvalloc);
size_t malloc_usable_size(void *block) HAK_ALIAS(hak_usable_size);
#endif
