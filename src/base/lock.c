#include "base/lock.h"

#include <linux/futex.h>
#include <sys/syscall.h>

#include "base/syscall.h"

/* A holder is done within a microsecond or two, unless it is in a system call: worth a short spin,
 * not a long one. */
#define HAK_LOCK_SPINS 64

HAK_INLINE void hak_cpu_relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield" ::: "memory");
#endif
}

HAK_COLD void hak_lock_wait(hak_lock *lock)
{
    for (int i = 0; i < HAK_LOCK_SPINS; i++) {
        uint32_t seen = 0;
        if (atomic_load_explicit(&lock->word, memory_order_relaxed) == 0 &&
            atomic_compare_exchange_weak_explicit(&lock->word, &seen, 1, memory_order_acquire,
                                                  memory_order_relaxed))
            return;
        hak_cpu_relax();
    }
    /* Whoever slept takes the lock as 2: it can't know whether others sleep too.
     * Pairs: the acquire exchange with the release exchange in hak_lock_drop. */
    while (atomic_exchange_explicit(&lock->word, 2, memory_order_acquire) != 0)
        hak_syscall4(SYS_futex, (long)&lock->word, FUTEX_WAIT_PRIVATE, 2, 0);
}

HAK_COLD void hak_lock_wake(hak_lock *lock)
{
    hak_syscall4(SYS_futex, (long)&lock->word, FUTEX_WAKE_PRIVATE, 1, 0);
}

#if defined(HAK_DEBUG)
/* Ranks held by this thread, as bits. */
static __thread uint32_t hak_ranks_held __attribute__((tls_model("initial-exec")));

void hak_lock_rank_push(const hak_lock *lock)
{
    hak_assert((hak_ranks_held >> lock->rank) == 0);
    hak_ranks_held |= 1u << lock->rank;
}

void hak_lock_rank_pop(const hak_lock *lock)
{
    hak_assert((hak_ranks_held & (1u << lock->rank)) != 0);
    hak_ranks_held &= ~(1u << lock->rank);
}
#endif
