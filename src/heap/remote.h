/* remote.h: frees of blocks whose slab another heap owns: publish, drain, adopt.
 *
 * The protocol, whose invariants stand in docs/how-it-works.md:
 *   post    a freer sets the block's bit in the slab's remote bitmap, then sets `mailed`; whoever
 *           turned it from 0 to 1 pushes the slab onto the mailbox of the slab's owner.
 *   drain   the owner takes the whole mailbox; for each slab it clears `mailed`, then takes the bits.
 *           A slab that it finds to be somebody else's by now is mailed on.
 *   orphan  a heap whose thread ends gives its slabs to hak_orphans, under the central lock; whoever
 *           holds that lock is their owner. A refill adopts from there before it maps.
 * A slab is deleted only when every block of it is accounted for, so bits are never lost; a slab may
 * lie in a mailbox when it is deleted or changes hands, and then is found there without bits.
 */
#ifndef HAK_HEAP_REMOTE_H
#define HAK_HEAP_REMOTE_H

#include "heap/types.h"

/* The heap of nobody: owner 1. Its lists are under hak_central_lock. */
extern hak_heap hak_orphans;

/* Posts blocks of one slab: the bits `mask` of word `word` of its remote bitmap. */
void hak_remote_post(hak_slab *slab, unsigned word, uint64_t mask);

/* Posts a block, and in one piece with it as many as follow it in the array and lie in the same word of the
 * same slab's bitmap. Returns how many. */
uint32_t hak_remote_post_run(void *const *next, void *const *end);

/* Posts one block. */
void hak_remote_post_one(void *block);

/* Takes in what other heaps freed of this one's. Cheap when there is nothing. */
void hak_remote_drain(hak_heap *heap);

/* Looks at a few full slabs of the class for frees whose mail is held up elsewhere. True where one now
 * has room. */
bool hak_remote_poll(hak_heap *heap, unsigned class);

/* Mails on what lies in the mailbox of a heap that no thread has, and that owns no slab. */
void hak_mailbox_forward(hak_heap *heap);

/* A slab of `class` with room, taken over from the orphans; NULL where there is none. */
hak_slab *hak_orphans_adopt(hak_heap *heap, unsigned class);

/* Makes every slab of a heap an orphan; empty ones are given back. Bins must be empty. Returns how
 * many. */
unsigned hak_orphans_leave(hak_heap *heap);

/* Takes in what was mailed to the orphans; gives those back that are empty then. Cheap when there is
 * nothing. */
void hak_orphans_drain(void);
void hak_orphans_drain_locked(void);

/* Takes in the frees of orphans' blocks; gives empty orphans back, and with `purge` whole pages of free
 * blocks in the others. Returns the bytes purged. */
size_t hak_orphans_tidy(bool purge);

#endif
