/* bin.h: moving blocks between a heap's bins and its slabs.
 *
 * Callers: the slow paths of the thread that has the heap; nobody else. Takes the central lock (for
 * a new slab, an empty one, an adoption) and through it the system.
 */
#ifndef HAK_HEAP_BIN_H
#define HAK_HEAP_BIN_H

#include "heap/types.h"

/* Fills an empty bin: from slabs that have room, else from adopted or new ones. False without
 * memory. */
bool hak_bin_refill(hak_heap *heap, unsigned class);

/* A block whose bin is full or was never used: lets the bin grow, or moves its oldest blocks back to their
 * slabs, those of other heaps too; or puts the block itself where it belongs. */
void hak_bin_free_full(hak_heap *heap, unsigned class, void *block);

/* Moves the oldest `count` blocks of a bin back to their slabs; those of other heaps to the exchange, or to
 * their owners. */
void hak_bin_spill(hak_heap *heap, unsigned class, uint32_t count);

HAK_INLINE uint32_t hak_bin_count(const hak_heap *heap, unsigned class)
{
    void **base = heap->back[class].base;
    return base == NULL ? 0 : (uint32_t)(heap->hot.bins[class].top - base);
}

/* Lets go of what the bins hold of other heaps' blocks. */
void hak_bins_part(hak_heap *heap);

/* Notes how little each bin holds: what it never fell below is not needed. */
void hak_bins_watch(hak_heap *heap);

/* Spills half of what was not needed since the last trim, and lowers the caps of such bins. */
void hak_bins_trim(hak_heap *heap);

/* Gives whole pages of free blocks back to the system, in slabs that hold others. Returns the bytes;
 * *calls counts the system calls. For the owner of the list, which may be hak_orphans. */
size_t hak_slabs_purge(const hak_slab_list *list, uint64_t *calls);

/* Lowers a bin's cap to what the knobs allow now, and spills what is above. */
void hak_bin_bound(hak_heap *heap, unsigned class);

/* Puts `mask` of word `word` back into a slab of this heap: used by spills and drains. May delete the
 * slab: the caller must not touch it afterwards. */
void hak_slab_put(hak_heap *heap, hak_slab *slab, unsigned word, uint64_t mask);

/* Sets the bins to "never used". */
void hak_bins_init(hak_heap *heap);

/* Puts an orphan or fresh slab, already tagged, into the heap's lists. */
void hak_slab_enlist(hak_heap *heap, hak_slab *slab);

void hak_slab_list_push(hak_slab_list *list, hak_slab *slab);
void hak_slab_list_append(hak_slab_list *list, hak_slab *slab);
void hak_slab_list_remove(hak_slab_list *list, hak_slab *slab);

#endif
