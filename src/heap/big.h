/* big.h: requests of the big threshold and above: a mapping each; and BigCache, which keeps freed ones.
 *
 * Big blocks lie where the kernel puts them, above the region; a hash table knows them by address.
 * Lock: HAK_RANK_BIG, taken inside; system calls are made outside it, but for those on what BigCache
 * holds.
 */
#ifndef HAK_HEAP_BIG_H
#define HAK_HEAP_BIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/lock.h"

extern hak_lock hak_big_lock;

/* *zeroed as in hak_span_new. `alignment` is a power of two. NULL without memory. */
void *hak_big_alloc(size_t size, size_t alignment, bool *zeroed);

/* False where no big block starts there. */
bool hak_big_free(void *block);

/* Bytes of the big block at `block`, or 0. */
size_t hak_big_usable(const void *block);

/* Grows or shrinks a big block, moving its pages and not its bytes. The new address, or NULL where the
 * system can't: the old block then stands. */
void *hak_big_resize(void *block, size_t size);

/* Unmaps what BigCache has kept beyond purge_delay; with `all`, everything. Returns the bytes. */
size_t hak_bigcache_purge(bool all);

typedef struct hak_big_stats {
    uint64_t requests;
    uint64_t request_bytes;
    uint64_t hits;
    uint64_t mapped; /* mappings made, and given back */
    uint64_t unmapped;
    uint64_t live;
    uint64_t live_bytes;
    uint64_t cached_bytes;
} hak_big_stats;
void hak_big_stats_read(hak_big_stats *out);

#endif
