/* Large blocks: a heap's slots, the stock that all share, their budgets, double frees. */
#include "heap_test.h"

static int empty_stock(void **state)
{
    hak_large_tidy(true);
    return default_policy(state);
}

static char *large(hak_heap *heap, size_t size)
{
    bool zeroed;
    char *block = hak_large_alloc(heap, size, 16, &zeroed);
    assert_non_null(block);
    assert_true(hak_large_usable(block) >= size);
    return block;
}

static hak_large_stats stats_now(void)
{
    hak_large_stats stats;
    hak_large_stats_read(&stats);
    return stats;
}

static void a_freed_span_is_not_used_again(void **state)
{
    (void)state;
    hak_heap *heap = new_heap();
    for (size_t size = KIB(33); size < MIB(1); size += size / 3) {
        char *block = large(heap, size);
        uint64_t hits = heap->count.large_hits;
        assert_true(hak_large_free(heap, block));
        assert_ptr_equal(large(heap, size), block);
        assert_int_equal(heap->count.large_hits, hits + 1);
        assert_true(hak_large_free(heap, block));
    }
    assert_true(heap->large_bytes <= heap->knobs.large_slot_bytes);
}

static void more_than_an_eighth_is_waste(void **state)
{
    (void)state;
    hak_heap *heap = new_heap();
    for (size_t size = KIB(32) + 1; size < MIB(2); size += 4093) {
        char *block = large(heap, size);
        /* To the next class, and from there to the next page. */
        assert_true(hak_large_usable(block) - size <= size / 8 + hak_os_page_bytes);
        assert_true(hak_large_free(heap, block));
        hak_large_flush(heap, 0);
        hak_large_tidy(true);
    }
}

static void a_double_free_goes_unnoticed(void **state)
{
    (void)state;
    hak_heap *heap = new_heap();
    char *kept = large(heap, KIB(100));
    assert_true(hak_large_free(heap, kept));
    assert_int_equal(hak_large_usable(kept), 0);
    assert_false(hak_large_free(heap, kept));
    hak_large_flush(heap, 0);
    assert_false(hak_large_free(heap, kept));
    char *block = large(heap, KIB(100));
    assert_false(hak_large_free(heap, block + 4096));
    assert_false(hak_large_free(heap, block + 16));
    assert_true(hak_large_free(heap, block));
}

static void slots_outgrow_their_room(void **state)
{
    (void)state;
    hak_heap *heap = new_heap();
    char *live = large(heap, MIB(1)); /* so that the stock has a budget */
    enum { spans = HAK_LARGE_SLOTS + 2 };
    char *block[spans];
    for (unsigned i = 0; i < spans; i++)
        block[i] = large(heap, KIB(100));
    for (unsigned i = 0; i < spans; i++)
        assert_true(hak_large_free(heap, block[i]));
    /* The oldest went on to the stock; the newest come first. */
    assert_int_equal(stats_now().stock_spans, 2);
    for (unsigned i = spans; i-- > 2;)
        assert_ptr_equal(large(heap, KIB(100)), block[i]);
    for (unsigned i = 0; i < 2; i++)
        large(heap, KIB(100));
    assert_int_equal(stats_now().stock_spans, 0);
    assert_int_equal(heap->count.large_made, spans + 1);
    for (unsigned i = 0; i < spans; i++)
        assert_true(hak_large_free(heap, block[i]));
    assert_true(hak_large_free(heap, live));
}

static void slots_outgrow_their_bytes(void **state)
{
    (void)state;
    hak_heap *heap = new_heap();
    /* The budget is that of all threads: so much for each. */
    uint32_t shares = hak_heaps_live() < 16 ? hak_heaps_live() : 16;
    set_knob(HAK_KNOB_LARGE_SLOT_BYTES, KIB(600) * shares);
    hak_heap_follow_policy(heap);
    enum { spans = 18 };
    char *block[spans];
    for (unsigned i = 0; i < spans; i++)
        block[i] = large(heap, KIB(40) + KIB(4) * (i % 9));
    for (unsigned i = 0; i < spans; i++) {
        assert_true(hak_large_free(heap, block[i]));
        assert_true(heap->large_bytes <= KIB(600));
    }
    assert_true(heap->large_bytes > 0);
    /* One that alone is too much goes to the stock at once. */
    uint64_t bytes = heap->large_bytes;
    assert_true(hak_large_free(heap, large(heap, KIB(900))));
    assert_int_equal(heap->large_bytes, bytes);
}

static void one_heaps_spans_do_not_serve_another(void **state)
{
    (void)state;
    hak_heap *heap = new_heap();
    hak_heap *other = new_heap();
    char *live = large(heap, MIB(1));
    char *block = large(heap, KIB(500));
    assert_true(hak_large_free(heap, block));
    hak_large_flush(heap, 0);
    assert_int_equal(stats_now().stock_spans, 1);
    assert_int_equal(stats_now().stock_bytes, KIB(512));
    assert_ptr_equal(large(other, KIB(500)), block);
    assert_int_equal(stats_now().stock_bytes, 0);
    /* A thread that has no heap. */
    assert_true(hak_large_free(NULL, block));
    assert_int_equal(stats_now().stock_spans, 1);
    assert_true(hak_large_free(NULL, live));
}

static void a_shelf_overflows(void **state)
{
    (void)state;
    enum { many = 40 };
    char *block[many];
    hak_heap *heap = new_heap();
    char *live = large(heap, MIB(1) + KIB(900));
    char *more = large(heap, MIB(1) + KIB(900));
    for (unsigned i = 0; i < many; i++)
        block[i] = large(heap, KIB(40));
    for (unsigned i = 0; i < many; i++)
        assert_true(hak_large_free(NULL, block[i]));
    assert_in_range(stats_now().stock_spans, 1, 32);
    hak_large_tidy(true);
    assert_int_equal(stats_now().stock_spans, 0);
    assert_int_equal(stats_now().stock_bytes, 0);
    assert_true(hak_large_free(NULL, live));
    assert_true(hak_large_free(NULL, more));
}

static void the_stock_outgrows_its_budget(void **state)
{
    (void)state;
    hak_heap *heap = new_heap();
    char *live[4];
    char *block[8];
    for (unsigned i = 0; i < 4; i++)
        live[i] = large(heap, MIB(1));
    for (unsigned i = 0; i < 8; i++)
        block[i] = large(heap, KIB(100) << (i % 3));
    set_knob(HAK_KNOB_LARGE_STOCK_BYTES, KIB(700));
    for (unsigned i = 0; i < 8; i++) {
        assert_true(hak_large_free(NULL, block[i]));
        assert_true(stats_now().stock_bytes <= KIB(700));
    }
    assert_true(stats_now().stock_bytes > 0);
    set_knob(HAK_KNOB_LARGE_STOCK_BYTES, 0);
    hak_large_tidy(true);
    assert_true(hak_large_free(NULL, live[0]));
    assert_int_equal(stats_now().stock_spans, 0);
    for (unsigned i = 1; i < 4; i++)
        assert_true(hak_large_free(NULL, live[i]));
}

static void stocked_spans_do_not_age(void **state)
{
    (void)state;
    hak_heap *heap = new_heap();
    char *live = large(heap, MIB(1));
    set_knob(HAK_KNOB_PURGE_DELAY, 3600000);
    assert_true(hak_large_free(NULL, large(heap, KIB(200))));
    sleep_ms(20);
    hak_large_tidy(false);
    assert_int_equal(stats_now().stock_spans, 1);
    set_knob(HAK_KNOB_PURGE_DELAY, 1);
    hak_large_tidy(false);
    assert_int_equal(stats_now().stock_spans, 0);
    assert_true(hak_large_free(NULL, live));
}

static void a_resize_moves_what_could_stand(void **state)
{
    (void)state;
    hak_heap *heap = new_heap();
    char *block = large(heap, MIB(1) + KIB(800));
    memset(block, 0x77, KIB(300));
    /* By little: it stays as it is. */
    size_t usable = hak_large_usable(block);
    assert_true(hak_large_resize(heap, block, MIB(1) + KIB(600)));
    assert_int_equal(hak_large_usable(block), usable);
    assert_true(hak_large_resize(heap, block, KIB(200)));
    assert_true(hak_large_usable(block) < KIB(256));
    assert_true(hak_large_resize(heap, block, KIB(700)));
    assert_true(hak_large_usable(block) >= KIB(700));
    assert_int_equal(block[KIB(200) - 1], 0x77);
    assert_false(hak_large_resize(heap, block, MIB(2) + 1));
    /* What realloc passed through is not kept. */
    hak_large_stats before = stats_now();
    uint64_t kept = heap->large_bytes;
    assert_true(hak_span_is(block, HAK_SPAN_GROWN));
    assert_true(hak_large_free(heap, block));
    assert_int_equal(heap->large_bytes, kept);
    assert_int_equal(stats_now().stock_spans, before.stock_spans);
}

/* What is not yet asked for is nobody's: usable size ends before it, and a pointer there is foreign. */
static void room_to_grow_is_told_of(void **state)
{
    (void)state;
    hak_heap *heap = new_heap();
    char *block = hak_large_alloc_ahead(heap, KIB(200));
    assert_non_null(block);
    hak_large_grown(block, KIB(200));
    uint32_t units = hak_span_units(block);
    assert_true((size_t)units << HAK_UNIT_SHIFT >= KIB(300));
    assert_int_equal(hak_large_usable(block), KIB(200));
    assert_int_equal(hak_large_usable(block + HAK_UNIT_BYTES), 0);
    assert_false(hak_large_free(heap, block + HAK_UNIT_BYTES));
    assert_true(hak_large_resize(heap, block, KIB(290)));
    assert_int_equal(hak_span_units(block), units);
    assert_int_equal(hak_large_usable(block), hak_round_up(KIB(290), hak_os_page_bytes));
    assert_true(hak_large_free(heap, block));
    assert_false(hak_large_free(heap, block));
    /* Nothing of the old span is taken for a new one's. */
    char *next = hak_span_new(1, 1, &(bool){false});
    char *behind = hak_span_new(9, 1, &(bool){false});
    assert_int_equal(hak_span_units(behind), 9);
    assert_int_equal(hak_span_units(next), 1);
    hak_span_delete(next, 1);
    hak_span_delete(behind, 9);
}

static void an_alignment_is_missed(void **state)
{
    (void)state;
    hak_heap *heap = new_heap();
    for (size_t alignment = KIB(4); alignment <= MIB(1); alignment *= 2) {
        bool zeroed;
        char *block = hak_large_alloc(heap, KIB(40), alignment, &zeroed);
        assert_non_null(block);
        assert_int_equal((uintptr_t)block & (alignment - 1), 0);
        assert_true(hak_large_free(heap, block));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(a_freed_span_is_not_used_again, empty_stock),
        cmocka_unit_test_setup(more_than_an_eighth_is_waste, empty_stock),
        cmocka_unit_test_setup(a_double_free_goes_unnoticed, empty_stock),
        cmocka_unit_test_setup(slots_outgrow_their_room, empty_stock),
        cmocka_unit_test_setup(slots_outgrow_their_bytes, empty_stock),
        cmocka_unit_test_setup(one_heaps_spans_do_not_serve_another, empty_stock),
        cmocka_unit_test_setup(a_shelf_overflows, empty_stock),
        cmocka_unit_test_setup(the_stock_outgrows_its_budget, empty_stock),
        cmocka_unit_test_setup(stocked_spans_do_not_age, empty_stock),
        cmocka_unit_test_setup(a_resize_moves_what_could_stand, empty_stock),
        cmocka_unit_test_setup(room_to_grow_is_told_of, empty_stock),
        cmocka_unit_test_setup(an_alignment_is_missed, empty_stock),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
