/* report.h: the report of HAKMEM_STATS=1 as text, and the health checks in it.
 *
 * Pure: figures in, text out. Who gathers the figures is api/hak.c. Takes no lock, allocates nothing.
 */
#ifndef HAK_OBSERVE_REPORT_H
#define HAK_OBSERVE_REPORT_H

#include <hakmem/hakmem.h>

#include "base/format.h"
#include "heap/size_class.h"
#include "observe/observe.h"

typedef struct hak_class_stats {
    uint64_t block_bytes;
    uint64_t requests; /* estimated */
    uint64_t bytes;    /* estimated */
    uint64_t refills;
    uint64_t refill_blocks;
    uint64_t spills;
    uint64_t spill_blocks;
    uint64_t slabs;         /* now */
    uint64_t sampled_bytes; /* credited by heartbeats: what the estimates are made from */
} hak_class_stats;

#define HAK_REPORT_SITES 20u
#define HAK_REPORT_CLASSES 20u

typedef struct hak_report {
    hak_stats_data stats;
    hak_class_stats class[HAK_CLASS_COUNT];
    const char *program; /* NULL: unknown */
    const char *preset;  /* likewise */
    uint64_t process;
    uint64_t large_slot_limit; /* knobs that say what the caches could have held */
    uint64_t bigcache_limit;
    uint64_t stock_bytes; /* freed large spans that any thread may take */
    size_t sites;         /* call-sites that there are; at most HAK_REPORT_SITES of them below */
    hak_site_info site[HAK_REPORT_SITES];
} hak_report;

/* Fills requests and bytes of the classes and of the tiers tiny and mid. `small_bytes` is what they
 * served together, exactly; each class gets its share by what heartbeats credited to it, or, after
 * fewer than HAK_ESTIMATE_BEATS of them, by the blocks that its bins were refilled with. */
#define HAK_ESTIMATE_BEATS 16u
void hak_report_estimate(hak_stats_data *stats, hak_class_stats class[HAK_CLASS_COUNT],
                         uint64_t small_bytes);

/* A WARNING line for each tier that never served what it should. Returns how many. */
unsigned hak_report_put_warnings(hak_text *text, const hak_report *report);

/* The whole report; it needs less than HAK_REPORT_BYTES. */
#define HAK_REPORT_BYTES ((size_t)32 << 10)
void hak_report_put(hak_text *text, const hak_report *report);

#endif
