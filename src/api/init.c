/* init.c: what happens once: when the library is loaded, and when the process ends.
 *
 * An allocation may come before the constructor (another library's): it is served with the defaults.
 */
#include "api/entry.h"
#include "heap/big.h"
#include "heap/central.h"
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

size_t hak_purge_all(void)
{
    size_t purged = 0;
    if (hak_heap_is_real(hak_heap_tls)) {
        hak_heap_empty(hak_heap_of(hak_heap_tls));
        purged += hak_heap_purge(hak_heap_of(hak_heap_tls));
    }
    hak_heaps_dissolve(true);
    purged += hak_orphans_tidy(true);
    hak_large_tidy(true);
    return purged + hak_bigcache_purge(true) + hak_central_purge(true);
}

HAK_EXPORT size_t hak_purge(void)
{
    return hak_purge_all();
}
