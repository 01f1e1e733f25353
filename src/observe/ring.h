/* ring.h: the event ring's inside, for observe/ and its tests. Others use hak_trace and
 * hak_ring_print.
 *
 * Takes no lock and allocates nothing once started; everything here is async-signal-safe.
 */
#ifndef HAK_OBSERVE_RING_H
#define HAK_OBSERVE_RING_H

#include <stdbool.h>
#include <stdint.h>

#include "observe/observe.h"

typedef struct hak_ring_record {
    uint64_t time_ns; /* monotonic */
    uint64_t a;
    uint64_t b;
    uint32_t thread;
    uint32_t event; /* hak_event */
} hak_ring_record;

/* Maps a ring of `entries`, rounded up to a power of two, and turns it on. False without memory, and
 * where there is one already. Before there is a second thread. */
bool hak_ring_start(uint64_t entries);

/* Entries of the ring; 0 where there is none. */
uint64_t hak_ring_capacity(void);

/* How many events were added so far: the last ones are at the positions below it. */
uint64_t hak_ring_position(void);

/* Copies the event added at `position`. False where it is not there: overwritten by now, not written
 * out yet, or dropped because its entry was in use by a writer that the ring had lapped. */
bool hak_ring_read(uint64_t position, hak_ring_record *out);

#endif
