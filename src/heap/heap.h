/* heap.h: a thread's heap: taken at its first allocation, given up at its end, kept for the next.
 *
 * Heaps are never freed. One whose thread has ended is kept whole for a while, for the next thread to
 * go on with; then it is dissolved: its slabs become orphans, for any heap to adopt.
 * Locks: HEAPS for the lists of heaps; CENTRAL inside.
 */
#ifndef HAK_HEAP_HEAP_H
#define HAK_HEAP_HEAP_H

#include "heap/types.h"

extern hak_lock hak_heaps_lock;

/* The calling thread's heap, made if need be. NULL without memory, and in a thread that has given its
 * heap up. `hot` is the thread's hak_heap_tls; not &hak_heap_busy. */
hak_heap *hak_heap_mine(hak_hot *hot);

/* A heap for the time of one call, in a thread that has given its own up. NULL without memory. */
hak_heap *hak_heap_borrow(void);
void hak_heap_return(hak_heap *heap);

/* Takes over the policy in force if it has changed. */
void hak_heap_follow_policy(hak_heap *heap);

/* The countdown ran out: counts the bytes served, does what is owed, starts it anew. `class` is that
 * of the request that met it. */
void hak_heartbeat(hak_heap *heap, unsigned class);

/* Spills every bin, posts what is gathered, gives large slots back. */
void hak_heap_empty(hak_heap *heap);

/* Gives back whole pages of free blocks in this heap's slabs. Returns the bytes. */
size_t hak_heap_purge(hak_heap *heap);

/* Called by the constructor: from here on a thread's end gives its heap up. */
void hak_heap_watch_threads(void);

/* In the child of a fork: every heap that a thread had but `mine` is torn. */
void hak_heaps_forked(const hak_heap *mine);

/* How many heaps have a thread. No lock. */
uint32_t hak_heaps_live(void);

/* Bytes served by this heap so far, exactly. */
uint64_t hak_heap_served(const hak_heap *heap);

/* Makes orphans of the slabs of heaps that have been without a thread beyond purge_delay; with `all`, of
 * every such heap. */
void hak_heaps_dissolve(bool all);

/* Calls `visit` for every heap there is, hak_orphans among them, under HAK_RANK_HEAPS. */
void hak_heaps_each(void (*visit)(hak_heap *heap, void *context), void *context);

#endif
