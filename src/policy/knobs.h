/* knobs.h: the one table of everything tunable.
 *
 * A knob is one thing about the allocator that may be tuned. This table is the only place that
 * names them: options, the config file, HAKMEM_HELP=1, docs/options.md, presets and policy files
 * are all made from it. A knob that no code reads is a fault; tests/unit/test_knobs.c shows for
 * each that turning it changes what the allocator does.
 *
 * X(ID, name, unit, default, min, max, minimal preset, fast preset, text)
 *   The environment variable is HAKMEM_ and the name in capitals. "balanced", "learning" and
 *   "research" take the default. Units: bytes, blocks, count, percent, ms, switch (0 or 1), choice.
 */
#ifndef HAK_POLICY_KNOBS_H
#define HAK_POLICY_KNOBS_H

#define HAK_KiB(n) ((uint64_t)(n) << 10)
#define HAK_MiB(n) ((uint64_t)(n) << 20)
#define HAK_GiB(n) ((uint64_t)(n) << 30)

#define HAK_KNOBS(X)                                                                               \
    X(BIN_BYTES, bin_bytes, bytes, HAK_KiB(64), HAK_KiB(1), HAK_MiB(4), HAK_KiB(16), HAK_KiB(64),  \
      "Most bytes that one bin (one size class of one thread) may hold")                           \
    X(THREAD_BYTES, thread_bytes, bytes, HAK_KiB(512), 0, HAK_GiB(1), HAK_KiB(128), HAK_KiB(512),  \
      "Most bytes that all bins of one thread may hold beside 16 blocks of each tiny size and 32 " \
      "of each mid one")                                                                           \
    X(BIN_BLOCKS, bin_blocks, blocks, 512, 8, 4096, 64, 512,                                       \
      "Most blocks that one bin may hold, whatever their size")                                    \
    X(BIN_START, bin_start, blocks, 16, 4, 256, 16, 16,                                            \
      "Blocks that a bin may hold at first; it doubles with use up to the two bounds above")       \
    X(REFILL_PERCENT, refill_percent, percent, 50, 1, 100, 50, 50,                                 \
      "How much of its cap a bin is filled to when it runs empty")                                 \
    X(SPILL_PERCENT, spill_percent, percent, 50, 1, 100, 50, 50,                                   \
      "How much of its cap a full bin gives back to its slabs; all where the thread only frees")   \
    X(HEARTBEAT_BYTES, heartbeat_bytes, bytes, HAK_KiB(512), HAK_KiB(4), HAK_GiB(1), HAK_KiB(512), \
      HAK_KiB(512), "Bytes served by a thread between two heartbeats (housekeeping)")              \
    X(OUT_BYTES, out_bytes, bytes, HAK_KiB(32), 0, HAK_MiB(64), HAK_KiB(32), HAK_KiB(32),          \
      "Bytes of blocks that a thread keeps which only frees, and allocates none of their sizes; "  \
      "a "                                                                                         \
      "16th of it of each size")                                                                   \
    X(EXCHANGE_BYTES, exchange_bytes, bytes, HAK_KiB(64), 0, HAK_MiB(32), HAK_KiB(8), HAK_KiB(64), \
      "Bytes of each size freed by threads that have too many, kept for threads that need some, "  \
      "before they go back to the slabs of the thread that allocated them; at most 1,024 blocks")  \
    X(EMPTY_SLABS, empty_slabs, count, 1, 0, 64, 0, 1,                                             \
      "Empty slabs of a class that a thread keeps for itself")                                     \
    X(LARGE_SLOT_BYTES, large_slot_bytes, bytes, HAK_MiB(16), 0, HAK_GiB(16), 0, HAK_MiB(16),      \
      "Bytes of freed large spans that threads keep, each its share, or a 16th at the least")      \
    X(LARGE_WASTE, large_waste, percent, 12, 0, 100, 12, 12,                                       \
      "How much larger than the request a reused large span may be")                               \
    X(LARGE_STOCK_BYTES, large_stock_bytes, bytes, HAK_MiB(64), 0, HAK_GiB(1024), 0, HAK_MiB(64),  \
      "Bytes of freed large spans kept for all threads before they merge with their neighbours")   \
    X(BIG_THRESHOLD, big_threshold, bytes, HAK_MiB(2), HAK_KiB(64), HAK_MiB(2), HAK_MiB(2),        \
      HAK_MiB(2), "Requests of this size and above are big: mappings of their own")                \
    X(BIGCACHE_BYTES, bigcache_bytes, bytes, HAK_MiB(64), 0, HAK_GiB(1024), 0, HAK_MiB(64),        \
      "Bytes of freed big mappings kept for the next request")                                     \
    X(BIG_WASTE, big_waste, percent, 2, 0, 400, 2, 2,                                              \
      "How much larger than the request a mapping from BigCache may be")                           \
    X(PURGE_DELAY, purge_delay, ms, 500, 0, 3600000, 0, 500,                                       \
      "How long empty pages wait before they are given back")                                      \
    X(PURGE_BATCH, purge_batch, bytes, HAK_MiB(4), HAK_KiB(4), HAK_GiB(1), HAK_MiB(4), HAK_MiB(4), \
      "Most bytes that one purge step gives back before the caller goes on")                       \
    X(RETAIN_BYTES, retain_bytes, bytes, HAK_MiB(16), 0, HAK_GiB(1024), 0, HAK_MiB(16),            \
      "Empty pages kept, however old they are")                                                    \
    X(THP, thp, choice, 1, 0, 2, 0, 1,                                                             \
      "Huge pages: 0 off, 1 above the gate below, 2 from the first byte")                          \
    X(HUGE_GATE, huge_gate, bytes, HAK_MiB(64), 0, HAK_GiB(1024), HAK_MiB(64), HAK_MiB(64),        \
      "Bytes of slabs given out whole, where these are three quarters of all slabs, above which "  \
      "huge pages are asked for (with thp=1)")                                                     \
    X(STATS, stats, switch, 0, 0, 1, 0, 0, "Print statistics on stderr at exit")                   \
    X(PROF, prof, switch, 0, 0, 1, 0, 0,                                                           \
      "Time the allocator's own slow work by category; printed with the statistics")               \
    X(TRACE_RING, trace_ring, count, 0, 0, 65536, 0, 0,                                            \
      "Events kept in the ring of the allocator's slow work; 0: no ring")                          \
    X(TRACE_SIGNAL, trace_signal, switch, 0, 0, 1, 0, 0,                                           \
      "Dump the event ring to stderr on SIGUSR2, and before a crash ends the process")

typedef enum hak_knob {
#define X(ID, ...) HAK_KNOB_##ID,
    HAK_KNOBS(X)
#undef X
        HAK_KNOB_COUNT
} hak_knob;

#endif
