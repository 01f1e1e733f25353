/* fork.c: the allocator across fork.
 *
 * The child has one thread and a copy of everything. Every lock is held by the forking thread while
 * the copy is made, so what they guard is whole. Heaps of threads that the child does not have may be
 * torn, in the middle of a slow path: they stay marked as taken and no list leads to them, so nobody
 * in the child adopts from them; their blocks, freed, are used again, but what is posted to them stays.
 */
#include <pthread.h>

#include "api/entry.h"
#include "heap/big.h"
#include "heap/central.h"
#include "heap/emergency.h"
#include "heap/exchange.h"
#include "heap/heap.h"
#include "heap/large.h"
#include "heap/meta.h"
#include "policy/options.h"
#include "policy/policy.h"
#include "site/callsite.h"

/* In the order of their ranks; the exchange's locks stand between. */
static hak_lock *const hak_fork_locks[] = {&hak_policy_lock, &hak_callsite_lock, &hak_heaps_lock,
                                           &hak_big_lock, &hak_stock_lock};
static hak_lock *const hak_fork_last_locks[] = {&hak_central_lock, &hak_meta_lock};

static hak_hot *hak_fork_hot; /* of the thread that forks; under the locks */

static void hak_fork_prepare(void)
{
    hak_hot *hot = hak_busy_begin();
    for (size_t i = 0; i < HAK_COUNT_OF(hak_fork_locks); i++)
        hak_lock_take(hak_fork_locks[i]);
    hak_exchange_hold();
    for (size_t i = 0; i < HAK_COUNT_OF(hak_fork_last_locks); i++)
        hak_lock_take(hak_fork_last_locks[i]);
    hak_fork_hot = hot;
}

static void hak_fork_drop_locks(void)
{
    for (size_t i = HAK_COUNT_OF(hak_fork_last_locks); i-- > 0;)
        hak_lock_drop(hak_fork_last_locks[i]);
    hak_exchange_release();
    for (size_t i = HAK_COUNT_OF(hak_fork_locks); i-- > 0;)
        hak_lock_drop(hak_fork_locks[i]);
}

static void hak_fork_parent(void)
{
    hak_hot *hot = hak_fork_hot;
    hak_fork_drop_locks();
    hak_busy_end(hot);
}

static void hak_fork_child(void)
{
    hak_hot *hot = hak_fork_hot;
    hak_fork_drop_locks();
    hak_heaps_forked(hak_heap_is_real(hot) ? hak_heap_of(hot) : NULL);
    hak_busy_end(hot);
}

void hak_fork_watch(void)
{
    /* First registered: the last prepare to run and the first child handler, so that the handlers of
     * others may allocate. */
    pthread_atfork(hak_fork_prepare, hak_fork_parent, hak_fork_child);
}
