/* init.c: what happens once: when the library is loaded, and when the process ends.
 *
 * An allocation may come before the constructor (another library's): it is served with the defaults.
 */
#include "api/entry.h"
#include "heap/big.h"
#include "heap/central.h"
#include "heap/emergency.h"
#include "heap/exchange.h"
#include "heap/heap.h"
#include "heap/large.h"
#include "heap/remote.h"
#include "observe/observe.h"
#include "os/os.h"
#include "policy/policy.h"

__attribute__((constructor(101))) static void hak_init(void)
{
    hak_central_init();
    hak_os_read_settings();
    hak_policy_init();
    hak_observe_init();
    hak_heap_watch_threads();
    hak_fork_watch();
}

__attribute__((destructor(101))) static void hak_exit(void)
{
    hak_observe_exit();
}

size_t hak_purge_all(hak_heap *heap)
{
    size_t purged = 0;
    if (heap != NULL)
        hak_heap_empty(heap);
    hak_heaps_dissolve(true);
    hak_exchange_trim(true);
    if (heap != NULL) {
        hak_remote_drain(heap);
        purged += hak_heap_purge(heap);
    }
    purged += hak_orphans_tidy(true);
    hak_large_tidy(true);
    return purged + hak_bigcache_purge(true) + hak_central_purge(true);
}

HAK_EXPORT size_t hak_purge(void)
{
    hak_hot *hot = hak_busy_begin();
    size_t purged = 0;
    if (hot != &hak_heap_busy)
        purged = hak_purge_all(hak_heap_is_real(hot) ? hak_heap_of(hot) : NULL);
    hak_busy_end(hot);
    return purged;
}
