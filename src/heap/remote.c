#include "heap/remote.h"

#include "heap/bin.h"
#include "heap/central.h"
#include "observe/observe.h"

/* Orphans looked at in one search of a class: bounds the time under the central lock. */
#define HAK_ADOPT_TRIES 16u
/* Full slabs looked at before a new one is taken, in case their mail lies with a thread that sleeps. */
#define HAK_POLL_TRIES 4u

hak_heap hak_orphans = {.owner = HAK_OWNER_ORPHAN};

/* ---- Post ------------------------------------------------------------------------------------ */

/* Pairs: the release CAS with the acquire exchange in hak_remote_drain. */
static void hak_remote_mail(hak_slab *slab)
{
    hak_heap *owner = atomic_load_explicit(&slab->owner, memory_order_acquire);
    hak_slab *head = atomic_load_explicit(&owner->mailbox, memory_order_relaxed);
    do {
        atomic_store_explicit(&slab->mail_next, head, memory_order_relaxed);
    } while (!atomic_compare_exchange_weak_explicit(&owner->mailbox, &head, slab,
                                                    memory_order_release, memory_order_relaxed));
}

/* Sets bits, and says whether the slab must be mailed. Sequentially consistent on both sides: with
 * set-bits then look-at-flag here and clear-flag then take-bits in the drain, one of the two sees the
 * other. A flag that is set already is only read: the line stays shared among posters. */
void hak_remote_post(hak_slab *slab, unsigned word, uint64_t mask)
{
    atomic_fetch_or_explicit(&slab->remote_bits[word], mask, memory_order_seq_cst);
    if (atomic_load_explicit(&slab->mailed, memory_order_seq_cst) != 0)
        return;
    if (atomic_exchange_explicit(&slab->mailed, 1, memory_order_seq_cst) == 0)
        hak_remote_mail(slab);
}

uint32_t hak_remote_post_run(void *const *next, void *const *end)
{
    hak_slab *slab = hak_slab_of(*next);
    uintptr_t start = (uintptr_t)slab->shared_start;
    uint32_t tag = __atomic_load_n(&hak_chunk_map.tags[start >> HAK_CHUNK_SHIFT], __ATOMIC_RELAXED);
    const hak_class_info *info = &hak_classes[(tag & HAK_TAG_CLASS_MASK) >> HAK_CLASS_SHIFT];
    size_t slab_bytes = HAK_CHUNK_BYTES << info->order;
    unsigned index = hak_block_index(info, (uintptr_t)*next - start);
    unsigned word = index / 64;
    uint64_t mask = 0;
    uint32_t count = 0;
    do {
        mask |= 1ull << (index % 64);
        count++;
        if (++next == end)
            break;
        size_t offset = (uintptr_t)*next - start;
        if (offset >= slab_bytes)
            break;
        index = hak_block_index(info, offset);
    } while (index / 64 == word);
    hak_remote_post(slab, word, mask);
    return count;
}

void hak_remote_post_one(void *block)
{
    hak_remote_post_run(&block, &block + 1);
}

/* ---- Drain ----------------------------------------------------------------------------------- */

/* Whether a slab has remote frees that nobody has taken. */
static bool hak_remote_any(hak_slab *slab)
{
    for (unsigned w = 0; w < HAK_BITMAP_WORDS; w++) {
        if (w >= slab->words)
            break;
        if (atomic_load_explicit(&slab->remote_bits[w], memory_order_relaxed) != 0)
            return true;
    }
    return false;
}

/* Takes a slab's remote frees into its own bitmap; for the owner. May delete the slab. Returns how
 * many blocks. */
static uint32_t hak_remote_collect(hak_heap *heap, hak_slab *slab)
{
    uint32_t blocks = 0;
    unsigned words = slab->words;
    unsigned used = hak_slab_used(slab);
    for (unsigned w = 0; w < words && used > 0; w++) {
        /* Sequentially consistent like the exchange of `mailed` before it: were it to read the bits as
         * they were earlier, a poster that saw the flag still set would have told nobody. */
        if (atomic_load_explicit(&slab->remote_bits[w], memory_order_seq_cst) == 0)
            continue;
        uint64_t mask = atomic_exchange_explicit(&slab->remote_bits[w], 0, memory_order_seq_cst);
        unsigned count = hak_popcount(mask);
        blocks += count;
        used -= count;
        /* The last put deletes a slab that is empty then, so `used` is kept here. */
        hak_slab_put(heap, slab, w, mask);
    }
    return blocks;
}

/* Orphans of each class, so that a search that would find nothing takes no lock. Written under the
 * central lock. */
static _Atomic uint32_t hak_orphans_count[HAK_CLASS_COUNT];

static void hak_orphans_counted(unsigned class, int change)
{
    uint32_t count = atomic_load_explicit(&hak_orphans_count[class], memory_order_relaxed);
    atomic_store_explicit(&hak_orphans_count[class], count + (uint32_t)change,
                          memory_order_relaxed);
}

/* Gives back an orphan that is empty. */
static void hak_orphan_delete_locked(hak_slab *slab)
{
    hak_bin_back *back = &hak_orphans.back[slab->class];
    hak_slab_list_remove(&back->available, slab);
    back->empties--;
    hak_orphans_counted(slab->class, -1);
    hak_slab_delete_locked(slab);
}

/* Takes in one mailbox. For the thread that has the heap; for hak_orphans, whoever holds the central
 * lock. */
static uint64_t hak_mailbox_drain(hak_heap *heap, uint64_t *slabs)
{
    uint64_t blocks = 0;
    /* Pairs: the release CAS in hak_remote_mail. */
    hak_slab *slab = atomic_exchange_explicit(&heap->mailbox, NULL, memory_order_acquire);
    while (slab != NULL) {
        /* Read before the flag is cleared: afterwards a poster may mail the slab anew. */
        hak_slab *next = atomic_load_explicit(&slab->mail_next, memory_order_relaxed);
        atomic_exchange_explicit(&slab->mailed, 0, memory_order_seq_cst);
        if (atomic_load_explicit(&slab->owner, memory_order_acquire) == heap) {
            if (slab->state != HAK_SLAB_NONE) {
                blocks += hak_remote_collect(heap, slab);
                if (heap == &hak_orphans && hak_slab_used(slab) == 0)
                    hak_orphan_delete_locked(slab);
            }
        } else if (atomic_exchange_explicit(&slab->mailed, 1, memory_order_seq_cst) == 0) {
            /* It changed hands while it lay here. Mailed on even without bits: whether there are
             * any is for its owner to read. */
            hak_remote_mail(slab);
        }
        (*slabs)++;
        slab = next;
    }
    return blocks;
}

void hak_remote_drain(hak_heap *heap)
{
    if (atomic_load_explicit(&heap->mailbox, memory_order_relaxed) == NULL)
        return;
    uint64_t begun = hak_prof_begin();
    uint64_t slabs = 0;
    uint64_t blocks = hak_mailbox_drain(heap, &slabs);
    hak_count(&heap->count.remote_drained, blocks);
    hak_trace(HAK_EVENT_DRAIN, blocks, slabs);
    hak_prof_end(HAK_PROF_DRAIN, begun);
}

bool hak_remote_poll(hak_heap *heap, unsigned class)
{
    hak_bin_back *back = &heap->back[class];
    for (unsigned i = 0; i < HAK_POLL_TRIES && back->full.tail != NULL; i++) {
        /* Oldest first, and what is found without bits goes behind the others. */
        hak_slab *slab = back->full.tail;
        if (hak_remote_any(slab)) {
            hak_count(&heap->count.remote_drained, hak_remote_collect(heap, slab));
            return back->available.head != NULL;
        }
        hak_slab_list_remove(&back->full, slab);
        hak_slab_list_push(&back->full, slab);
    }
    return false;
}

/* ---- Orphans --------------------------------------------------------------------------------- */

static void hak_orphan_collect_locked(hak_slab *slab)
{
    hak_count(&hak_orphans.count.remote_drained, hak_remote_collect(&hak_orphans, slab));
}

void hak_orphans_drain_locked(void)
{
    if (atomic_load_explicit(&hak_orphans.mailbox, memory_order_relaxed) == NULL)
        return;
    uint64_t slabs = 0;
    hak_count(&hak_orphans.count.remote_drained, hak_mailbox_drain(&hak_orphans, &slabs));
}

void hak_orphans_drain(void)
{
    if (atomic_load_explicit(&hak_orphans.mailbox, memory_order_relaxed) == NULL)
        return;
    hak_lock_take(&hak_central_lock);
    hak_orphans_drain_locked();
    hak_lock_drop(&hak_central_lock);
}

unsigned hak_orphans_leave(hak_heap *heap)
{
    unsigned left = 0;
    hak_lock_take(&hak_central_lock);
    /* Orphans that run empty are deleted by whoever holds the lock, not by hak_slab_put. */
    hak_orphans.knobs.empty_slabs = UINT32_MAX;
    for (unsigned c = 1; c < HAK_CLASS_COUNT; c++) {
        hak_bin_back *back = &heap->back[c];
        hak_slab_list *lists[] = {&back->available, &back->full};
        for (unsigned l = 0; l < HAK_COUNT_OF(lists); l++) {
            for (hak_slab *slab = lists[l]->head; slab != NULL;) {
                hak_slab *next = slab->next;
                hak_slab_list_remove(lists[l], slab);
                if (hak_slab_used(slab) == 0) {
                    hak_slab_delete_locked(slab);
                } else {
                    hak_slab_tag(slab, HAK_OWNER_ORPHAN);
                    /* Pairs: the acquire loads of posters and drains. */
                    atomic_store_explicit(&slab->owner, &hak_orphans, memory_order_release);
                    hak_slab_enlist(&hak_orphans, slab);
                    hak_orphans_counted(c, 1);
                    left++;
                }
                slab = next;
            }
        }
        back->empties = 0;
    }
    hak_lock_drop(&hak_central_lock);
    return left;
}

hak_slab *hak_orphans_adopt(hak_heap *heap, unsigned class)
{
    if (atomic_load_explicit(&hak_orphans_count[class], memory_order_relaxed) == 0)
        return NULL;
    hak_bin_back *back = &hak_orphans.back[class];
    hak_lock_take(&hak_central_lock);
    hak_orphans_drain_locked();
    if (back->available.head == NULL) {
        for (unsigned i = 0; i < HAK_ADOPT_TRIES && back->full.tail != NULL; i++) {
            hak_slab *slab = back->full.tail;
            if (hak_remote_any(slab)) {
                hak_orphan_collect_locked(slab);
                break; /* it has room now, or is empty: either serves */
            }
            hak_slab_list_remove(&back->full, slab);
            hak_slab_list_push(&back->full, slab);
        }
    }
    hak_slab *slab = back->available.head;
    if (slab != NULL) {
        hak_slab_list_remove(&back->available, slab);
        if (hak_slab_used(slab) == 0)
            back->empties--;
        hak_orphans_counted(class, -1);
        /* Pairs: the acquire loads of posters and drains. */
        atomic_store_explicit(&slab->owner, heap, memory_order_release);
        hak_slab_tag(slab, heap->owner);
    }
    hak_lock_drop(&hak_central_lock);
    if (slab != NULL) {
        hak_count(&heap->count.adopted, 1);
        hak_trace(HAK_EVENT_ADOPT, class, (uint64_t)(slab->blocks - hak_slab_used(slab)));
    }
    return slab;
}

size_t hak_orphans_tidy(bool purge)
{
    uint64_t calls = 0;
    size_t purged = 0;
    hak_lock_take(&hak_central_lock);
    hak_orphans_drain_locked();
    for (unsigned c = 1; c < HAK_CLASS_COUNT; c++) {
        hak_bin_back *back = &hak_orphans.back[c];
        for (hak_slab *slab = back->full.head; slab != NULL;) {
            hak_slab *next = slab->next;
            if (hak_remote_any(slab))
                hak_orphan_collect_locked(slab);
            slab = next;
        }
        for (hak_slab *slab = back->available.head; slab != NULL;) {
            hak_slab *next = slab->next;
            if (hak_remote_any(slab))
                hak_orphan_collect_locked(slab);
            if (hak_slab_used(slab) == 0)
                hak_orphan_delete_locked(slab);
            slab = next;
        }
        if (purge)
            purged += hak_slabs_purge(&back->available, &calls);
    }
    hak_lock_drop(&hak_central_lock);
    if (calls > 0)
        hak_central_count_purge(purged, calls);
    return purged;
}

void hak_mailbox_forward(hak_heap *heap)
{
    uint64_t slabs = 0;
    if (atomic_load_explicit(&heap->mailbox, memory_order_relaxed) != NULL)
        hak_mailbox_drain(heap, &slabs);
}
