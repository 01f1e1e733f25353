/* lock.h: the project's one lock: a word, a futex, a rank.
 *
 * Locks are taken on slow paths only, in the order of their ranks (a debug build checks it), and
 * never across a call into the host. The system call is raw, so that a lock is no cancellation
 * point. Fork takes every lock in rank order; parent and child each
 * drop their copies.
 */
#ifndef HAK_BASE_LOCK_H
#define HAK_BASE_LOCK_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/assert.h"
#include "base/bits.h"

typedef enum hak_rank {
    HAK_RANK_POLICY,
    HAK_RANK_SITES,
    HAK_RANK_HEAPS,
    HAK_RANK_BIG,
    HAK_RANK_STOCK,
    HAK_RANK_EXCHANGE, /* a lock for each class: only tried, or all taken for a fork */
    HAK_RANK_CENTRAL,
    HAK_RANK_META,
    HAK_RANK_COUNT
} hak_rank;

typedef struct hak_lock {
    _Atomic uint32_t word; /* 0 free, 1 taken, 2 taken and somebody may sleep */
    uint8_t rank;
} hak_lock;

#define HAK_LOCK_INIT(r)                                                                           \
    {                                                                                              \
        .word = 0, .rank = (r)                                                                     \
    }

void hak_lock_wait(hak_lock *lock);
void hak_lock_wake(hak_lock *lock);

#if defined(HAK_DEBUG)
void hak_lock_rank_push(const hak_lock *lock);
void hak_lock_rank_pop(const hak_lock *lock);
#else
HAK_INLINE void hak_lock_rank_push(const hak_lock *lock)
{
    (void)lock;
}
HAK_INLINE void hak_lock_rank_pop(const hak_lock *lock)
{
    (void)lock;
}
#endif

/* One more lock of the rank that was taken last: whoever takes several takes them in the same order.
 * Pairs: the acquire CAS with the release exchange in hak_lock_drop_more. */
HAK_INLINE void hak_lock_take_more(hak_lock *lock)
{
    uint32_t seen = 0;
    if (hak_likely(atomic_compare_exchange_strong_explicit(
            &lock->word, &seen, 1, memory_order_acquire, memory_order_relaxed)))
        return;
    hak_lock_wait(lock);
}

HAK_INLINE void hak_lock_drop_more(hak_lock *lock)
{
    if (hak_unlikely(atomic_exchange_explicit(&lock->word, 0, memory_order_release) == 2))
        hak_lock_wake(lock);
}

HAK_INLINE void hak_lock_take(hak_lock *lock)
{
    hak_lock_rank_push(lock);
    hak_lock_take_more(lock);
}

/* Takes it only if nobody has it. */
HAK_INLINE bool hak_lock_try(hak_lock *lock)
{
    uint32_t seen = 0;
    if (atomic_load_explicit(&lock->word, memory_order_relaxed) != 0 ||
        !atomic_compare_exchange_strong_explicit(&lock->word, &seen, 1, memory_order_acquire,
                                                 memory_order_relaxed))
        return false;
    hak_lock_rank_push(lock);
    return true;
}

HAK_INLINE void hak_lock_drop(hak_lock *lock)
{
    hak_lock_rank_pop(lock);
    hak_lock_drop_more(lock);
}

#endif
