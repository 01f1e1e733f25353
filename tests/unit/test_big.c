/* Big blocks: the table that knows them, BigCache, and moving pages instead of bytes. */
#include <errno.h>

#include "heap/big.h"
#include "heap_test.h"

static hak_big_stats stats_now(void)
{
    hak_big_stats stats;
    hak_big_stats_read(&stats);
    return stats;
}

/* Through this no compiler warns of what the test is about. */
static void *(*volatile take)(size_t) = hak_malloc;

static char *big(size_t size)
{
    bool zeroed;
    char *block = hak_big_alloc(size, hak_os_page_bytes, &zeroed);
    assert_non_null(block);
    return block;
}

static int empty_cache(void **state)
{
    hak_bigcache_purge(true);
    return default_policy(state);
}

/* ---- The table */

enum { many = 1500 };

static void the_table_loses_entries_as_it_grows_and_shrinks(void **state)
{
    (void)state;
    set_knob(HAK_KNOB_BIGCACHE_BYTES, 0);
    static char *block[many];
    hak_big_stats before = stats_now();
    for (unsigned i = 0; i < many; i++)
        block[i] = big(KIB(64) + hak_os_page_bytes * (i % 5));
    assert_int_equal(stats_now().live - before.live, many);
    /* In an order that leaves gaps everywhere; what stands must be found over each of them. */
    for (unsigned i = 0; i < many; i++) {
        unsigned at = i * 7 % many;
        assert_int_equal(hak_big_usable(block[at]), KIB(64) + hak_os_page_bytes * (at % 5));
        assert_true(hak_big_free(block[at]));
        assert_int_equal(hak_big_usable(block[at]), 0);
        unsigned other = (i + 1) * 7 % many;
        if (i + 1 < many)
            assert_true(hak_big_usable(block[other]) > 0);
    }
    assert_int_equal(stats_now().live, before.live);
    assert_int_equal(stats_now().live_bytes, before.live_bytes);
}

static void what_is_no_big_block_is_freed(void **state)
{
    (void)state;
    char *block = big(MIB(3));
    assert_false(hak_big_free(block + 4096));
    assert_false(hak_big_free(NULL));
    assert_int_equal(hak_big_usable(block + 4096), 0);
    assert_null(hak_big_resize(block + 4096, MIB(8)));
    assert_true(hak_big_free(block));
    assert_false(hak_big_free(block));
}

static void an_alignment_is_missed(void **state)
{
    (void)state;
    for (size_t alignment = KIB(4); alignment <= MIB(64); alignment *= 4) {
        bool zeroed;
        char *block = hak_big_alloc(MIB(3), alignment, &zeroed);
        assert_int_equal((uintptr_t)block & (alignment - 1), 0);
        block[0] = block[MIB(3) - 1] = 1;
        assert_true(hak_big_free(block));
    }
}

/* The meter would take half of all it can hold for a request that the system refused. */
static void a_refused_request_counts_as_served(void **state)
{
    (void)state;
    hak_free(take(16));
    hak_heap *heap = hak_heap_mine(hak_heap_tls);
    hak_big_stats before = stats_now();
    uint64_t served = hak_heap_served(heap);
    errno = 0;
    assert_null(take((size_t)PTRDIFF_MAX - 4096));
    assert_int_equal(errno, ENOMEM);
    assert_null(take(SIZE_MAX - 4096));
    assert_int_equal(hak_heap_served(heap), served);
    assert_int_equal(stats_now().requests, before.requests);
    assert_int_equal(stats_now().request_bytes, before.request_bytes);
    bool zeroed;
    assert_null(hak_big_alloc(SIZE_MAX - 16, 4096, &zeroed));
}

/* ---- BigCache */

static void a_kept_mapping_is_mapped_anew(void **state)
{
    (void)state;
    char *block = big(MIB(8));
    assert_true(hak_big_free(block));
    hak_big_stats before = stats_now();
    assert_int_equal(before.cached_bytes, MIB(8));
    assert_ptr_equal(big(MIB(8)), block);
    assert_int_equal(stats_now().hits, before.hits + 1);
    assert_int_equal(stats_now().mapped, before.mapped);
    assert_int_equal(stats_now().cached_bytes, 0);
    assert_true(hak_big_free(block));
}

static void what_was_cut_off_is_lost(void **state)
{
    (void)state;
    set_knob(HAK_KNOB_BIG_WASTE, 0);
    char *block = big(MIB(16));
    assert_true(hak_big_free(block));
    char *part = big(MIB(4));
    assert_ptr_equal(part, block);
    assert_int_equal(hak_big_usable(part), MIB(4));
    assert_int_equal(stats_now().cached_bytes, MIB(12));
    char *next = big(MIB(4));
    assert_ptr_equal(next, block + MIB(4));
    /* Both come back, in the order that needs merging on both sides. */
    assert_true(hak_big_free(part));
    assert_true(hak_big_free(next));
    assert_int_equal(stats_now().cached_bytes, MIB(16));
    assert_ptr_equal(big(MIB(16)), block);
    assert_int_equal(stats_now().cached_bytes, 0);
    assert_true(hak_big_free(block));
}

static void more_is_wasted_than_the_knob_allows(void **state)
{
    (void)state;
    char *block = big(MIB(4) + KIB(32));
    assert_true(hak_big_free(block));
    /* Less than is worth cutting off goes with it. */
    assert_ptr_equal(big(MIB(4)), block);
    assert_int_equal(hak_big_usable(block), MIB(4) + KIB(32));
    assert_true(hak_big_free(block));
    set_knob(HAK_KNOB_BIG_WASTE, 0);
    assert_ptr_equal(big(MIB(4)), block);
    assert_int_equal(hak_big_usable(block), MIB(4));
    assert_true(hak_big_free(block));
}

static void a_small_kept_mapping_does_not_grow(void **state)
{
    (void)state;
    char *block = big(MIB(8));
    memset(block, 0x5A, MIB(8));
    assert_true(hak_big_free(block));
    hak_big_stats before = stats_now();
    bool zeroed = true;
    char *grown = hak_big_alloc(MIB(16), hak_os_page_bytes, &zeroed);
    assert_non_null(grown);
    assert_false(zeroed);
    assert_int_equal(stats_now().hits, before.hits + 1);
    assert_int_equal(stats_now().cached_bytes, 0);
    assert_int_equal(hak_big_usable(grown), MIB(16));
    grown[MIB(16) - 1] = 1;
    assert_int_equal(grown[MIB(8) - 1], 0x5A);
    assert_true(hak_big_free(grown));
    /* One far too small is left for those that it fits. */
    before = stats_now();
    char *large = big(MIB(128));
    assert_int_equal(stats_now().hits, before.hits);
    assert_int_equal(stats_now().cached_bytes, MIB(16));
    assert_true(hak_big_free(large));
}

static void the_closest_fit_is_passed_over(void **state)
{
    (void)state;
    set_knob(HAK_KNOB_BIGCACHE_BYTES, MIB(256));
    char *block[3];
    char *between[3];
    static const size_t sizes[] = {MIB(24), MIB(6), MIB(12)};
    for (unsigned i = 0; i < 3; i++) {
        block[i] = big(sizes[i]);
        between[i] = big(MIB(2));
    }
    for (unsigned i = 0; i < 3; i++)
        assert_true(hak_big_free(block[i]));
    assert_ptr_equal(big(MIB(5)), block[1]);
    assert_ptr_equal(big(MIB(10)), block[2]);
    assert_true(hak_big_free(block[1]));
    assert_true(hak_big_free(block[2]));
    for (unsigned i = 0; i < 3; i++)
        assert_true(hak_big_free(between[i]));
}

static void the_cache_outgrows_its_budget(void **state)
{
    (void)state;
    set_knob(HAK_KNOB_BIGCACHE_BYTES, MIB(10));
    char *block[4];
    for (unsigned i = 0; i < 4; i++)
        block[i] = big(MIB(4));
    for (unsigned i = 0; i < 4; i++) {
        assert_true(hak_big_free(block[i]));
        assert_true(stats_now().cached_bytes <= MIB(10));
    }
    assert_true(stats_now().cached_bytes >= MIB(4));
    hak_big_stats before = stats_now();
    assert_true(hak_big_free(big(MIB(11))));
    assert_true(stats_now().unmapped > before.unmapped);
    assert_true(stats_now().cached_bytes <= MIB(10));
}

static void the_cache_holds_more_mappings_than_it_has_room_for(void **state)
{
    (void)state;
    enum { mappings = 140 };
    static char *block[mappings];
    set_knob(HAK_KNOB_BIGCACHE_BYTES, MIB(1024));
    for (unsigned i = 0; i < mappings; i++)
        block[i] = big(KIB(128));
    /* Every other one: no neighbours to merge with. */
    for (unsigned i = 0; i < mappings; i += 2)
        assert_true(hak_big_free(block[i]));
    for (unsigned i = 1; i < mappings; i += 2)
        assert_true(hak_big_free(block[i]));
    size_t cached = stats_now().cached_bytes;
    assert_true(cached > 0 && cached <= mappings * KIB(128));
    assert_int_equal(hak_bigcache_purge(true), cached);
    assert_int_equal(stats_now().cached_bytes, 0);
}

static void kept_mappings_do_not_age(void **state)
{
    (void)state;
    set_knob(HAK_KNOB_PURGE_DELAY, 3600000);
    assert_true(hak_big_free(big(MIB(4))));
    sleep_ms(20);
    assert_int_equal(hak_bigcache_purge(false), 0);
    set_knob(HAK_KNOB_PURGE_DELAY, 1);
    assert_int_equal(hak_bigcache_purge(false), MIB(4));
    assert_int_equal(stats_now().cached_bytes, 0);
    assert_int_equal(hak_bigcache_purge(true), 0);
}

/* ---- Growing and shrinking */

static void a_resize_loses_bytes(void **state)
{
    (void)state;
    char *block = big(MIB(4));
    memset(block, 0x3C, MIB(4));
    char *grown = hak_big_resize(block, MIB(32));
    assert_non_null(grown);
    assert_int_equal(hak_big_usable(grown), MIB(32));
    if (grown != block)
        assert_int_equal(hak_big_usable(block), 0);
    assert_int_equal(grown[0], 0x3C);
    assert_int_equal(grown[MIB(4) - 1], 0x3C);
    assert_int_equal(grown[MIB(4)], 0);
    /* By little: it stays. By much: it shrinks where it stands. */
    assert_ptr_equal(hak_big_resize(grown, MIB(28)), grown);
    assert_int_equal(hak_big_usable(grown), MIB(32));
    assert_ptr_equal(hak_big_resize(grown, MIB(8)), grown);
    assert_int_equal(hak_big_usable(grown), MIB(8));
    assert_null(hak_big_resize(grown, SIZE_MAX - 16));
    /* What can't be had leaves the old block as it was. */
    assert_null(hak_big_resize(grown, (size_t)PTRDIFF_MAX / 2));
    assert_int_equal(hak_big_usable(grown), MIB(8));
    assert_int_equal(grown[MIB(4) - 1], 0x3C);
    assert_true(hak_big_free(grown));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(the_table_loses_entries_as_it_grows_and_shrinks, empty_cache),
        cmocka_unit_test_setup(what_is_no_big_block_is_freed, empty_cache),
        cmocka_unit_test_setup(an_alignment_is_missed, empty_cache),
        cmocka_unit_test_setup(a_refused_request_counts_as_served, empty_cache),
        cmocka_unit_test_setup(a_kept_mapping_is_mapped_anew, empty_cache),
        cmocka_unit_test_setup(what_was_cut_off_is_lost, empty_cache),
        cmocka_unit_test_setup(more_is_wasted_than_the_knob_allows, empty_cache),
        cmocka_unit_test_setup(a_small_kept_mapping_does_not_grow, empty_cache),
        cmocka_unit_test_setup(the_closest_fit_is_passed_over, empty_cache),
        cmocka_unit_test_setup(the_cache_outgrows_its_budget, empty_cache),
        cmocka_unit_test_setup(the_cache_holds_more_mappings_than_it_has_room_for, empty_cache),
        cmocka_unit_test_setup(kept_mappings_do_not_age, empty_cache),
        cmocka_unit_test_setup(a_resize_loses_bytes, empty_cache),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
