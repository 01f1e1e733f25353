/* hakmem.h: the public C interface of hakmem, a drop-in malloc.
 *
 * A program needs none of this: preloading or linking the library replaces malloc, free and their
 * kin. This header is for programs that want more: labelled call-sites, statistics, purging, and
 * the policy. Every function here may be called from any thread; none may be called from a signal
 * handler. Sizes are in bytes unless a name says otherwise.
 */
#ifndef HAKMEM_H
#define HAKMEM_H

#include <stddef.h>
#include <stdint.h>

#define HAK_VERSION_MAJOR 0
#define HAK_VERSION_MINOR 1
#define HAK_VERSION_PATCH 0

#if defined(__GNUC__)
#define HAK_EXPORT __attribute__((visibility("default")))
#define HAK_ATTR_MALLOC __attribute__((malloc))
#define HAK_ATTR_SIZE(n) __attribute__((alloc_size(n)))
#define HAK_ATTR_SIZE2(n, m) __attribute__((alloc_size(n, m)))
#define HAK_ATTR_ALIGN(n) __attribute__((alloc_align(n)))
#else
#define HAK_EXPORT
#define HAK_ATTR_MALLOC
#define HAK_ATTR_SIZE(n)
#define HAK_ATTR_SIZE2(n, m)
#define HAK_ATTR_ALIGN(n)
#endif

#ifdef __cplusplus
extern "C" {
#define HAK_NOEXCEPT noexcept
#else
#define HAK_NOEXCEPT
#endif

/* ---- Allocation ------------------------------------------------------------------------------
 * The same code as malloc and its kin, under names that no other library interposes. Blocks may be
 * freed by either family. Every block is aligned to 16 bytes at least. Results, errno and the
 * treatment of zero sizes are those of the C11, POSIX.1-2024 and glibc functions they are named
 * after. */
HAK_EXPORT HAK_ATTR_MALLOC HAK_ATTR_SIZE(1) void *hak_malloc(size_t size) HAK_NOEXCEPT;
HAK_EXPORT HAK_ATTR_MALLOC HAK_ATTR_SIZE2(1, 2) void *hak_calloc(size_t count,
                                                                 size_t size) HAK_NOEXCEPT;
HAK_EXPORT HAK_ATTR_SIZE(2) void *hak_realloc(void *block, size_t size) HAK_NOEXCEPT;
HAK_EXPORT HAK_ATTR_SIZE2(2, 3) void *hak_reallocarray(void *block, size_t count,
                                                       size_t size) HAK_NOEXCEPT;
HAK_EXPORT void hak_free(void *block) HAK_NOEXCEPT;
HAK_EXPORT void hak_free_sized(void *block, size_t size) HAK_NOEXCEPT;
HAK_EXPORT void hak_free_aligned_sized(void *block, size_t alignment, size_t size) HAK_NOEXCEPT;
HAK_EXPORT HAK_ATTR_MALLOC HAK_ATTR_ALIGN(1)
    HAK_ATTR_SIZE(2) void *hak_aligned_alloc(size_t alignment, size_t size) HAK_NOEXCEPT;
HAK_EXPORT int hak_posix_memalign(void **block, size_t alignment, size_t size) HAK_NOEXCEPT;

/* Bytes that may be used at `block`: at least the size asked for. 0 for NULL and for a pointer
 * that hakmem did not return. */
HAK_EXPORT size_t hak_usable_size(const void *block) HAK_NOEXCEPT;

/* ---- Call-sites ------------------------------------------------------------------------------
 * A call-site labelled in the source is counted exactly, whatever the sampling of the others.
 * HAK_CALLSITE() names the place it is written at:
 *
 *     buffer = hak_alloc_cs(64 << 10, HAK_CALLSITE());
 *     hak_free_cs(buffer, HAK_CALLSITE());
 */
typedef struct hak_callsite {
    const char *file;
    const char *function;
    unsigned line;
    unsigned id; /* given by hakmem at the first call; 0 before. Accessed atomically. */
} hak_callsite;

#if defined(__GNUC__)
#define HAK_CALLSITE()                                                                             \
    (__extension__({                                                                               \
        static hak_callsite hak_callsite_here = {__FILE__, NULL, __LINE__, 0};                     \
        __atomic_store_n(&hak_callsite_here.function, &__func__[0], __ATOMIC_RELAXED);             \
        &hak_callsite_here;                                                                        \
    }))
#endif

/* As malloc, calloc, realloc and free, counted at `site`. A NULL site counts nowhere. A site must
 * live as long as the program: HAK_CALLSITE() gives such a one. hak_realloc_cs counts as a free of
 * the old block and an allocation of the new. */
HAK_EXPORT HAK_ATTR_MALLOC HAK_ATTR_SIZE(1) void *hak_alloc_cs(size_t size,
                                                               hak_callsite *site) HAK_NOEXCEPT;
/* clang-format off */
HAK_EXPORT HAK_ATTR_MALLOC HAK_ATTR_SIZE2(1, 2)
void *hak_calloc_cs(size_t count, size_t size, hak_callsite *site) HAK_NOEXCEPT;
/* clang-format on */
HAK_EXPORT HAK_ATTR_SIZE(2) void *hak_realloc_cs(void *block, size_t size,
                                                 hak_callsite *site) HAK_NOEXCEPT;
HAK_EXPORT void hak_free_cs(void *block, hak_callsite *site) HAK_NOEXCEPT;

typedef struct hak_site_info {
    const char *file;
    const char *function;
    unsigned line;
    unsigned id;
    uint64_t allocs;      /* blocks allocated at this site */
    uint64_t alloc_bytes; /* bytes asked for by them */
    uint64_t min_bytes;   /* smallest and largest request; 0 while allocs is 0 */
    uint64_t max_bytes;
    uint64_t frees;       /* blocks freed by hak_free_cs at this site */
    uint64_t freed_bytes; /* usable bytes of them */
} hak_site_info;

/* Copies up to `max` sites into `out`, those with most bytes first. Returns how many sites there
 * are, which may be more than `max`. */
HAK_EXPORT size_t hak_sites(hak_site_info *out, size_t max) HAK_NOEXCEPT;

/* ---- Statistics ------------------------------------------------------------------------------ */
typedef struct hak_tier_stats {
    uint64_t requests;      /* exact for large and big; for tiny and mid estimated from the byte
                               countdown (see docs/how-it-works.md) */
    uint64_t bytes;         /* likewise */
    uint64_t refills;       /* bins refilled (tiny, mid); spans or mappings made (large, big) */
    uint64_t refill_blocks; /* blocks moved into bins by refills */
    uint64_t spills; /* bins spilled (tiny, mid); spans or mappings given back (large, big) */
    uint64_t spill_blocks;
    uint64_t cache_hits; /* large: served from a slot or the stock; big: from BigCache */
} hak_tier_stats;

enum { HAK_TIER_TINY, HAK_TIER_MID, HAK_TIER_LARGE, HAK_TIER_BIG, HAK_TIER_COUNT };

typedef struct hak_stats_data {
    uint64_t struct_bytes; /* sizeof(hak_stats_data) as the library knows it */
    uint64_t served_bytes; /* bytes served by malloc and its kin, exact: as asked for, those up to
                                 1 KiB in steps of 16 */
    uint64_t heaps;        /* heaps ever made, and now in use by a thread */
    uint64_t heaps_live;
    uint64_t reserved_bytes;   /* address space reserved */
    uint64_t mapped_bytes;     /* of that, readable and writable */
    uint64_t metadata_bytes;   /* hakmem's own */
    uint64_t slab_bytes;       /* in slabs */
    uint64_t span_bytes;       /* in spans of large requests */
    uint64_t big_bytes;        /* in mappings of big requests, without BigCache */
    uint64_t bigcache_bytes;   /* kept in BigCache */
    uint64_t free_dirty_bytes; /* empty pages not yet given back */
    uint64_t purged_bytes;     /* given back to the operating system, and by how many calls */
    uint64_t purge_calls;
    uint64_t exchanged;      /* blocks that a thread freed which others own, left for any to use */
    uint64_t exchange_bytes; /* of those, what nobody has taken yet */
    uint64_t remote_posted;  /* such blocks given back to their owner */
    uint64_t remote_drained; /* of those, taken in by their owner */
    uint64_t slabs_adopted;
    uint64_t heartbeats;
    uint64_t foreign_frees;  /* frees of pointers that hakmem did not return: ignored */
    uint64_t resident_bytes; /* of the whole process, from the system; 0 where it can't be read */
    uint64_t peak_resident_bytes;
    uint64_t minor_faults;
    uint64_t major_faults;
    hak_tier_stats tier[HAK_TIER_COUNT];
} hak_stats_data;

/* Fills `out` with figures of the whole process. `bytes` is sizeof(*out) as the caller knows it, so
 * that a program built against another version gets what both know. Returns 0, or EINVAL where out
 * is NULL or bytes is 0. */
HAK_EXPORT int hak_stats(hak_stats_data *out, size_t bytes) HAK_NOEXCEPT;

/* Writes the report of HAKMEM_STATS=1 to the file descriptor. */
HAK_EXPORT void hak_stats_print(int fd) HAK_NOEXCEPT;

/* Gives the memory of empty pages back to the operating system now: the calling thread's bins are
 * spilled, BigCache and stocks are emptied. Returns the bytes given back. */
HAK_EXPORT size_t hak_purge(void) HAK_NOEXCEPT;

/* ---- Policy ----------------------------------------------------------------------------------
 * Everything tunable is a knob, and a policy is one setting of each. `HAKMEM_HELP=1` prints the
 * table of knobs with defaults, units and bounds. Knob names are those of the table ("bin_bytes"). */
#define HAK_POLICY_MAX_KNOBS 64

typedef struct hak_policy {
    uint32_t version;    /* of the table of knobs */
    uint32_t count;      /* knobs that this library has */
    uint64_t generation; /* how many policies were published before this one */
    uint64_t value[HAK_POLICY_MAX_KNOBS];
} hak_policy;

/* Copies the policy in force into `out`. Returns 0, or EINVAL for NULL. */
HAK_EXPORT int hak_policy_read(hak_policy *out) HAK_NOEXCEPT;

/* Index of the knob `name`, or -1. Name of knob `index`, or NULL. */
HAK_EXPORT int hak_policy_knob(const char *name) HAK_NOEXCEPT;
HAK_EXPORT const char *hak_policy_name(int index) HAK_NOEXCEPT;

/* Sets one knob of a policy held by the caller from text as in the environment ("64k", "25%").
 * Returns 0; ENOENT: no such knob; EINVAL: malformed; ERANGE: outside the knob's bounds. In every
 * case of error `policy` is unchanged. */
HAK_EXPORT int hak_policy_set(hak_policy *policy, const char *name, const char *text) HAK_NOEXCEPT;

/* Fills `out` with the preset `name` (minimal, fast, balanced, learning, research). Returns 0, or
 * ENOENT. */
HAK_EXPORT int hak_policy_preset(hak_policy *out, const char *name) HAK_NOEXCEPT;

/* Makes `policy` the one in force. Heaps take it over at their next slow path. Returns 0, or EINVAL
 * (wrong version, NULL), or ERANGE (a value out of bounds): the policy in force is then unchanged. */
HAK_EXPORT int hak_policy_publish(const hak_policy *policy) HAK_NOEXCEPT;

/* "0.1.0 (built with gcc 12.2.0, release)": a string that lives as long as the program. */
HAK_EXPORT const char *hak_version(void) HAK_NOEXCEPT;

#ifdef __cplusplus
}
#endif
#undef HAK_NOEXCEPT
#endif
