/* entry.h: what the entry points share. */
#ifndef HAK_API_ENTRY_H
#define HAK_API_ENTRY_H

#include <stdbool.h>
#include <stddef.h>

#include <hakmem/hakmem.h>

#include "heap/types.h"

/* Requests above this fail: the difference of two pointers into a block must be a ptrdiff_t. */
#define HAK_REQUEST_MAX ((size_t)PTRDIFF_MAX)

/* Bytes that may be used at `block`; 0 for what is not ours. */
size_t hak_usable(const void *block);

/* Gives back everything that can be: this heap's stocks (NULL: nobody's), BigCache, empty pages. Returns
 * the bytes given back. For a thread that is busy (emergency.h). */
size_t hak_purge_all(hak_heap *heap);

/* Frees of what was not ours. */
uint64_t hak_foreign_frees(void);

/* Every lock is taken before a fork and made anew in the child; called by the constructor. */
void hak_fork_watch(void);

/* Ready for statistics: the same figures as hak_stats. */
void hak_stats_collect(hak_stats_data *out);

#endif
