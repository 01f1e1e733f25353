/* large.h: requests above the mid classes and below the big threshold: a span of pages each.
 *
 * A freed span first stays with the thread that freed it, in a few slots bounded by bytes, then goes
 * back to the superslabs, where it merges with its neighbours. Takes the central lock when the slots
 * don't serve.
 */
#ifndef HAK_HEAP_LARGE_H
#define HAK_HEAP_LARGE_H

#include "heap/types.h"

/* `size` at most HAK_SUPERSLAB_BYTES; `alignment` a power of two up to that. *zeroed says whether the
 * block is known to read as zeros. NULL without memory. */
void *hak_large_alloc(hak_heap *heap, size_t size, size_t alignment, bool *zeroed);

/* Frees the span that starts at `block`; `heap` may be NULL. False where none starts there. */
bool hak_large_free(hak_heap *heap, void *block);

/* Bytes of the span that starts at `block`, or 0. */
size_t hak_large_usable(const void *block);

/* Makes a span hold `size` bytes where it stands, if it can. */
bool hak_large_resize(hak_heap *heap, void *block, size_t size);

/* Gives kept spans back, oldest first, until at most `bytes` are kept. */
void hak_large_flush(hak_heap *heap, uint64_t bytes);

#endif
