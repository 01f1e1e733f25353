#include "heap/bin.h"

#include <string.h>

#include "heap/central.h"
#include "heap/emergency.h"
#include "heap/heap.h"
#include "heap/meta.h"
#include "heap/remote.h"
#include "observe/observe.h"
#include "os/os.h"

/* Under the stack of a bin that was never used: popping finds NULL, pushing finds it full. Never
 * written: its top moves one slot either way, and comes back. */
static void *hak_bin_nothing[3];

#define HAK_ARRAYS_BYTES ((size_t)16 << 10)
/* Slabs looked at by one refill before it takes what it has. */
#define HAK_REFILL_SLABS 8u
#define HAK_REFILL_LEAST 8u
#define HAK_BIN_CAP_LEAST 32u
/* How many times out_bytes a thread may keep that puts foreign blocks to use. */
#define HAK_FOREIGN_RAISE 64u

void hak_bins_init(hak_heap *heap)
{
    for (unsigned c = 0; c < HAK_CLASS_COUNT; c++) {
        heap->hot.bins[c].top = &hak_bin_nothing[1];
        heap->hot.bins[c].limit = &hak_bin_nothing[1];
    }
}

/* ---- Lists of slabs -------------------------------------------------------------------------- */

void hak_slab_list_push(hak_slab_list *list, hak_slab *slab)
{
    slab->prev = NULL;
    slab->next = list->head;
    if (list->head != NULL)
        list->head->prev = slab;
    else
        list->tail = slab;
    list->head = slab;
}

void hak_slab_list_append(hak_slab_list *list, hak_slab *slab)
{
    slab->next = NULL;
    slab->prev = list->tail;
    if (list->tail != NULL)
        list->tail->next = slab;
    else
        list->head = slab;
    list->tail = slab;
}

void hak_slab_list_remove(hak_slab_list *list, hak_slab *slab)
{
    if (slab->prev != NULL)
        slab->prev->next = slab->next;
    else
        list->head = slab->next;
    if (slab->next != NULL)
        slab->next->prev = slab->prev;
    else
        list->tail = slab->prev;
    slab->next = slab->prev = NULL;
}

void hak_slab_enlist(hak_heap *heap, hak_slab *slab)
{
    hak_bin_back *back = &heap->back[slab->class];
    if (slab->used < slab->blocks) {
        slab->state = HAK_SLAB_AVAILABLE;
        /* Behind those that blocks came back to: memory that was never touched comes last. */
        hak_slab_list_append(&back->available, slab);
        if (slab->used == 0)
            back->empties++;
    } else {
        slab->state = HAK_SLAB_FULL;
        hak_slab_list_push(&back->full, slab);
    }
}

/* ---- Arrays ---------------------------------------------------------------------------------- */

/* Slots of the array of size `size_index`: 16 << size_index, and one for the NULL under them. */
static void **hak_array_take(hak_heap *heap, unsigned size_index)
{
    void **array = heap->arrays_free[size_index];
    if (array != NULL) {
        heap->arrays_free[size_index] = array[0];
        return array;
    }
    size_t bytes = (((size_t)16 << size_index) + 1) * sizeof(void *);
    if (bytes > heap->arrays_left) {
        /* What is left is too small for anything but a first array: a few hundred bytes. */
        size_t room = hak_max_size(bytes, HAK_ARRAYS_BYTES);
        char *more = hak_meta_alloc(room, sizeof(void *));
        if (more == NULL)
            return NULL;
        heap->arrays = more;
        heap->arrays_left = room;
    }
    array = (void **)(void *)heap->arrays;
    heap->arrays += bytes;
    heap->arrays_left -= bytes;
    return array;
}

/* The most blocks that the knobs let a bin of this class hold. */
static uint32_t hak_bin_cap_max(const hak_heap *heap, unsigned class)
{
    uint32_t bytes = hak_classes[class].bytes;
    uint64_t by_bytes = bytes == 0 ? 0 : heap->knobs.bin_bytes / bytes;
    /* A few of the largest classes whatever their size: with fewer, every other request is a slow one. */
    uint64_t cap = by_bytes < HAK_BIN_CAP_LEAST ? HAK_BIN_CAP_LEAST : by_bytes;
    return (uint32_t)(cap < heap->knobs.bin_blocks ? cap : heap->knobs.bin_blocks);
}

static void hak_bin_set_cap(hak_heap *heap, unsigned class, uint32_t cap)
{
    hak_bin_back *back = &heap->back[class];
    back->cap = cap;
    heap->hot.bins[class].limit = back->base + cap;
}

/* Gives a bin its first array, or one with room for `cap`. False without memory: it keeps what it
 * has. */
static bool hak_bin_grow_array(hak_heap *heap, unsigned class, uint32_t cap)
{
    hak_bin_back *back = &heap->back[class];
    unsigned size_index = 0;
    while ((16u << size_index) < cap)
        size_index++;
    void **array = hak_array_take(heap, size_index);
    if (array == NULL)
        return false;
    hak_bin *bin = &heap->hot.bins[class];
    uint32_t count = hak_bin_count(heap, class);
    array[0] = NULL;
    if (back->base != NULL) {
        memcpy(array + 1, back->base + 1, count * sizeof(void *));
        unsigned old_index = 0;
        while ((16u << old_index) < back->slots)
            old_index++;
        back->base[0] = heap->arrays_free[old_index];
        heap->arrays_free[old_index] = back->base;
    }
    back->base = array;
    back->slots = 16u << size_index;
    bin->top = array + count;
    return true;
}

/* A bin that was refilled or full doubles its cap, up to what the knobs allow. False where it has no
 * array and there is no memory for one. */
static bool hak_bin_grow(hak_heap *heap, unsigned class)
{
    hak_bin_back *back = &heap->back[class];
    uint32_t most = hak_bin_cap_max(heap, class);
    if (hak_likely(back->cap >= most && back->base != NULL))
        return true;
    uint32_t cap = back->base == NULL ? heap->knobs.bin_start : back->cap * 2;
    if (cap > most)
        cap = most;
    if (back->base == NULL || cap > back->slots) {
        if (!hak_bin_grow_array(heap, class, cap))
            return back->base != NULL;
    }
    if (cap > back->cap)
        hak_bin_set_cap(heap, class, cap);
    return true;
}

/* ---- Slab to bin ----------------------------------------------------------------------------- */

/* Moves up to `want` blocks of a slab to the slots below `end`, lowest address on top. Returns how
 * many. */
static uint32_t hak_slab_take(hak_slab *slab, void **end, uint32_t want)
{
    uint32_t bytes = hak_classes[slab->class].bytes;
    void **slot = end;
    uint32_t left = want;
    while (slab->free_words != 0 && left > 0) {
        unsigned w = hak_lowest_bit(slab->free_words);
        uint64_t bits = slab->free_bits[w];
        char *word_start = slab->start + (size_t)w * 64 * bytes;
        do {
            *--slot = word_start + (size_t)hak_lowest_bit(bits) * bytes;
            bits &= bits - 1;
            left--;
        } while (bits != 0 && left > 0);
        slab->free_bits[w] = bits;
        if (bits == 0)
            slab->free_words &= slab->free_words - 1;
    }
    uint32_t fresh = (uint32_t)(slab->blocks - slab->fresh);
    if (fresh > left)
        fresh = left;
    char *block = slab->start + (size_t)slab->fresh * bytes;
    for (uint32_t i = 0; i < fresh; i++, block += bytes)
        *--slot = block;
    slab->fresh = (uint16_t)(slab->fresh + fresh);
    if (fresh > 0 && slab->fresh == slab->blocks)
        hak_slab_carved(slab);
    uint32_t taken = want - left + fresh;
    slab->used = (uint16_t)(slab->used + taken);
    return taken;
}

/* Where the next slab comes from when the heap has none of the class with room. */
static hak_slab *hak_bin_next_slab(hak_heap *heap, unsigned class)
{
    hak_heaps_dissolve(false);
    hak_slab *slab = hak_orphans_adopt(heap, class);
    if (slab == NULL)
        slab = hak_slab_new(class, heap);
    if (slab != NULL)
        hak_slab_enlist(heap, slab);
    return slab;
}

bool hak_bin_refill(hak_heap *heap, unsigned class)
{
    uint64_t begun = hak_prof_begin();
    hak_bin_back *back = &heap->back[class];
    hak_assert(hak_bin_count(heap, class) == 0);
    back->low = 0;
    back->foreign = false;
    hak_heap_follow_policy(heap);
    hak_remote_drain(heap);
    if (!hak_bin_grow(heap, class))
        return false;
    /* Few at first, and more the more often the bin runs empty without ever being full: what a program
     * builds up comes in large pieces, and what it churns does not leave bins full of blocks. */
    uint32_t most = back->cap * heap->knobs.refill_percent / 100;
    uint32_t want = back->want > most ? most : back->want;
    if (want < HAK_REFILL_LEAST)
        want = back->cap < HAK_REFILL_LEAST ? back->cap : HAK_REFILL_LEAST;
    back->want = want + HAK_REFILL_LEAST;
    /* Filled from the top down, so that blocks are given out in the order of their addresses. */
    void **end = back->base + 1 + want;
    uint32_t got = 0;
    for (unsigned tries = 0; got < want && tries < HAK_REFILL_SLABS; tries++) {
        hak_slab *slab = back->available.head;
        if (slab == NULL) {
            /* A new slab only where there is nothing else: what there is serves for now. */
            if (got > 0)
                break;
            slab = hak_remote_poll(heap, class) ? back->available.head
                                                : hak_bin_next_slab(heap, class);
            if (slab == NULL)
                break;
        }
        if (slab->used == 0)
            back->empties--;
        got += hak_slab_take(slab, end - got, want - got);
        if (slab->used == slab->blocks) {
            slab->state = HAK_SLAB_FULL;
            hak_slab_list_remove(&back->available, slab);
            hak_slab_list_push(&back->full, slab);
        }
    }
    if (got == 0)
        return false;
    if (got < want)
        memmove(back->base + 1, end - got, got * sizeof(void *));
    heap->hot.bins[class].top = back->base + got;
    hak_count(&back->refills, 1);
    hak_count(&back->refill_blocks, got);
    hak_trace(HAK_EVENT_REFILL, class, got);
    hak_prof_end(HAK_PROF_REFILL, begun);
    return true;
}

/* ---- Bin to slab ----------------------------------------------------------------------------- */

/* A slab that was full has room again, or has run empty. */
static HAK_NOINLINE void hak_slab_turn(hak_heap *heap, hak_slab *slab)
{
    hak_bin_back *back = &heap->back[slab->class];
    if (slab->state == HAK_SLAB_FULL) {
        slab->state = HAK_SLAB_AVAILABLE;
        hak_slab_list_remove(&back->full, slab);
        hak_slab_list_push(&back->available, slab);
    }
    if (hak_unlikely(slab->used == 0)) {
        if (back->empties < heap->knobs.empty_slabs) {
            back->empties++;
            /* Last in line: fuller slabs first, so that this one may stay empty. */
            hak_slab_list_remove(&back->available, slab);
            hak_slab_list_append(&back->available, slab);
        } else {
            hak_slab_list_remove(&back->available, slab);
            hak_slab_delete(slab);
        }
    }
}

/* `count` blocks came back to a slab, in the given words of its bitmap. */
HAK_INLINE void hak_slab_came_back(hak_heap *heap, hak_slab *slab, uint64_t words, uint32_t count)
{
    unsigned used = slab->used;
    hak_assert(used >= count);
    slab->free_words |= words;
    slab->purged = false;
    slab->used = (uint16_t)(used - count);
    if (hak_unlikely(used == slab->blocks || used == count))
        hak_slab_turn(heap, slab);
}

void hak_slab_put(hak_heap *heap, hak_slab *slab, unsigned word, uint64_t mask)
{
    hak_assert((slab->free_bits[word] & mask) == 0);
    slab->free_bits[word] |= mask;
    hak_slab_came_back(heap, slab, 1ull << word, hak_popcount(mask));
}

static bool hak_bin_owns(const hak_heap *heap, const void *block)
{
    uintptr_t chunk = (uintptr_t)block >> HAK_CHUNK_SHIFT;
    uint32_t tag = __atomic_load_n(&hak_chunk_map.tags[chunk], __ATOMIC_RELAXED);
    return tag >> HAK_TAG_OWNER_SHIFT == heap->owner;
}

/* Blocks that follow each other in an array and lie in one word of one slab's bitmap, as neighbours
 * often do: one update for all. */
typedef struct hak_run {
    hak_slab *slab;
    unsigned word;
    uint32_t blocks;
    uint64_t mask;
} hak_run;

HAK_INLINE hak_run hak_run_find(void *const *blocks, uint32_t i, uint32_t count,
                                const hak_class_info *info)
{
    size_t slab_bytes = HAK_CHUNK_BYTES << info->order;
    size_t offset;
    hak_run run;
    run.slab = hak_slab_locate(blocks[i], info->order, &offset);
    uintptr_t start = (uintptr_t)blocks[i] - offset;
    unsigned index = hak_block_index(info, offset);
    run.word = index / 64;
    run.mask = 1ull << (index % 64);
    uint32_t first = i;
    for (i++; i < count; i++) {
        offset = (uintptr_t)blocks[i] - start;
        if (offset >= slab_bytes)
            break;
        index = hak_block_index(info, offset);
        if (index / 64 != run.word)
            break;
        run.mask |= 1ull << (index % 64);
    }
    run.blocks = i - first;
    return run;
}

/* Keeps a value in one register: compilers otherwise work an address out again for every field. */
#define HAK_IN_REGISTER(x) __asm__("" : "+r"(x))

/* Puts blocks back that are all this heap's own. Those that follow each other in one chunk, as neighbours
 * often do, take one update of the header, and of the bitmap one for each word. This loop is where the
 * time of a bulk free goes: a function of its own, for the registers' sake. `order` is a constant. */
HAK_INLINE void hak_blocks_put(hak_heap *heap, void *const *next, void *const *end,
                               uint64_t reciprocal, unsigned order)
{
    uintptr_t block = (uintptr_t)*next;
    do {
        uintptr_t chunk = block >> HAK_CHUNK_SHIFT;
        size_t offset;
        hak_slab *slab = hak_slab_locate((void *)block, order, &offset);
        HAK_IN_REGISTER(slab);
        uintptr_t start = block - offset;
        uint64_t mask = 0;
        uint32_t count = 0;
        uint64_t scaled = offset * reciprocal;
        unsigned word = (unsigned)(scaled >> 38);
        for (;;) {
            mask |= 1ull << ((scaled >> 32) & 63);
            count++;
            if (++next == end)
                break;
            block = (uintptr_t)*next;
            if (block >> HAK_CHUNK_SHIFT != chunk)
                break;
            scaled = (order == 0 ? block & (HAK_CHUNK_BYTES - 1) : block - start) * reciprocal;
            if (scaled >> 38 == word)
                continue;
            hak_assert((slab->free_bits[word] & mask) == 0);
            slab->free_bits[word] |= mask;
            slab->free_words |= 1ull << word;
            word = (unsigned)(scaled >> 38);
            mask = 0;
        }
        hak_assert((slab->free_bits[word] & mask) == 0);
        slab->free_bits[word] |= mask;
        hak_slab_came_back(heap, slab, 1ull << word, count);
    } while (next != end);
}

static HAK_NOINLINE void hak_blocks_put_chunk(hak_heap *heap, void *const *next, void *const *end,
                                              uint64_t reciprocal)
{
    hak_blocks_put(heap, next, end, reciprocal, 0);
}

static HAK_NOINLINE void hak_blocks_put_chunks(hak_heap *heap, void *const *next, void *const *end,
                                               uint64_t reciprocal, unsigned order)
{
    hak_blocks_put(heap, next, end, reciprocal, order);
}

/* The same where some of them may be other heaps', which are posted. Returns how many were. */
static uint64_t hak_blocks_put_mixed(hak_heap *heap, void *const *blocks, uint32_t count,
                                     const hak_class_info *info)
{
    uint64_t posted = 0;
    for (uint32_t i = 0; i < count;) {
        hak_run run = hak_run_find(blocks, i, count, info);
        if (hak_bin_owns(heap, blocks[i])) {
            hak_assert((run.slab->free_bits[run.word] & run.mask) == 0);
            run.slab->free_bits[run.word] |= run.mask;
            hak_slab_came_back(heap, run.slab, 1ull << run.word, run.blocks);
        } else {
            hak_remote_post(run.slab, run.word, run.mask);
            posted += run.blocks;
        }
        i += run.blocks;
    }
    return posted;
}

void hak_bin_spill(hak_heap *heap, unsigned class, uint32_t count)
{
    uint64_t begun = hak_prof_begin();
    hak_bin_back *back = &heap->back[class];
    hak_bin *bin = &heap->hot.bins[class];
    const hak_class_info *info = &hak_classes[class];
    uint32_t have = hak_bin_count(heap, class);
    if (count > have)
        count = have;
    if (count == 0)
        return;
    void **blocks = back->base + 1;
    uint64_t posted = 0;
    if (back->foreign)
        posted = hak_blocks_put_mixed(heap, blocks, count, info);
    else if (info->order == 0)
        hak_blocks_put_chunk(heap, blocks, blocks + count, info->reciprocal);
    else
        hak_blocks_put_chunks(heap, blocks, blocks + count, info->reciprocal, info->order);
    memmove(blocks, blocks + count, (have - count) * sizeof(void *));
    bin->top -= count;
    if (count == have)
        back->foreign = false;
    if (back->low > have - count)
        back->low = have - count;
    hak_count(&back->spills, 1);
    hak_count(&back->spill_blocks, count);
    if (posted > 0)
        hak_count(&heap->count.remote_posted, posted);
    hak_trace(HAK_EVENT_SPILL, class, count);
    hak_prof_end(HAK_PROF_SPILL, begun);
}

/* ---- Pages of free blocks -------------------------------------------------------------------- */

/* The first block at or after `from` that is free or not, as `value` says; slab->fresh at most. */
static unsigned hak_slab_next(const hak_slab *slab, unsigned from, bool value)
{
    while (from < slab->fresh) {
        uint64_t word = value ? slab->free_bits[from / 64] : ~slab->free_bits[from / 64];
        word &= ~hak_low_mask(from % 64);
        if (word != 0) {
            unsigned found = from / 64 * 64 + hak_lowest_bit(word);
            return found < slab->fresh ? found : slab->fresh;
        }
        from = from / 64 * 64 + 64;
    }
    return slab->fresh;
}

static size_t hak_slab_purge(hak_slab *slab, uint64_t *calls)
{
    if (slab->purged)
        return 0;
    slab->purged = true;
    size_t bytes = hak_classes[slab->class].bytes;
    size_t purged = 0;
    for (unsigned at = hak_slab_next(slab, 0, true); at < slab->fresh;) {
        unsigned end = hak_slab_next(slab, at, false);
        uintptr_t first = hak_round_up((uintptr_t)slab->start + at * bytes, hak_os_page_bytes);
        uintptr_t last = hak_round_down((uintptr_t)slab->start + end * bytes, hak_os_page_bytes);
        if (first < last) {
            if (hak_os_purge((void *)first, last - first))
                purged += last - first;
            (*calls)++;
        }
        at = hak_slab_next(slab, end, true);
    }
    return purged;
}

size_t hak_slabs_purge(const hak_slab_list *list, uint64_t *calls)
{
    size_t purged = 0;
    for (hak_slab *slab = list->head; slab != NULL; slab = slab->next)
        purged += hak_slab_purge(slab, calls);
    return purged;
}

/* ---- Blocks of other heaps ------------------------------------------------------------------- */

/* Bytes of other heaps' blocks in a bin, by looking at each. */
static uint64_t hak_bin_foreign_bytes(hak_heap *heap, unsigned class)
{
    hak_bin_back *back = &heap->back[class];
    uint32_t count = hak_bin_count(heap, class);
    uint32_t foreign = 0;
    for (uint32_t i = 1; i <= count; i++)
        foreign += !hak_bin_owns(heap, back->base[i]);
    back->foreign = foreign > 0;
    return (uint64_t)foreign * hak_classes[class].bytes;
}

/* Posts other heaps' blocks in a bin, and closes the gaps that they leave. */
static void hak_bin_post_foreign(hak_heap *heap, unsigned class)
{
    uint64_t begun = hak_prof_begin();
    hak_bin_back *back = &heap->back[class];
    const hak_class_info *info = &hak_classes[class];
    uint32_t count = hak_bin_count(heap, class);
    uint32_t kept = 0;
    void **blocks = back->base + 1;
    for (uint32_t i = 0; i < count;) {
        if (hak_bin_owns(heap, blocks[i])) {
            blocks[kept++] = blocks[i++];
            continue;
        }
        hak_run run = hak_run_find(blocks, i, count, info);
        hak_remote_post(run.slab, run.word, run.mask);
        i += run.blocks;
    }
    heap->hot.bins[class].top = back->base + kept;
    back->foreign = false;
    if (back->low > kept)
        back->low = kept;
    hak_count(&heap->count.remote_posted, count - kept);
    hak_trace(HAK_EVENT_POST, count - kept, class);
    hak_prof_end(HAK_PROF_POST, begun);
}

void hak_bins_post_foreign(hak_heap *heap)
{
    for (unsigned c = 1; c < HAK_CLASS_COUNT; c++)
        if (heap->back[c].foreign)
            hak_bin_post_foreign(heap, c);
    heap->foreign_bytes = 0;
}

/* So much was taken in that it must be looked at. A thread that allocates as much as it takes in puts it
 * to use, and may keep more: most of it may be gone already. One that only frees may not. */
static void hak_bins_foreign_bound(hak_heap *heap)
{
    uint64_t served = hak_heap_served(heap);
    uint64_t most = heap->knobs.out_bytes * HAK_FOREIGN_RAISE;
    bool in_use = served - heap->foreign_served >= heap->foreign_limit / 2;
    heap->foreign_served = served;
    if (!in_use) {
        heap->foreign_limit = heap->knobs.out_bytes;
    } else {
        heap->foreign_limit = heap->foreign_limit * 2 < most ? heap->foreign_limit * 2 : most;
        uint64_t held = 0;
        for (unsigned c = 1; c < HAK_CLASS_COUNT; c++)
            if (heap->back[c].foreign)
                held += hak_bin_foreign_bytes(heap, c);
        heap->foreign_bytes = held;
        if (held <= heap->foreign_limit / 2)
            return;
    }
    hak_bins_post_foreign(heap);
}

void hak_bin_take_foreign_hard(hak_heap *heap, unsigned class, void *block)
{
    hak_bin *bin = &heap->hot.bins[class];
    hak_hot *hot = hak_busy_begin();
    if (bin->top == bin->limit)
        hak_bin_make_room(heap, class);
    if (bin->top == bin->limit) {
        hak_remote_post_one(block);
    } else {
        *++bin->top = block;
        heap->back[class].foreign = true;
        heap->foreign_bytes += hak_classes[class].bytes;
        if (heap->foreign_bytes > heap->foreign_limit)
            hak_bins_foreign_bound(heap);
    }
    hak_busy_end(hot);
}

/* ---- Caps ------------------------------------------------------------------------------------ */

void hak_bin_make_room(hak_heap *heap, unsigned class)
{
    hak_bin_back *back = &heap->back[class];
    hak_heap_follow_policy(heap);
    uint32_t cap = back->cap;
    hak_bin_grow(heap, class);
    if (back->base == NULL || back->cap > cap)
        return;
    back->want /= 2;
    uint32_t count = cap * heap->knobs.spill_percent / 100;
    hak_bin_spill(heap, class, count > 0 ? count : 1);
}

/* Never above what it holds: the hot path looks for a full bin by equality. */
static void hak_bin_lower(hak_heap *heap, unsigned class, uint32_t cap)
{
    uint32_t count = hak_bin_count(heap, class);
    if (count > cap)
        hak_bin_spill(heap, class, count - cap);
    hak_bin_set_cap(heap, class, cap);
}

void hak_bin_bound(hak_heap *heap, unsigned class)
{
    uint32_t most = hak_bin_cap_max(heap, class);
    if (heap->back[class].cap > most)
        hak_bin_lower(heap, class, most);
}

void hak_bins_watch(hak_heap *heap)
{
    for (unsigned c = 1; c < HAK_CLASS_COUNT; c++) {
        uint32_t count = hak_bin_count(heap, c);
        if (count < heap->back[c].low)
            heap->back[c].low = count;
    }
}

void hak_bins_trim(hak_heap *heap)
{
    for (unsigned c = 1; c < HAK_CLASS_COUNT; c++) {
        hak_bin_back *back = &heap->back[c];
        if (back->base == NULL)
            continue;
        back->want /= 2;
        if (back->low > 0) {
            hak_bin_spill(heap, c, (back->low + 1) / 2);
            if (back->cap > heap->knobs.bin_start)
                hak_bin_lower(heap, c, back->cap / 2);
        }
        back->low = hak_bin_count(heap, c);
    }
}
