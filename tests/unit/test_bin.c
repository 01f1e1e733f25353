/* Bins: the order of a refill, spills, caps that grow and shrink, blocks of other heaps. */
#include <pthread.h>

#include "heap_test.h"

enum { many = 2000 };
static void *blocks[many];

static void a_refill_gives_blocks_out_of_order(void **state)
{
    (void)state;
    static const unsigned classes[] = {1, 4, 64, HAK_MID_FIRST, HAK_MID_LAST};
    for (unsigned k = 0; k < HAK_COUNT_OF(classes); k++) {
        hak_heap *heap = new_heap();
        unsigned class = classes[k];
        char *last = NULL;
        for (unsigned i = 0; i < hak_classes[class].blocks && i < many; i++) {
            char *block = pop(heap, class);
            if (last != NULL)
                assert_ptr_equal(block, last + hak_classes[class].bytes);
            last = block;
        }
    }
}

/* Words that are filled in part, word by word, slab by slab: after the spill all is back. */
static void spill_everything(unsigned class, unsigned stride)
{
    set_knob(HAK_KNOB_EMPTY_SLABS, 64);
    hak_heap *heap = new_heap();
    unsigned count = 700;
    for (unsigned i = 0; i < count; i++)
        blocks[i] = pop(heap, class);
    for (unsigned first = 0; first < stride; first++)
        for (unsigned i = first; i < count; i += stride)
            push(heap, class, blocks[i]);
    hak_bin_spill(heap, class, hak_bin_count(heap, class));
    assert_int_equal(hak_bin_count(heap, class), 0);
    for (hak_slab *s = heap->back[class].available.head; s != NULL; s = s->next) {
        assert_int_equal(hak_slab_used(s), 0);
        unsigned free = 0;
        for (unsigned w = 0; w < s->words; w++) {
            free += (unsigned)__builtin_popcountll(s->free_bits[w]);
            assert_int_equal((s->free_words >> w) & 1, s->free_bits[w] != 0);
        }
        assert_int_equal(free, s->fresh);
    }
    assert_null(heap->back[class].full.head);
    assert_int_equal(heap->back[class].refill_blocks, heap->back[class].spill_blocks);
}

static void a_spill_loses_blocks(void **state)
{
    (void)state;
    static const unsigned strides[] = {1, 2, 7, 64, 65};
    for (unsigned i = 0; i < HAK_COUNT_OF(strides); i++) {
        spill_everything(1, strides[i]);
        spill_everything(5, strides[i]);
        spill_everything(HAK_MID_LAST, strides[i]);
    }
}

static void empty_slabs_are_kept_beyond_the_knob(void **state)
{
    (void)state;
    set_knob(HAK_KNOB_EMPTY_SLABS, 0);
    hak_heap *heap = new_heap();
    unsigned class = 64;
    for (unsigned i = 0; i < 300; i++)
        blocks[i] = pop(heap, class);
    for (unsigned i = 0; i < 300; i++)
        push(heap, class, blocks[i]);
    hak_bin_spill(heap, class, hak_bin_count(heap, class));
    assert_null(heap->back[class].available.head);
    assert_null(heap->back[class].full.head);
}

static void a_cap_does_not_follow_use(void **state)
{
    (void)state;
    hak_heap *heap = new_heap();
    unsigned class = 2;
    pop(heap, class);
    assert_int_equal(heap->back[class].cap, heap->knobs.bin_start);
    for (unsigned i = 0; i < many; i++)
        blocks[i] = pop(heap, class);
    for (unsigned i = 0; i < many; i++)
        push(heap, class, blocks[i]);
    uint32_t most = heap->knobs.bin_blocks;
    assert_int_equal(heap->back[class].cap, most);
    assert_ptr_equal(heap->hot.bins[class].limit, heap->back[class].base + most);
    /* The first look only notes what it holds; then what nobody needed goes. */
    for (unsigned trims = 0; trims < 32; trims++) {
        hak_bins_watch(heap);
        hak_bins_trim(heap);
        assert_true(heap->hot.bins[class].top <= heap->hot.bins[class].limit);
    }
    assert_true(heap->back[class].cap < most / 4);
    assert_true(heap->back[class].cap * 2 > heap->knobs.bin_start);
    assert_true(hak_bin_count(heap, class) <= 1);
}

static void a_lower_knob_leaves_bins_as_they_are(void **state)
{
    (void)state;
    hak_heap *heap = new_heap();
    unsigned class = 2;
    for (unsigned i = 0; i < many; i++)
        blocks[i] = pop(heap, class);
    for (unsigned i = 0; i < many; i++)
        push(heap, class, blocks[i]);
    set_knob(HAK_KNOB_BIN_BLOCKS, 8);
    hak_heap_follow_policy(heap);
    assert_int_equal(heap->back[class].cap, 8);
    assert_true(hak_bin_count(heap, class) <= 8);
}

static void an_array_that_grew_is_not_used_again(void **state)
{
    (void)state;
    hak_heap *heap = new_heap();
    for (unsigned i = 0; i < 100; i++)
        pop(heap, 3);
    void **grown_out_of = heap->arrays_free[0];
    assert_non_null(grown_out_of);
    pop(heap, 4);
    assert_ptr_equal(heap->back[4].base, grown_out_of);
}

/* ---- Blocks of other heaps */

static void a_thread_that_only_frees_keeps_blocks_without_bound(void **state)
{
    (void)state;
    set_knob(HAK_KNOB_EXCHANGE_BYTES, 0);
    hak_heap *owner = new_heap();
    hak_heap *freer = new_heap();
    size_t held = 0;
    unsigned posted = 0;
    for (unsigned class = 1; class < HAK_LEARNED_FIRST; class ++) {
        for (unsigned i = 0; i < 100; i++)
            blocks[i] = pop(owner, class);
        for (unsigned i = 0; i < 100; i++)
            push(freer, class, blocks[i]);
        held += (size_t)hak_bin_count(freer, class) * hak_classes[class].bytes;
        posted += 100 - hak_bin_count(freer, class);
        assert_true(held <= freer->knobs.out_bytes);
    }
    assert_true(freer->lent_bytes >= freer->knobs.out_bytes / 2);
    assert_int_equal(freer->count.remote_posted, posted);
    hak_bins_part(freer);
    assert_int_equal(freer->count.remote_posted, 100 * (HAK_LEARNED_FIRST - 1));
    hak_remote_drain(owner);
    assert_int_equal(owner->count.remote_drained, 100 * (HAK_LEARNED_FIRST - 1));
}

static void posting_takes_blocks_that_are_its_own(void **state)
{
    (void)state;
    set_knob(HAK_KNOB_EXCHANGE_BYTES, 0);
    hak_heap *owner = new_heap();
    hak_heap *freer = new_heap();
    unsigned class = 16;
    void *own[20];
    for (unsigned i = 0; i < 20; i++)
        own[i] = pop(freer, class);
    for (unsigned i = 0; i < 20; i++) {
        push(freer, class, own[i]);
        push(freer, class, pop(owner, class));
    }
    uint32_t before = hak_bin_count(freer, class);
    uint64_t posted_before = freer->count.remote_posted;
    hak_bins_part(freer);
    assert_int_equal(hak_bin_count(freer, class),
                     before - (freer->count.remote_posted - posted_before));
    assert_int_equal(freer->count.remote_posted, 20);
    for (void **at = freer->back[class].base + 1; at <= freer->hot.bins[class].top; at++)
        assert_int_equal(tag_of(*at) >> HAK_TAG_OWNER_SHIFT, freer->owner);
}

static void a_mixed_spill_mistakes_the_owner(void **state)
{
    (void)state;
    static const unsigned classes[] = {16, HAK_MID_LAST};
    set_knob(HAK_KNOB_EXCHANGE_BYTES, 0);
    for (unsigned k = 0; k < HAK_COUNT_OF(classes); k++) {
        hak_heap *owner = new_heap();
        hak_heap *freer = new_heap();
        unsigned class = classes[k];
        for (unsigned i = 0; i < 5; i++)
            blocks[i] = pop(owner, class);
        void *own = pop(freer, class);
        for (unsigned i = 0; i < 5; i++) {
            push(freer, class, blocks[i]);
            if (i == 2)
                push(freer, class, own);
        }
        hak_bin_spill(freer, class, hak_bin_count(freer, class));
        assert_int_equal(hak_bin_count(freer, class), 0);
        assert_int_equal(freer->count.remote_posted, 5);
        assert_int_equal(freer->back[class].refill_blocks, freer->back[class].spill_blocks - 5);
        hak_remote_drain(owner);
        assert_int_equal(owner->count.remote_drained, 5);
    }
}

/* One that allocates as much as it takes in puts the blocks to use, and may keep more of them. */
static void a_thread_that_reuses_foreign_blocks_posts_them_all(void **state)
{
    (void)state;
    hak_heap *owner = new_heap();
    hak_heap *freer = new_heap();
    unsigned class = 64;
    unsigned cap_before = 0;
    for (unsigned i = 0; i < 200; i++) {
        push(freer, class, pop(owner, class));
        if (freer->back[class].cap == freer->back[class].lent)
            cap_before = freer->back[class].cap;
        /* As though requests of other sizes had been served meanwhile. */
        hak_countdown_set(&freer->hot, hak_countdown(&freer->hot) - 1024);
    }
    assert_true(cap_before > 0);
    assert_int_equal(freer->lent_bytes, 0);
    assert_true(freer->back[class].cap >= 32);
    assert_true(freer->count.remote_posted < 200 - 16);
}

/* Ten classes of whose bins each alone would be let grow to 64 KiB. */
static void many_classes_exceed_the_budget_of_the_thread(void **state)
{
    (void)state;
    set_knob(HAK_KNOB_THREAD_BYTES, 128 << 10);
    hak_heap *heap = new_heap();
    for (unsigned class = 16; class <= 64; class += 4)
        for (unsigned turn = 0; turn < 8; turn++) {
            for (unsigned i = 0; i < 500; i++)
                blocks[i] = pop(heap, class);
            for (unsigned i = 0; i < 500; i++)
                push(heap, class, blocks[i]);
        }
    uint64_t caps = 0;
    for (unsigned class = 1; class < HAK_CLASS_COUNT; class ++)
        if (heap->back[class].cap > 16)
            caps += (uint64_t)(heap->back[class].cap - 16) * hak_classes[class].bytes;
    assert_int_equal(heap->cap_bytes, caps);
    assert_in_range(caps, 64 << 10, 128 << 10);
}

/* Large blocks, of which a few are kept whatever their size, leave the small ones nothing. */
static void mid_classes_use_up_the_budget(void **state)
{
    (void)state;
    hak_heap *heap = new_heap();
    for (unsigned class = HAK_MID_FIRST; class <= HAK_MID_LAST; class ++) {
        for (unsigned i = 0; i < 40; i++)
            blocks[i] = pop(heap, class);
        for (unsigned i = 0; i < 40; i++)
            push(heap, class, blocks[i]);
    }
    for (unsigned i = 0; i < many; i++)
        blocks[i] = pop(heap, 4);
    assert_int_equal(heap->back[4].cap, heap->knobs.bin_blocks);
    for (unsigned i = 0; i < many; i++)
        push(heap, 4, blocks[i]);
}

static void what_was_lent_is_never_earned(void **state)
{
    (void)state;
    hak_heap *owner = new_heap();
    hak_heap *freer = new_heap();
    unsigned class = 16;
    for (unsigned i = 0; i < 100; i++)
        push(freer, class, pop(owner, class));
    assert_true(freer->lent_bytes > 0);
    while (hak_bin_count(freer, class) > 0)
        pop(freer, class);
    pop(freer, class);
    assert_int_equal(freer->lent_bytes, 0);
    assert_int_equal(freer->back[class].lent, 0);
}

static void a_lowered_cap_is_still_lent(void **state)
{
    (void)state;
    hak_heap *owner = new_heap();
    hak_heap *freer = new_heap();
    unsigned class = 1;
    for (unsigned turn = 0; turn < 3; turn++) {
        for (unsigned i = 0; i < 300; i++)
            push(freer, class, pop(owner, class));
        assert_true(freer->back[class].cap > freer->knobs.bin_start);
        assert_int_equal(freer->back[class].lent, freer->back[class].cap);
        for (unsigned trims = 0; trims < 10; trims++) {
            hak_bins_watch(freer);
            hak_bins_trim(freer);
        }
        assert_true(freer->back[class].lent <= freer->back[class].cap);
        assert_int_equal(freer->lent_bytes, freer->back[class].lent * 16);
    }
}

/* ---- Pages of free blocks */

static void pages_of_free_blocks_stay_in_partly_used_slabs(void **state)
{
    (void)state;
    hak_heap *heap = new_heap();
    unsigned class = 64;
    for (unsigned i = 0; i < 64; i++) {
        blocks[i] = pop(heap, class);
        memset(blocks[i], 0xAB, 1024);
    }
    for (unsigned i = 1; i < 63; i++)
        push(heap, class, blocks[i]);
    hak_bin_spill(heap, class, hak_bin_count(heap, class));
    assert_true(hak_heap_purge(heap) >= KIB(48));
    assert_int_equal(((unsigned char *)blocks[0])[1023], 0xAB);
    assert_int_equal(((unsigned char *)blocks[63])[0], 0xAB);
    assert_int_equal(((unsigned char *)blocks[30])[0], 0);
    /* Nothing was freed since: nothing to look at. */
    assert_int_equal(hak_heap_purge(heap), 0);
}

/* ---- Threads without a heap share a head */

/* What a write lost between two threads takes to happen; builds that check everything are slow. */
#if defined(HAK_DEBUG)
enum { asked = 20000 };
#else
enum { asked = 8000000 };
#endif

static pthread_barrier_t all_there;

static void *ask_without_heap(void *unused)
{
    (void)unused;
    pthread_barrier_wait(&all_there);
    for (int i = 0; i < asked; i++)
        hak_free(hak_malloc_slow(2000, &hak_heap_none));
    return NULL;
}

/* Above zero it would send the next thread to bins that are not there. */
static void a_countdown_that_is_shared_is_written_back(void **state)
{
    (void)state;
    int64_t before = hak_countdown(&hak_heap_none);
    assert_true(before < 0);
    pthread_t threads[4];
    assert_int_equal(pthread_barrier_init(&all_there, NULL, 4), 0);
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, ask_without_heap, NULL), 0);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    pthread_barrier_destroy(&all_there);
    assert_int_equal(hak_countdown(&hak_heap_none), before);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(a_refill_gives_blocks_out_of_order, default_policy),
        cmocka_unit_test_setup(a_spill_loses_blocks, default_policy),
        cmocka_unit_test_setup(empty_slabs_are_kept_beyond_the_knob, default_policy),
        cmocka_unit_test_setup(a_cap_does_not_follow_use, default_policy),
        cmocka_unit_test_setup(a_lower_knob_leaves_bins_as_they_are, default_policy),
        cmocka_unit_test_setup(an_array_that_grew_is_not_used_again, default_policy),
        cmocka_unit_test_setup(a_thread_that_only_frees_keeps_blocks_without_bound, default_policy),
        cmocka_unit_test_setup(posting_takes_blocks_that_are_its_own, default_policy),
        cmocka_unit_test_setup(a_mixed_spill_mistakes_the_owner, default_policy),
        cmocka_unit_test_setup(a_thread_that_reuses_foreign_blocks_posts_them_all, default_policy),
        cmocka_unit_test_setup(many_classes_exceed_the_budget_of_the_thread, default_policy),
        cmocka_unit_test_setup(mid_classes_use_up_the_budget, default_policy),
        cmocka_unit_test_setup(what_was_lent_is_never_earned, default_policy),
        cmocka_unit_test_setup(a_lowered_cap_is_still_lent, default_policy),
        cmocka_unit_test_setup(pages_of_free_blocks_stay_in_partly_used_slabs, default_policy),
        cmocka_unit_test_setup(a_countdown_that_is_shared_is_written_back, default_policy),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
