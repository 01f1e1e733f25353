/* Superslabs, spans and slabs: merging, alignment, growing in place, what is known to be zero, what
 * becomes of an empty superslab, and giving free pages back. */
#include <sys/mman.h>

#include "heap_test.h"

#define UNITS HAK_SUPERSLAB_UNITS

static char *span(uint32_t units)
{
    bool zeroed;
    char *start = hak_span_new(units, 1, &zeroed);
    assert_non_null(start);
    return start;
}

/* Fills the superslab of `first`, which is one span of `units`, with spans of the same length. */
static void fill(char *first, uint32_t units, char **out, unsigned count)
{
    hak_superslab *s = hak_superslab_of(first);
    char *elsewhere[512];
    unsigned others = 0, here = 1;
    out[0] = first;
    while (here < count) {
        char *next = span(units);
        if (hak_superslab_of(next) == s) {
            out[here++] = next;
        } else {
            assert_true(others < HAK_COUNT_OF(elsewhere));
            elsewhere[others++] = next;
        }
    }
    while (others > 0)
        hak_span_delete(elsewhere[--others], units);
}

static void neighbours_that_are_free_stay_apart(void **state)
{
    (void)state;
    bool zeroed;
    char *part[8];
    char *first = span(UNITS);
    hak_superslab *s = hak_superslab_of(first);
    assert_int_equal(s->bucket, 0);
    assert_true(hak_span_resize(first, UNITS, 64, &zeroed));
    assert_int_equal(s->bucket, UNITS - 64);
    fill(first, 64, part, 8);
    assert_int_equal(s->bucket, 0);
    hak_span_delete(part[1], 64);
    hak_span_delete(part[3], 64);
    assert_int_equal(s->bucket, 64);
    hak_span_delete(part[2], 64);
    assert_int_equal(s->bucket, 192);
    assert_int_equal(s->kind, HAK_SUPERSLAB_SPANS);
    hak_span_delete(part[0], 64);
    assert_int_equal(s->bucket, 256);
    for (unsigned i = 4; i < 8; i++)
        hak_span_delete(part[i], 64);
    assert_int_equal(s->kind, HAK_SUPERSLAB_EMPTY);
    assert_int_equal(tag_of(first), 0);
}

static void a_span_is_not_aligned(void **state)
{
    (void)state;
    char *held[64];
    uint32_t units[64];
    unsigned count = 0;
    for (uint32_t align = 1; align <= 256; align *= 2) {
        for (uint32_t length = 1; length < 8; length += 2) {
            bool zeroed;
            char *start = hak_span_new(length, align, &zeroed);
            assert_non_null(start);
            assert_int_equal((uintptr_t)start & (((size_t)align << HAK_UNIT_SHIFT) - 1), 0);
            assert_int_equal(hak_span_units(start), length);
            assert_int_equal(tag_of(start), HAK_TAG_SPAN);
            units[count] = length;
            held[count++] = start;
        }
    }
    while (count-- > 0)
        hak_span_delete(held[count], units[count]);
}

static void a_span_grows_over_its_neighbour(void **state)
{
    (void)state;
    bool zeroed;
    char *part[4];
    char *first = span(UNITS);
    assert_true(hak_span_resize(first, UNITS, 128, &zeroed));
    fill(first, 128, part, 4);
    assert_false(hak_span_resize(part[0], 128, 129, &zeroed));
    assert_int_equal(hak_span_units(part[0]), 128);
    char *last = part[0];
    for (unsigned i = 1; i < 4; i++)
        if (part[i] > last)
            last = part[i];
    assert_false(hak_span_resize(last, 128, 200, &zeroed)); /* beyond the superslab's end */
    char *second = part[0] + ((size_t)128 << HAK_UNIT_SHIFT);
    hak_span_delete(second, 128);
    assert_true(hak_span_resize(part[0], 128, 250, &zeroed));
    assert_false(zeroed);
    assert_int_equal(hak_span_units(part[0]), 250);
    assert_false(hak_span_resize(part[0], 250, 300, &zeroed));
    uint64_t bytes = hak_span_bytes();
    assert_true(hak_span_resize(part[0], 250, 10, &zeroed));
    assert_int_equal(bytes - hak_span_bytes(), (size_t)240 << HAK_UNIT_SHIFT);
    hak_span_delete(part[0], 10);
    for (unsigned i = 1; i < 4; i++)
        if (part[i] != second)
            hak_span_delete(part[i], 128);
}

static bool all_zero(const char *start, size_t bytes)
{
    return start[0] == 0 && memcmp(start, start + 1, bytes - 1) == 0;
}

static void dirty_memory_is_called_zero(void **state)
{
    (void)state;
    bool zeroed = false;
    hak_central_purge(true);
    char *start = hak_span_new(UNITS, 1, &zeroed);
    assert_non_null(start);
    assert_true(zeroed);
    assert_true(all_zero(start, HAK_SUPERSLAB_BYTES));
    memset(start, 0xEE, HAK_SUPERSLAB_BYTES);
    hak_span_delete(start, UNITS);
    /* The same superslab, as it was left. */
    char *again = hak_span_new(UNITS, 1, &zeroed);
    assert_ptr_equal(again, start);
    assert_false(zeroed);
    hak_span_delete(again, UNITS);
    assert_true(hak_central_purge(true) >= HAK_SUPERSLAB_BYTES);
    again = hak_span_new(UNITS, 1, &zeroed);
    assert_ptr_equal(again, start);
    assert_true(zeroed);
    assert_true(all_zero(again, HAK_SUPERSLAB_BYTES));
    hak_span_delete(again, UNITS);
}

static void marks_of_a_span_are_lost(void **state)
{
    (void)state;
    char *start = span(9);
    hak_span_mark(start, HAK_SPAN_GROWN, true);
    assert_true(hak_span_is(start, HAK_SPAN_GROWN));
    assert_int_equal(hak_span_units(start), 9);
    hak_span_mark(start, HAK_SPAN_KEPT, true);
    assert_int_equal(hak_span_units(start), 0);
    hak_span_mark(start, HAK_SPAN_KEPT | HAK_SPAN_GROWN, false);
    assert_int_equal(hak_span_units(start), 9);
    assert_int_equal(hak_span_units(start + 8), 0);
    assert_int_equal(hak_span_units(start + HAK_UNIT_BYTES), 0);
    hak_span_delete(start, 9);
    assert_int_equal(hak_span_units(start), 0);
}

/* ---- Slabs */

static void a_slab_is_not_aligned_to_its_size(void **state)
{
    (void)state;
    hak_heap *heap = new_heap();
    for (unsigned c = 1; c <= HAK_MID_LAST; c++) {
        hak_slab *slab = hak_slab_new(c, heap);
        assert_non_null(slab);
        size_t bytes = (size_t)hak_classes[c].chunks << HAK_CHUNK_SHIFT;
        assert_int_equal((uintptr_t)slab->start & (bytes - 1), 0);
        for (size_t at = 0; at < bytes; at += HAK_CHUNK_BYTES) {
            assert_ptr_equal(slab_of(slab->start + at, c), slab);
            assert_int_equal(tag_of(slab->start + at),
                             heap->owner << HAK_TAG_OWNER_SHIFT | c << HAK_CLASS_SHIFT);
        }
        for (unsigned w = 0; w < slab->words; w++) {
            assert_int_equal(slab->free_bits[w], 0);
            assert_int_equal(atomic_load(&slab->remote_bits[w]), 0);
        }
        hak_slab_delete(slab);
    }
}

static void an_empty_superslab_serves_one_kind_only(void **state)
{
    (void)state;
    hak_heap *heap = new_heap();
    char *start = span(UNITS);
    hak_superslab *s = hak_superslab_of(start);
    hak_span_delete(start, UNITS);
    assert_int_equal(s->kind, HAK_SUPERSLAB_EMPTY);
    hak_slab *slab[256];
    unsigned count = 0;
    unsigned last = HAK_MID_LAST; /* 8 chunks each: four fill a superslab */
    do {
        assert_true(count < HAK_COUNT_OF(slab));
        slab[count] = hak_slab_new(last, heap);
        assert_non_null(slab[count]);
    } while (slab[count++]->superslab != s);
    assert_int_equal(s->kind, HAK_SUPERSLAB_SLABS);
    assert_int_equal(s->bucket, 5); /* the other half is whole */
    hak_slab *small = hak_slab_new(1, heap);
    assert_true(s->kind == HAK_SUPERSLAB_SLABS);
    hak_slab_delete(small);
    while (count > 0)
        hak_slab_delete(slab[--count]);
    assert_int_equal(s->kind, HAK_SUPERSLAB_EMPTY);
    char *again = span(UNITS);
    assert_int_equal(hak_superslab_of(again)->kind, HAK_SUPERSLAB_SPANS);
    hak_span_delete(again, UNITS);
}

/* ---- Purge */

static size_t resident(char *start, size_t bytes)
{
    static unsigned char pages[HAK_SUPERSLAB_UNITS];
    size_t count = 0;
    assert_int_equal(mincore(start, bytes, pages), 0);
    for (size_t i = 0; i < bytes / hak_os_page_bytes; i++)
        count += pages[i] & 1;
    return count;
}

static void free_units_stay_resident(void **state)
{
    (void)state;
    bool zeroed;
    char *start = span(UNITS);
    memset(start, 1, HAK_SUPERSLAB_BYTES);
    assert_true(hak_span_resize(start, UNITS, 32, &zeroed));
    hak_central_stats before, after;
    hak_central_stats_read(&before);
    assert_true(before.free_dirty_bytes >= HAK_SUPERSLAB_BYTES - KIB(128));
    assert_true(hak_central_purge(true) >= HAK_SUPERSLAB_BYTES - KIB(128));
    hak_central_stats_read(&after);
    assert_int_equal(after.free_dirty_bytes, 0);
    assert_true(after.purged_bytes > before.purged_bytes);
    assert_int_equal(resident(start + KIB(128), HAK_SUPERSLAB_BYTES - KIB(128)), 0);
    /* The span that lives there lost nothing. */
    for (size_t i = 0; i < KIB(128); i++)
        assert_int_equal(start[i], 1);
    hak_span_delete(start, 32);
}

static void pages_are_given_back_before_their_time(void **state)
{
    (void)state;
    hak_central_purge(true);
    set_knob(HAK_KNOB_RETAIN_BYTES, MIB(64));
    set_knob(HAK_KNOB_PURGE_DELAY, 0);
    char *start = span(UNITS);
    memset(start, 1, HAK_SUPERSLAB_BYTES);
    hak_span_delete(start, UNITS); /* within what is retained */
    assert_false(hak_central_purge_due());
    assert_int_equal(hak_central_purge(false), 0);
    set_knob(HAK_KNOB_RETAIN_BYTES, 0);
    set_knob(HAK_KNOB_PURGE_DELAY, 3600000);
    assert_true(hak_central_purge_due());
    assert_int_equal(hak_central_purge(false), 0);
    set_knob(HAK_KNOB_PURGE_DELAY, 0);
    assert_true(hak_central_purge(false) >= HAK_SUPERSLAB_BYTES);
    /* And a free that owes something pays it itself. */
    start = span(UNITS);
    memset(start, 1, HAK_SUPERSLAB_BYTES);
    hak_span_delete(start, UNITS);
    assert_int_equal(resident(start, HAK_SUPERSLAB_BYTES), 0);
}

static void huge_pages_are_asked_for_below_the_gate(void **state)
{
    (void)state;
    hak_central_purge(true);
    set_knob(HAK_KNOB_THP, 0);
    char *start = span(UNITS);
    assert_false(hak_superslab_of(start)->huge);
    hak_span_delete(start, UNITS);
    set_knob(HAK_KNOB_THP, 2);
    char *huge = span(UNITS);
    assert_true(hak_superslab_of(huge)->huge);
    hak_span_delete(huge, UNITS);
    set_knob(HAK_KNOB_THP, 0);
    char *again = span(UNITS);
    assert_false(hak_superslab_of(again)->huge);
    hak_span_delete(again, UNITS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(neighbours_that_are_free_stay_apart, default_policy),
        cmocka_unit_test_setup(a_span_is_not_aligned, default_policy),
        cmocka_unit_test_setup(a_span_grows_over_its_neighbour, default_policy),
        cmocka_unit_test_setup(dirty_memory_is_called_zero, default_policy),
        cmocka_unit_test_setup(marks_of_a_span_are_lost, default_policy),
        cmocka_unit_test_setup(a_slab_is_not_aligned_to_its_size, default_policy),
        cmocka_unit_test_setup(an_empty_superslab_serves_one_kind_only, default_policy),
        cmocka_unit_test_setup(free_units_stay_resident, default_policy),
        cmocka_unit_test_setup(pages_are_given_back_before_their_time, default_policy),
        cmocka_unit_test_setup(huge_pages_are_asked_for_below_the_gate, default_policy),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
