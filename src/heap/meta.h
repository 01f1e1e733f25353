/* meta.h: memory for hakmem's own data: superslab headers, heaps, bitmaps, bins' arrays.
 *
 * Bump allocation from mappings of its own; nothing is given back, because what is allocated here is
 * recycled by its users and may be read by stale pointers. Lock: HAK_RANK_META, taken inside.
 */
#ifndef HAK_HEAP_META_H
#define HAK_HEAP_META_H

#include <stddef.h>
#include <stdint.h>

#include "base/lock.h"

extern hak_lock hak_meta_lock;

/* Zeroed, aligned to `alignment` (a power of two up to a page). NULL without memory. */
void *hak_meta_alloc(size_t bytes, size_t alignment);

uint64_t hak_meta_bytes(void);

#endif
