#include "heap/region.h"

#include "heap/central.h"
#include "observe/observe.h"
#include "os/os.h"

#define HAK_REGION_LOW_BYTES ((uint64_t)64 << 30)
#define HAK_REGION_SPREAD_BYTES ((uint64_t)192 << 30)
#define HAK_REGION_COVER_BYTES ((uint64_t)1 << 40)
#define HAK_REGION_STEP_BYTES ((uint64_t)1 << 30)
/* Under an address-space limit the tables must be small: low, and covering little. */
#define HAK_REGION_TIGHT_LOW_BYTES ((uint64_t)8 << 30)
#define HAK_REGION_TIGHT_SPREAD_BYTES ((uint64_t)8 << 30)
#define HAK_REGION_TIGHT_COVER_BYTES ((uint64_t)32 << 30) /* or as much as the limit allows */
/* Where the low addresses are taken (a sanitizer's shadow): above them, at the price of larger
 * tables, which are address space only. */
#define HAK_REGION_HIGH_BYTES ((uint64_t)0x2000 << 32)
#define HAK_REGION_TRIES 16

hak_chunk_map_view hak_chunk_map;
_Atomic(hak_superslab *) *hak_superslab_table;
_Atomic(hak_slab *) *hak_slab_table;

static struct {
    char *next; /* the first superslab not yet taken, in the piece reserved last */
    char *end;
    uint64_t cover;
    uint64_t step;
    uint64_t reserved;
    uint64_t mapped;
} hak_region;

/* The tables by address: one entry for each so many bytes of the address space. Read-only zeros until they
 * are committed. */
enum { HAK_TABLE_TAGS, HAK_TABLE_SLABS, HAK_TABLE_SUPERSLABS, HAK_TABLES };
static struct {
    const unsigned shift;
    const unsigned entry_bytes;
    void *start;
} hak_tables[HAK_TABLES] = {
    [HAK_TABLE_TAGS] = {HAK_CHUNK_SHIFT, sizeof(uint32_t), NULL},
    [HAK_TABLE_SLABS] = {HAK_CHUNK_SHIFT, sizeof(void *), NULL},
    [HAK_TABLE_SUPERSLABS] = {HAK_SUPERSLAB_SHIFT, sizeof(void *), NULL},
};

/* Makes the tables' entries for [start, end) writable. */
static bool hak_region_commit_tables(uintptr_t start, uintptr_t end)
{
    for (unsigned t = 0; t < HAK_TABLES; t++) {
        uintptr_t table = (uintptr_t)hak_tables[t].start;
        size_t bytes = hak_tables[t].entry_bytes;
        uintptr_t first =
            hak_round_down(table + (start >> hak_tables[t].shift) * bytes, hak_os_page_bytes);
        uintptr_t last =
            hak_round_up(table + (end >> hak_tables[t].shift) * bytes, hak_os_page_bytes);
        if (!hak_os_commit((void *)first, last - first))
            return false;
    }
    return true;
}

/* Reserves a piece at `at`, with its part of the tables. */
static bool hak_region_reserve(uintptr_t at, uint64_t bytes)
{
    if (at + bytes > hak_region.cover)
        return false;
    if (hak_os_reserve((void *)at, bytes, true) == NULL)
        return false;
    if (!hak_region_commit_tables(at, at + bytes)) {
        hak_os_unmap((void *)at, bytes);
        return false;
    }
    hak_region.reserved += bytes;
    if ((uintptr_t)hak_region.end != at)
        hak_region.next = (char *)at;
    hak_region.end = (char *)(at + bytes);
    hak_trace(HAK_EVENT_RESERVE, at, bytes);
    return true;
}

static uint64_t hak_region_place(uint64_t low, uint64_t spread, uint64_t seed)
{
    return low + hak_round_down(seed % spread, HAK_SUPERSLAB_BYTES);
}

static void hak_region_untables(uint64_t cover)
{
    for (unsigned t = 0; t < HAK_TABLES; t++) {
        if (hak_tables[t].start != NULL)
            hak_os_unmap(hak_tables[t].start,
                         (size_t)(cover >> hak_tables[t].shift) * hak_tables[t].entry_bytes);
        hak_tables[t].start = NULL;
    }
    hak_chunk_map = (hak_chunk_map_view){0};
    hak_slab_table = NULL;
    hak_superslab_table = NULL;
}

static bool hak_region_tables(uint64_t cover)
{
    for (unsigned t = 0; t < HAK_TABLES; t++) {
        hak_tables[t].start = hak_os_reserve_zeros((size_t)(cover >> hak_tables[t].shift) *
                                                   hak_tables[t].entry_bytes);
        if (hak_tables[t].start == NULL) {
            hak_region_untables(cover);
            return false;
        }
    }
    hak_region.cover = cover;
    hak_slab_table = hak_tables[HAK_TABLE_SLABS].start;
    hak_superslab_table = hak_tables[HAK_TABLE_SUPERSLABS].start;
    hak_chunk_map.tags = hak_tables[HAK_TABLE_TAGS].start;
    /* No other thread reads the view before its first block, which it gets through the lock. */
    hak_chunk_map.end = cover >> HAK_CHUNK_SHIFT;
    return true;
}

/* Tries random places in [low, low + spread); the step shrinks where so much can't be had. */
static bool hak_region_start(uint64_t cover, uint64_t low, uint64_t spread, uint64_t step)
{
    if (!hak_region_tables(cover))
        return false;
    uint64_t seed = hak_os_random();
    hak_region.step = step;
    for (int i = 0; i < HAK_REGION_TRIES; i++) {
        uint64_t at = hak_region_place(low, spread, seed);
        if (hak_region_reserve(at, hak_region.step))
            return true;
        seed = seed * 6364136223846793005ull + 1442695040888963407ull;
        if (i % 4 == 3 && hak_region.step > HAK_SUPERSLAB_BYTES * 4)
            hak_region.step /= 4;
    }
    hak_region_untables(cover);
    return false;
}

bool hak_region_init(void)
{
    size_t limit = hak_os_address_limit();
    if (limit > HAK_REGION_COVER_BYTES) {
        if (hak_region_start(HAK_REGION_COVER_BYTES, HAK_REGION_LOW_BYTES, HAK_REGION_SPREAD_BYTES,
                             HAK_REGION_STEP_BYTES))
            return true;
        if (hak_region_start(HAK_REGION_HIGH_BYTES + HAK_REGION_COVER_BYTES, HAK_REGION_HIGH_BYTES,
                             HAK_REGION_SPREAD_BYTES, HAK_REGION_STEP_BYTES))
            return true;
    }
    uint64_t step =
        hak_round_up(hak_min_size(limit / 16, HAK_REGION_STEP_BYTES), HAK_SUPERSLAB_BYTES);
    uint64_t cover = HAK_REGION_TIGHT_LOW_BYTES + HAK_REGION_TIGHT_SPREAD_BYTES +
                     hak_round_up(limit, HAK_SUPERSLAB_BYTES);
    if (cover < HAK_REGION_TIGHT_COVER_BYTES)
        cover = HAK_REGION_TIGHT_COVER_BYTES;
    if (cover > HAK_REGION_COVER_BYTES)
        cover = HAK_REGION_COVER_BYTES;
    return hak_region_start(cover, HAK_REGION_TIGHT_LOW_BYTES, HAK_REGION_TIGHT_SPREAD_BYTES, step);
}

/* More address space: behind the last piece and twice as much, or anywhere, or less. */
static bool hak_region_grow(void)
{
    uint64_t step = hak_region.step;
    uint64_t seed = hak_os_random();
    while (step >= HAK_SUPERSLAB_BYTES) {
        if (hak_region_reserve((uintptr_t)hak_region.end, step)) {
            if (hak_region.step < hak_region.reserved)
                hak_region.step *= 2;
            return true;
        }
        for (int i = 0; i < 4; i++) {
            uint64_t at = hak_round_down(seed % hak_region.cover, HAK_SUPERSLAB_BYTES);
            if (at >= HAK_REGION_TIGHT_LOW_BYTES && hak_region_reserve(at, step))
                return true;
            seed = seed * 6364136223846793005ull + 1442695040888963407ull;
        }
        step = hak_round_down(step / 4, HAK_SUPERSLAB_BYTES);
    }
    return false;
}

char *hak_region_take(void)
{
    uint64_t begun = hak_prof_begin();
    char *start = NULL;
    if (hak_region.next != hak_region.end || hak_region_grow()) {
        start = hak_region.next;
        if (hak_os_commit(start, HAK_SUPERSLAB_BYTES)) {
            hak_region.next += HAK_SUPERSLAB_BYTES;
            hak_region.mapped += HAK_SUPERSLAB_BYTES;
            hak_trace(HAK_EVENT_COMMIT, (uintptr_t)start, HAK_SUPERSLAB_BYTES);
        } else {
            start = NULL;
        }
    }
    hak_prof_end(HAK_PROF_MAP, begun);
    return start;
}

void hak_region_untake(char *start)
{
    hak_region.next = start;
    hak_region.mapped -= HAK_SUPERSLAB_BYTES;
}

uint64_t hak_region_reserved(void)
{
    return hak_region.reserved;
}

uint64_t hak_region_mapped(void)
{
    return hak_region.mapped;
}
