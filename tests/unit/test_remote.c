/* Frees from other threads, step by step: post, drain, mailing on, orphans. The stress tests run the
 * same under real threads. */
#include "heap_test.h"

enum { class = 48 }; /* 768 bytes: 85 blocks to a slab */
static void *blocks[85];

static hak_slab *fill(hak_heap *heap)
{
    for (unsigned i = 0; i < 85; i++)
        blocks[i] = pop(heap, class);
    hak_slab *slab = slab_of(blocks[0], class);
    assert_int_equal(slab->blocks, 85);
    assert_int_equal(hak_slab_used(slab), 85);
    return slab;
}

static void post(unsigned first, unsigned end)
{
    for (unsigned i = first; i < end; i++)
        hak_remote_post_one(blocks[i]);
}

static hak_slab *mailed_first(hak_heap *heap)
{
    return atomic_load(&heap->mailbox);
}

static void a_posted_block_never_comes_back(void **state)
{
    (void)state;
    hak_heap *heap = new_heap();
    hak_slab *slab = fill(heap);
    post(0, 70);
    assert_ptr_equal(mailed_first(heap), slab);
    assert_int_equal(atomic_load(&slab->mailed), 1);
    assert_int_equal(hak_slab_used(slab), 85);
    hak_remote_drain(heap);
    assert_null(mailed_first(heap));
    assert_int_equal(atomic_load(&slab->mailed), 0);
    assert_int_equal(hak_slab_used(slab), 15);
    assert_int_equal(heap->count.remote_drained, 70);
    assert_ptr_equal(heap->back[class].available.head, slab);
    /* The bin gives them out again, lowest first. */
    hak_bin_spill(heap, class, hak_bin_count(heap, class));
    for (unsigned i = 0; i < 70; i++)
        assert_ptr_equal(pop(heap, class), blocks[i]);
}

static void a_slab_is_mailed_twice(void **state)
{
    (void)state;
    hak_heap *heap = new_heap();
    hak_slab *slab = fill(heap);
    post(0, 10);
    post(10, 20);
    assert_ptr_equal(mailed_first(heap), slab);
    assert_null(atomic_load(&slab->mail_next));
    hak_remote_drain(heap);
    post(20, 30);
    assert_ptr_equal(mailed_first(heap), slab);
    hak_remote_drain(heap);
    assert_int_equal(hak_slab_used(slab), 55);
}

static void mail_of_a_slab_that_changed_hands_is_lost(void **state)
{
    (void)state;
    hak_orphans_tidy(false);
    hak_heap *first = new_heap();
    hak_heap *second = new_heap();
    hak_slab *slab = fill(first);
    post(0, 1);
    hak_remote_drain(first);
    post(1, 40);
    /* With its mail in the box of a heap that owns it no more. */
    hak_bin_spill(first, class, hak_bin_count(first, class));
    assert_int_equal(hak_orphans_leave(first), 1);
    assert_ptr_equal(atomic_load(&slab->owner), &hak_orphans);
    assert_int_equal(tag_of(blocks[0]) >> HAK_TAG_OWNER_SHIFT, HAK_OWNER_ORPHAN);
    assert_ptr_equal(hak_orphans_adopt(second, class), slab);
    hak_slab_enlist(second, slab);
    assert_int_equal(tag_of(blocks[0]) >> HAK_TAG_OWNER_SHIFT, second->owner);
    assert_int_equal(second->count.adopted, 1);
    assert_null(mailed_first(second));
    hak_remote_drain(first);
    assert_ptr_equal(mailed_first(second), slab);
    hak_remote_drain(second);
    assert_int_equal(second->count.remote_drained, 39);
    assert_int_equal(hak_slab_used(slab), 45);
}

static void a_heap_without_a_thread_keeps_mail_to_itself(void **state)
{
    (void)state;
    hak_orphans_tidy(false);
    hak_heap *heap = new_heap();
    hak_slab *slab = fill(heap);
    post(0, 40);
    assert_int_equal(hak_orphans_leave(heap), 1);
    hak_mailbox_forward(heap);
    assert_null(mailed_first(heap));
    assert_ptr_equal(mailed_first(&hak_orphans), slab);
    hak_orphans_tidy(false);
    assert_int_equal(hak_slab_used(slab), 45);
    post(40, 85);
    hak_orphans_tidy(true);
    assert_int_equal(slab->state, HAK_SLAB_NONE);
    assert_int_equal(tag_of(blocks[0]), 0);
}

static void an_orphan_is_adopted_that_is_full(void **state)
{
    (void)state;
    hak_orphans_tidy(false);
    hak_heap *heap = new_heap();
    hak_heap *other = new_heap();
    hak_slab *slab = fill(heap);
    assert_int_equal(hak_orphans_leave(heap), 1);
    assert_null(hak_orphans_adopt(other, class));
    /* Posted, and its mail held up with a thread that sleeps: the bits are found all the same. */
    atomic_store(&slab->mailed, 1);
    post(3, 4);
    assert_null(mailed_first(&hak_orphans));
    assert_ptr_equal(hak_orphans_adopt(other, class), slab);
    assert_int_equal(hak_slab_used(slab), 84);
    hak_slab_enlist(other, slab);
    assert_ptr_equal(pop(other, class), blocks[3]);
}

static void an_empty_slab_becomes_an_orphan(void **state)
{
    (void)state;
    hak_heap *heap = new_heap();
    hak_slab *slab = fill(heap);
    for (unsigned i = 0; i < 85; i++)
        push(heap, class, blocks[i]);
    hak_heap_empty(heap);
    assert_ptr_equal(heap->back[class].available.head, slab);
    assert_int_equal(hak_orphans_leave(heap), 0);
    assert_int_equal(slab->state, HAK_SLAB_NONE);
}

static void bits_wait_for_mail_that_is_held_up(void **state)
{
    (void)state;
    hak_heap *heap = new_heap();
    hak_slab *slab = fill(heap);
    assert_false(hak_remote_poll(heap, class));
    atomic_store(&slab->mailed, 1);
    post(0, 5);
    assert_null(mailed_first(heap));
    assert_true(hak_remote_poll(heap, class));
    assert_int_equal(hak_slab_used(slab), 80);
}

/* The slab dies in a mailbox, and another is made in its place before the mail is read. */
static void a_slab_that_died_in_a_mailbox_is_taken_for_alive(void **state)
{
    (void)state;
    set_knob(HAK_KNOB_EMPTY_SLABS, 0);
    hak_heap *heap = new_heap();
    hak_heap *other = new_heap();
    hak_slab *slab = fill(heap);
    post(0, 85);
    assert_ptr_equal(mailed_first(heap), slab);
    hak_remote_poll(heap, class);
    assert_int_equal(slab->state, HAK_SLAB_NONE);
    assert_ptr_equal(mailed_first(heap), slab);
    hak_slab *made[64];
    unsigned count = 0;
    do {
        assert_true(count < HAK_COUNT_OF(made));
        made[count] = hak_slab_new(class, other);
        assert_non_null(made[count]);
        hak_slab_enlist(other, made[count]);
    } while (made[count++] != slab);
    assert_ptr_equal(atomic_load(&slab->owner), other);
    /* Its flag is still set: a post to the new slab finds it mailed. The mail finds its way. */
    while (other->back[class].full.head != slab)
        pop(other, class);
    hak_remote_post_one(slab->start);
    assert_null(mailed_first(other));
    hak_remote_drain(heap);
    assert_ptr_equal(mailed_first(other), slab);
    hak_remote_drain(other);
    assert_int_equal(hak_slab_used(slab), 84);
    assert_int_equal(atomic_load(&slab->mailed), 0);
}

/* A heap is kept whole for the next thread; when nobody comes, it is dissolved. */
static void a_heap_that_nobody_takes_keeps_its_slabs(void **state)
{
    (void)state;
    hak_orphans_tidy(false);
    hak_heap *heap = new_heap();
    hak_slab *slab = fill(heap);
    hak_heap_return(heap);
    assert_true(heap->whole);
    set_knob(HAK_KNOB_PURGE_DELAY, 3600000);
    hak_heaps_dissolve(false);
    assert_true(heap->whole);
    assert_ptr_equal(atomic_load(&slab->owner), heap);
    set_knob(HAK_KNOB_PURGE_DELAY, 0);
    hak_heaps_dissolve(false);
    assert_false(heap->whole);
    assert_ptr_equal(atomic_load(&slab->owner), &hak_orphans);
    post(0, 85);
    hak_orphans_tidy(false);
    assert_int_equal(slab->state, HAK_SLAB_NONE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(a_posted_block_never_comes_back, default_policy),
        cmocka_unit_test_setup(a_slab_is_mailed_twice, default_policy),
        cmocka_unit_test_setup(mail_of_a_slab_that_changed_hands_is_lost, default_policy),
        cmocka_unit_test_setup(a_heap_without_a_thread_keeps_mail_to_itself, default_policy),
        cmocka_unit_test_setup(an_orphan_is_adopted_that_is_full, default_policy),
        cmocka_unit_test_setup(an_empty_slab_becomes_an_orphan, default_policy),
        cmocka_unit_test_setup(bits_wait_for_mail_that_is_held_up, default_policy),
        cmocka_unit_test_setup(a_slab_that_died_in_a_mailbox_is_taken_for_alive, default_policy),
        cmocka_unit_test_setup(a_heap_that_nobody_takes_keeps_its_slabs, default_policy),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
