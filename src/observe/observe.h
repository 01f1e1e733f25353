/* observe.h: what the slow paths tell about themselves: the self-profile and the event ring.
 *
 * Both are off unless asked for, and then cost a test of one flag; nothing of them stands on the hot
 * path. Callers: slow paths of heap and api. Takes no lock.
 */
#ifndef HAK_OBSERVE_OBSERVE_H
#define HAK_OBSERVE_OBSERVE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/bits.h"
#include "base/format.h"
#include "os/os.h"

#define HAK_PROF_CATEGORIES(X)                                                                     \
    X(REFILL, "refill", "a bin filled from slabs")                                                 \
    X(SPILL, "spill", "a full bin emptied into slabs")                                             \
    X(POST, "post", "frees of other heaps' blocks posted")                                         \
    X(DRAIN, "drain", "frees by other heaps taken in")                                             \
    X(SLAB, "slab", "a slab taken from or given back to a superslab")                              \
    X(SPAN, "span", "a large span taken or given back")                                            \
    X(BIG, "big", "a big mapping made, found in BigCache, or given back")                          \
    X(MAP, "map", "address space reserved or committed")                                           \
    X(PURGE, "purge", "memory given back to the system")                                           \
    X(HEAP, "heap", "a thread's heap taken or given up")                                           \
    X(HEARTBEAT, "heartbeat", "housekeeping on the byte countdown")

typedef enum hak_prof_category {
#define X(ID, ...) HAK_PROF_##ID,
    HAK_PROF_CATEGORIES(X)
#undef X
        HAK_PROF_COUNT
} hak_prof_category;

/* Events of the ring: the same categories, with two numbers each (what they are is in the name). */
#define HAK_EVENTS(X)                                                                              \
    X(REFILL, "refill", "class", "blocks")                                                         \
    X(SPILL, "spill", "class", "blocks")                                                           \
    X(POST, "post", "blocks", "class")                                                             \
    X(DRAIN, "drain", "blocks", "slabs")                                                           \
    X(SLAB_NEW, "slab-new", "class", "chunks")                                                     \
    X(SLAB_FREE, "slab-free", "class", "chunks")                                                   \
    X(ADOPT, "adopt", "class", "blocks")                                                           \
    X(SPAN_NEW, "span-new", "bytes", "zeroed")                                                     \
    X(SPAN_FREE, "span-free", "bytes", "dirty_bytes")                                              \
    X(BIG_NEW, "big-new", "bytes", "from_cache")                                                   \
    X(BIG_FREE, "big-free", "bytes", "to_cache")                                                   \
    X(RESERVE, "reserve", "address", "bytes")                                                      \
    X(COMMIT, "commit", "address", "bytes")                                                        \
    X(PURGE, "purge", "bytes", "calls")                                                            \
    X(HEAP_TAKE, "heap-take", "owner", "reused")                                                   \
    X(HEAP_GIVE, "heap-give", "owner", "heaps_left")                                               \
    X(POLICY, "policy", "generation", "owner")                                                     \
    X(NO_MEMORY, "no-memory", "bytes", "errno")                                                    \
    X(FOREIGN, "foreign-free", "address", "tag")

typedef enum hak_event {
#define X(ID, ...) HAK_EVENT_##ID,
    HAK_EVENTS(X)
#undef X
        HAK_EVENT_COUNT
} hak_event;

extern bool hak_prof_on; /* set by the constructor, before there is a second thread */
extern bool hak_ring_on;

/* Reads HAKMEM_PROF, HAKMEM_TRACE_RING and HAKMEM_TRACE_SIGNAL from the policy in force; maps the
 * ring; installs the signal handlers asked for. Called by the constructor, once. */
void hak_observe_init(void);

/* The reports that were asked for, at the end of the process: statistics (with self-profile and event
 * ring, where they are on), or the self-profile alone. Defined in api/hak.c, which knows the figures. */
void hak_observe_exit(void);

/* Where reports go that have no file of their own, or -1. Where some were asked for at the start,
 * it is a copy made then of file descriptor 2, so that the report of a program that closes its
 * stderr before it ends (as ls and sort do) is not lost. Without one, or where the copy's number
 * has become another file, it is 2, if that is still what it was or a file opened for appending: a
 * program may get the number anew for a database, and nothing unasked for is written there.
 * Async-signal-safe. */
int hak_observe_fd(void);

void hak_prof_add(hak_prof_category category, uint64_t nanoseconds);
void hak_ring_add(hak_event event, uint64_t a, uint64_t b);

/* Nested categories each count their own whole time. */
HAK_INLINE uint64_t hak_prof_begin(void)
{
#if defined(HAK_PLANTED_DELAY)
    /* A build that is too slow on purpose: the lab must find it (tools/lab_check.py). */
    for (int i = 0; i < HAK_PLANTED_DELAY; i++)
        __asm__ volatile("" ::: "memory");
#endif
    return hak_unlikely(hak_prof_on) ? hak_os_now_ns() : 0;
}

HAK_INLINE void hak_prof_end(hak_prof_category category, uint64_t begun)
{
    if (hak_unlikely(begun != 0))
        hak_prof_add(category, hak_os_now_ns() - begun);
}

HAK_INLINE void hak_trace(hak_event event, uint64_t a, uint64_t b)
{
    if (hak_unlikely(hak_ring_on))
        hak_ring_add(event, a, b);
}

typedef struct hak_prof_figures {
    uint64_t count;
    uint64_t total_ns;
    uint64_t max_ns;
} hak_prof_figures;
hak_prof_figures hak_prof_read(hak_prof_category category);

/* The self-profile's table and the ring's events, as text. hak_ring_print is async-signal-safe. */
void hak_prof_put(hak_text *text);
void hak_prof_print(int fd);
void hak_ring_print(int fd);

#endif
