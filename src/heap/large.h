/* large.h: requests above the mid classes and below the big threshold: a span of pages each.
 *
 * Spans are cut to classes, eight to a doubling, so that one serves again for what is nearly as large,
 * with the pages that were touched in it where they are touched again. A freed span first stays with
 * the thread that freed it, then in the shared stock, then goes back to its superslab, where it merges
 * with its neighbours. Locks: STOCK for the stock; CENTRAL for superslabs, never inside STOCK.
 */
#ifndef HAK_HEAP_LARGE_H
#define HAK_HEAP_LARGE_H

#include "heap/types.h"

extern hak_lock hak_stock_lock;

/* A span from the heap's own slots, for a size above HAK_MID_MAX and below the big threshold; NULL where there
 * is none at hand. The short way of hak_large_alloc. */
void *hak_large_pop(hak_heap *heap, size_t size);

/* `size` at most HAK_SUPERSLAB_BYTES; `alignment` a power of two up to that. *zeroed says whether the
 * block is known to read as zeros. NULL without memory. */
void *hak_large_alloc(hak_heap *heap, size_t size, size_t alignment, bool *zeroed);

/* The same for a block that a realloc makes larger: with room to grow further, where there is some. */
void *hak_large_alloc_ahead(hak_heap *heap, size_t size);

/* Frees the span that starts at `block`; `heap` may be NULL. False where none starts there. */
bool hak_large_free(hak_heap *heap, void *block);

/* Says that a span came of a realloc to `size`: it is not kept when it is freed, and what it holds beyond the
 * pages of that size is room to grow. */
void hak_large_grown(void *block, size_t size);

/* Bytes of the span that starts at `block`, without room to grow; or 0. */
size_t hak_large_usable(const void *block);

/* Makes a span hold `size` bytes where it stands, if it can. */
bool hak_large_resize(hak_heap *heap, void *block, size_t size);

/* Moves what a heap keeps to the stock until at most `bytes` are left. */
void hak_large_flush(hak_heap *heap, uint64_t bytes);

/* Gives spans of the stock back that were kept beyond purge_delay; with `all`, every one. */
void hak_large_tidy(bool all);

typedef struct hak_large_stats {
    uint64_t stock_bytes;
    uint64_t stock_spans;
} hak_large_stats;
void hak_large_stats_read(hak_large_stats *out);

#endif
