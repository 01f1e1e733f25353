/* exchange.h: freed blocks on the way from threads that have too many to threads that have none.
 *
 * A bin that spills keeps its own slabs' blocks out of here: they go home by one bit. Blocks of other heaps
 * would have to be posted one by one, to an owner that may be asleep. They are put here first, and a
 * refill takes them before it touches fresh memory: one short lock for many blocks. Whose they are does
 * not change. What the exchange has no room for is posted.
 *
 * A lock for each class, which is only tried: where somebody holds it, the caller does without.
 */
#ifndef HAK_HEAP_EXCHANGE_H
#define HAK_HEAP_EXCHANGE_H

#include "heap/types.h"

/* Before the first heap is made. */
void hak_exchange_init(void);

/* Takes in up to `count` blocks of a class, the last first. Returns how many were taken in: they are no
 * longer the caller's. */
uint32_t hak_exchange_put(unsigned class, void *const *blocks, uint32_t count);

/* Moves up to `want` blocks of a class to the slots below `end`. Returns how many. */
uint32_t hak_exchange_take(unsigned class, void **end, uint32_t want);

/* Posts half of what nobody asked for since the last time, if that was purge_delay ago; or all there is. */
void hak_exchange_trim(bool all);

/* Blocks that trims have posted. */
uint64_t hak_exchange_posted(void);

/* Bytes of the blocks held. No lock. */
uint64_t hak_exchange_bytes(void);

/* For fork: nobody changes anything in between. */
void hak_exchange_hold(void);
void hak_exchange_release(void);

#endif
