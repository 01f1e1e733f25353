/* emergency.h: calls that arrive in the middle of a slow path of the same thread.
 *
 * That is a signal handler that allocates or frees: undefined in C, done all the same, and here at least
 * no deadlock. While a thread is in a slow path its hak_heap_tls points at hak_heap_busy, so whatever
 * interrupts it comes to these functions, which take no lock and touch no heap: small blocks from a few
 * fixed slots, large ones from the system, frees of spans and big blocks put off until later.
 */
#ifndef HAK_HEAP_EMERGENCY_H
#define HAK_HEAP_EMERGENCY_H

#include "heap/heap.h"

/* NULL where nothing is left, which does not last. */
void *hak_emergency_alloc(size_t size, size_t alignment);

/* Frees a block of ours without a lock. */
void hak_emergency_free(void *block);

/* Frees a block that hak_emergency_alloc gave; false where it is none. */
bool hak_emergency_give(void *block);

/* Bytes of such a block, or 0. */
size_t hak_emergency_usable(const void *block);

/* A free that was put off, to be done now; NULL when there is none. */
extern _Atomic uint32_t hak_put_off_count;
void *hak_emergency_find(void);

HAK_INLINE void *hak_emergency_next(void)
{
    if (hak_likely(atomic_load_explicit(&hak_put_off_count, memory_order_relaxed) == 0))
        return NULL;
    return hak_emergency_find();
}

/* Between the two, the calling thread is in a slow path. They nest. */
HAK_INLINE hak_hot *hak_busy_begin(void)
{
    hak_hot *hot = hak_heap_tls;
    hak_heap_tls = &hak_heap_busy;
    /* For a handler in this thread: what follows must not move above. */
    atomic_signal_fence(memory_order_seq_cst);
    return hot;
}

HAK_INLINE void hak_busy_end(hak_hot *hot)
{
    atomic_signal_fence(memory_order_seq_cst);
    hak_heap_tls = hot;
}

#endif
