#include "heap/bin.h"

#include <string.h>

#include "heap/central.h"
#include "heap/emergency.h"
#include "heap/exchange.h"
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
/* Blocks of other heaps that are let go of at once. */
#define HAK_PART_BLOCKS 64u
/* Of out_bytes, of which one bin gets at most one. */
#define HAK_LENT_SHARES 16u

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

/* Available or full, as the number of its used blocks says. */
static void hak_slab_set_used(hak_slab *slab, unsigned used)
{
    bool full = used == slab->blocks;
    slab->state = full ? HAK_SLAB_FULL : HAK_SLAB_AVAILABLE;
    slab->due = (uint16_t)(full ? 1 : used);
    slab->beyond = (uint16_t)(full ? used - 1 : 0);
}

void hak_slab_enlist(hak_heap *heap, hak_slab *slab)
{
    hak_bin_back *back = &heap->back[slab->class];
    unsigned used = hak_slab_used(slab);
    hak_slab_set_used(slab, used);
    if (slab->state == HAK_SLAB_AVAILABLE) {
        /* Behind those that blocks came back to: memory that was never touched comes last. */
        hak_slab_list_append(&back->available, slab);
        if (used == 0)
            back->empties++;
    } else {
        hak_slab_list_push(&back->full, slab);
    }
}

/* ---- Arrays ---------------------------------------------------------------------------------- */

/* Slots of the array of size `size_index`: 16 << size_index, one for the NULL under them, and one above that
 * a spill may read. */
static void **hak_array_take(hak_heap *heap, unsigned size_index)
{
    void **array = heap->arrays_free[size_index];
    if (array != NULL) {
        heap->arrays_free[size_index] = array[0];
        return array;
    }
    size_t bytes = (((size_t)16 << size_index) + 2) * sizeof(void *);
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

/* Blocks that a bin may hold whatever their size: with fewer, every other request of a large class is a slow
 * one. */
static uint32_t hak_bin_least(const hak_heap *heap, unsigned class)
{
    uint32_t least = class <= HAK_TINY_CLASSES ? HAK_BIN_CAP_LEAST / 2 : HAK_BIN_CAP_LEAST;
    return least < heap->knobs.bin_blocks ? least : heap->knobs.bin_blocks;
}

/* Bytes of a cap that count against the budget of the thread. */
static uint64_t hak_cap_bytes(unsigned class, uint32_t cap)
{
    uint32_t least = class <= HAK_TINY_CLASSES ? HAK_BIN_CAP_LEAST / 2 : HAK_BIN_CAP_LEAST;
    return cap > least ? (uint64_t)(cap - least) * hak_classes[class].bytes : 0;
}

/* The most blocks that the knobs let a bin of this class hold now. */
static uint32_t hak_bin_cap_max(const hak_heap *heap, unsigned class)
{
    uint32_t bytes = hak_classes[class].bytes;
    if (bytes == 0)
        return 0;
    uint32_t least = hak_bin_least(heap, class);
    uint64_t cap = heap->knobs.bin_bytes / bytes;
    /* What the other bins leave of the thread's budget. */
    uint64_t others = heap->cap_bytes - hak_cap_bytes(class, heap->back[class].cap);
    uint64_t budget = heap->knobs.thread_bytes;
    uint64_t left = least + (budget > others ? (budget - others) / bytes : 0);
    if (cap > left)
        cap = left;
    if (cap < least)
        cap = least;
    return (uint32_t)(cap < heap->knobs.bin_blocks ? cap : heap->knobs.bin_blocks);
}

/* No more is lent than the cap makes use of. */
static void hak_bin_repay(hak_heap *heap, unsigned class)
{
    hak_bin_back *back = &heap->back[class];
    if (hak_likely(back->lent <= back->cap))
        return;
    heap->lent_bytes -= (uint64_t)(back->lent - back->cap) * hak_classes[class].bytes;
    back->lent = back->cap;
}

static void hak_bin_set_cap(hak_heap *heap, unsigned class, uint32_t cap)
{
    hak_bin_back *back = &heap->back[class];
    heap->cap_bytes += hak_cap_bytes(class, cap) - hak_cap_bytes(class, back->cap);
    back->cap = cap;
    heap->hot.bins[class].limit = back->base + cap;
    hak_bin_repay(heap, class);
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

/* What was lent to a bin is its own: the thread allocates from it. */
static void hak_bin_earn(hak_heap *heap, unsigned class)
{
    hak_bin_back *back = &heap->back[class];
    heap->lent_bytes -= (uint64_t)back->lent * hak_classes[class].bytes;
    back->lent = 0;
}

/* A bin whose thread only frees into it is lent a cap: its share of out_bytes, as long as that lasts. */
static uint32_t hak_bin_lend(hak_heap *heap, unsigned class, uint32_t more)
{
    hak_bin_back *back = &heap->back[class];
    uint32_t bytes = hak_classes[class].bytes;
    uint64_t share = heap->knobs.out_bytes / HAK_LENT_SHARES / bytes;
    uint64_t left = (heap->knobs.out_bytes - heap->lent_bytes) / bytes;
    if (heap->lent_bytes > heap->knobs.out_bytes)
        return 0;
    share = share > back->lent ? share - back->lent : back->lent == 0;
    if (more > share)
        more = (uint32_t)share;
    if (more > left)
        more = (uint32_t)left;
    back->lent += more;
    heap->lent_bytes += (uint64_t)more * bytes;
    return more;
}

/* Raises a bin's cap, as far as the knobs and memory allow. False where it has no array after all. */
static bool hak_bin_raise(hak_heap *heap, unsigned class, uint32_t cap)
{
    hak_bin_back *back = &heap->back[class];
    uint32_t most = hak_bin_cap_max(heap, class);
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

/* Doubles the cap of a bin that its thread allocates from. */
static bool hak_bin_grow(hak_heap *heap, unsigned class)
{
    hak_bin_back *back = &heap->back[class];
    if (hak_unlikely(back->lent != 0))
        hak_bin_earn(heap, class);
    if (hak_likely(back->cap >= hak_bin_cap_max(heap, class) && back->base != NULL))
        return true;
    uint32_t cap = back->cap * 2;
    return hak_bin_raise(heap, class, cap < heap->knobs.bin_start ? heap->knobs.bin_start : cap);
}

/* ---- Slab to bin ----------------------------------------------------------------------------- */

/* Moves up to `want` blocks that came back to a slab to the slots below `end`, lowest address on top. Returns
 * how many. */
static uint32_t hak_slab_take_free(hak_slab *slab, void **end, uint32_t want)
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
    return want - left;
}

/* The same of blocks that were never given out. */
static uint32_t hak_slab_take_fresh(hak_slab *slab, void **end, uint32_t want)
{
    uint32_t bytes = hak_classes[slab->class].bytes;
    uint32_t fresh = (uint32_t)(slab->blocks - slab->fresh);
    if (fresh > want)
        fresh = want;
    char *block = slab->start + (size_t)slab->fresh * bytes;
    for (uint32_t i = 1; i <= fresh; i++, block += bytes)
        *(end - i) = block;
    slab->fresh = (uint16_t)(slab->fresh + fresh);
    if (fresh > 0 && slab->fresh == slab->blocks)
        hak_slab_carved(slab);
    return fresh;
}

/* Both, of the first slab in line. */
static uint32_t hak_slab_take(hak_heap *heap, hak_slab *slab, void **end, uint32_t want, bool fresh)
{
    hak_bin_back *back = &heap->back[slab->class];
    unsigned used = hak_slab_used(slab);
    uint32_t taken = hak_slab_take_free(slab, end, want);
    if (fresh)
        taken += hak_slab_take_fresh(slab, end - taken, want - taken);
    if (used == 0 && taken > 0)
        back->empties--;
    hak_slab_set_used(slab, used + taken);
    if (slab->state == HAK_SLAB_FULL) {
        hak_slab_list_remove(&back->available, slab);
        hak_slab_list_push(&back->full, slab);
    }
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
    /* Own blocks that came back, then other heaps' that nobody needs; memory never touched comes last. */
    uint32_t got = 0;
    bool fresh = false;
    for (unsigned tries = 0; got < want && tries < HAK_REFILL_SLABS; tries++) {
        hak_slab *slab = back->available.head;
        if (!fresh && (slab == NULL || slab->free_words == 0)) {
            got += hak_exchange_take(class, end - got, want - got);
            fresh = true;
            if (got == want)
                break;
        }
        if (slab == NULL) {
            /* A new slab only where there is nothing else: what there is serves for now. */
            if (got > 0)
                break;
            slab = hak_remote_poll(heap, class) ? back->available.head
                                                : hak_bin_next_slab(heap, class);
            if (slab == NULL)
                break;
        }
        got += hak_slab_take(heap, slab, end - got, want - got, fresh);
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

/* A slab that was full has room again, or has run empty: it has `used` blocks left outside. */
static HAK_NOINLINE void hak_slab_turn(hak_heap *heap, hak_slab *slab, unsigned used)
{
    hak_bin_back *back = &heap->back[slab->class];
    if (slab->state == HAK_SLAB_FULL) {
        hak_slab_list_remove(&back->full, slab);
        hak_slab_list_push(&back->available, slab);
    }
    hak_slab_set_used(slab, used);
    if (hak_unlikely(used == 0)) {
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
    hak_assert(hak_slab_used(slab) >= count);
    slab->free_words |= words;
    slab->purged = false;
    if (hak_likely(slab->due > count))
        slab->due = (uint16_t)(slab->due - count);
    else
        hak_slab_turn(heap, slab, hak_slab_used(slab) - count);
}

void hak_slab_put(hak_heap *heap, hak_slab *slab, unsigned word, uint64_t mask)
{
    hak_assert((slab->free_bits[word] & mask) == 0);
    slab->free_bits[word] |= mask;
    hak_slab_came_back(heap, slab, 1ull << word, hak_popcount(mask));
}

HAK_INLINE uint32_t hak_owner_of(const void *block)
{
    uintptr_t chunk = (uintptr_t)block >> HAK_CHUNK_SHIFT;
    /* Pairs: the relaxed stores of hak_tags_set. Only its own thread makes a heap an owner, or no longer one. */
    return __atomic_load_n(&hak_chunk_map.tags[chunk], __ATOMIC_RELAXED) >> HAK_TAG_OWNER_SHIFT;
}

/* Keeps a value in one register: compilers otherwise work an address out again for every field. */
#define HAK_IN_REGISTER(x) __asm__("" : "+r"(x))

/* Puts blocks of one chunk back, `next` and those that follow: one update of the header, and of the bitmap
 * one for each word. Returns the first that is not in the chunk. */
static HAK_NOINLINE void **hak_blocks_put_run(hak_heap *heap, void **next, void **end,
                                              uint64_t reciprocal)
{
    void **first = next;
    uintptr_t block = (uintptr_t)*next;
    uintptr_t chunk = block >> HAK_CHUNK_SHIFT;
    hak_slab *slab = hak_slab_of((void *)block);
    uintptr_t start = (uintptr_t)slab->start;
    uint64_t words = 0;
    uint64_t scaled = (block - start) * reciprocal;
    bool more = true;
    do {
        uint64_t word = scaled >> 38;
        uint64_t mask = 0;
        do {
            mask |= 1ull << ((scaled >> 32) & 63);
            next++;
            block = (uintptr_t)*next;
            more = next != end && block >> HAK_CHUNK_SHIFT == chunk;
            if (!more)
                break;
            scaled = (block - start) * reciprocal;
        } while (scaled >> 38 == word);
        hak_assert((slab->free_bits[word] & mask) == 0);
        slab->free_bits[word] |= mask;
        words |= 1ull << word;
    } while (more);
    hak_slab_came_back(heap, slab, words, (uint32_t)(next - first));
    return next;
}

/* How near to each other blocks are taken for neighbours, and put back as a run. Further apart, runs are short
 * and not to be predicted. */
#define HAK_NEAR_BYTES ((uintptr_t)512)

/* Puts a heap's own blocks of a class back, and moves those of other heaps to the front. Returns how many
 * these are. This loop is where the time of a bulk free in random order goes, where no two that follow
 * each other are neighbours. *end is read, whatever it holds. */
static HAK_NOINLINE uint32_t hak_blocks_put(hak_heap *heap, void **next, void **end, unsigned class)
{
    void **foreign = next;
    void **first = next;
    const uint32_t *tags = hak_chunk_map.tags;
    _Atomic(hak_slab *) *slabs = hak_slab_table;
    uint64_t reciprocal = hak_classes[class].reciprocal;
    uint32_t own = heap->owner << HAK_TAG_OWNER_SHIFT | class << HAK_CLASS_SHIFT;
    do {
        uintptr_t block = (uintptr_t)*next;
        uintptr_t chunk = block >> HAK_CHUNK_SHIFT;
        if (hak_unlikely(__atomic_load_n(&tags[chunk], __ATOMIC_RELAXED) != own)) {
            *foreign++ = *next++;
            continue;
        }
        if ((uintptr_t)next[1] - block + HAK_NEAR_BYTES <= 2 * HAK_NEAR_BYTES) {
            next = hak_blocks_put_run(heap, next, end, reciprocal);
            continue;
        }
        next++;
        hak_slab *slab = atomic_load_explicit(&slabs[chunk], memory_order_relaxed);
        HAK_IN_REGISTER(slab);
        uint64_t scaled = (block - (uintptr_t)slab->start) * reciprocal;
        uint64_t word = scaled >> 38;
        hak_assert((slab->free_bits[word] >> ((scaled >> 32) & 63) & 1) == 0);
        slab->free_bits[word] |= 1ull << ((scaled >> 32) & 63);
        slab->free_words |= 1ull << word;
        slab->purged = false;
        if (hak_unlikely(--slab->due == 0))
            hak_slab_turn(heap, slab, slab->beyond);
    } while (next != end);
    return (uint32_t)(foreign - first);
}

/* Lets go of other heaps' blocks: to whom needs them, or else to their owners. */
static void hak_blocks_part(hak_heap *heap, unsigned class, void **blocks, uint32_t count)
{
    uint32_t put = hak_exchange_put(class, blocks, count);
    uint32_t post = count - put;
    hak_count(&heap->count.exchanged, put);
    if (post == 0)
        return;
    void **end = blocks + post;
    while (blocks != end)
        blocks += hak_remote_post_run(blocks, end);
    hak_count(&heap->count.remote_posted, post);
}

void hak_bin_spill(hak_heap *heap, unsigned class, uint32_t count)
{
    uint64_t begun = hak_prof_begin();
    hak_bin_back *back = &heap->back[class];
    hak_bin *bin = &heap->hot.bins[class];
    uint32_t have = hak_bin_count(heap, class);
    if (count > have)
        count = have;
    if (count == 0)
        return;
    void **blocks = back->base + 1;
    uint32_t foreign = hak_blocks_put(heap, blocks, blocks + count, class);
    if (foreign > 0)
        hak_blocks_part(heap, class, blocks, foreign);
    memmove(blocks, blocks + count, (have - count) * sizeof(void *));
    bin->top -= count;
    if (back->low > have - count)
        back->low = have - count;
    hak_count(&back->spills, 1);
    hak_count(&back->spill_blocks, count);
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

/* Lets go of what a bin holds of other heaps' blocks; its own stay, in their order. */
static void hak_bin_part(hak_heap *heap, unsigned class)
{
    hak_bin_back *back = &heap->back[class];
    void **end = heap->hot.bins[class].top + 1;
    void **next = back->base + 1;
    while (next != end && hak_owner_of(*next) == heap->owner)
        next++;
    if (next == end)
        return;
    uint64_t begun = hak_prof_begin();
    void **kept = next;
    void *foreign[HAK_PART_BLOCKS];
    uint32_t held = 0;
    uint32_t gone = 0;
    for (; next != end; next++) {
        if (hak_owner_of(*next) == heap->owner) {
            *kept++ = *next;
            continue;
        }
        foreign[held++] = *next;
        gone++;
        if (held == HAK_PART_BLOCKS) {
            hak_blocks_part(heap, class, foreign, held);
            held = 0;
        }
    }
    hak_blocks_part(heap, class, foreign, held);
    heap->hot.bins[class].top = kept - 1;
    uint32_t left = hak_bin_count(heap, class);
    if (back->low > left)
        back->low = left;
    hak_trace(HAK_EVENT_POST, gone, class);
    hak_prof_end(HAK_PROF_POST, begun);
}

void hak_bins_part(hak_heap *heap)
{
    for (unsigned c = 1; c < HAK_CLASS_COUNT; c++)
        if (heap->back[c].base != NULL)
            hak_bin_part(heap, c);
}

/* ---- Caps ------------------------------------------------------------------------------------ */

static void hak_bin_make_room(hak_heap *heap, unsigned class)
{
    hak_bin_back *back = &heap->back[class];
    hak_heap_follow_policy(heap);
    /* Whether the thread has allocated since the last time, at least half as much as it freed into this bin:
     * what was freed will be used again. Else it would lie idle. */
    uint64_t served = hak_heap_served(heap);
    uint64_t bytes = (uint64_t)back->room_made * hak_classes[class].bytes;
    bool in_use = back->base != NULL && served - back->served_when_full >= bytes / 2;
    back->served_when_full = served;
    uint32_t cap = back->cap;
    if (in_use) {
        hak_bin_grow(heap, class);
    } else if (cap < hak_bin_cap_max(heap, class)) {
        uint32_t more = cap == 0 ? heap->knobs.bin_start : cap;
        more = hak_bin_lend(heap, class, more);
        if (more > 0)
            hak_bin_raise(heap, class, cap + more);
        hak_bin_repay(heap, class);
    }
    back->room_made = back->cap - cap;
    if (back->base == NULL || back->cap > cap)
        return;
    back->want /= 2;
    uint32_t count = in_use ? cap * heap->knobs.spill_percent / 100 : cap;
    back->room_made = count > 0 ? count : 1;
    hak_bin_spill(heap, class, back->room_made);
}

void hak_bin_free_full(hak_heap *heap, unsigned class, void *block)
{
    hak_bin *bin = &heap->hot.bins[class];
    hak_bin_make_room(heap, class);
    if (hak_likely(bin->top != bin->limit)) {
        *++bin->top = block;
    } else {
        void *blocks[] = {block, NULL};
        if (hak_blocks_put(heap, blocks, blocks + 1, class) > 0)
            hak_blocks_part(heap, class, blocks, 1);
    }
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
