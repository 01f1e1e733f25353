/* Size classes: which serves a size, how its slabs are cut, and the arithmetic that finds a block. */
#include "heap_test.h"

static void a_size_gets_a_class_that_is_not_the_smallest_that_fits(void **state)
{
    (void)state;
    for (size_t size = 1; size <= HAK_MID_MAX; size++) {
        unsigned class = hak_class_of(size);
        assert_in_range(class, 1, HAK_MID_LAST);
        assert_true(hak_classes[class].bytes >= size);
        if (class > 1)
            assert_true(hak_classes[class - 1].bytes < size);
    }
}

static void more_than_an_eighth_of_a_block_is_waste(void **state)
{
    (void)state;
    for (size_t size = HAK_TINY_MAX + 1; size <= HAK_MID_MAX; size++) {
        size_t bytes = hak_classes[hak_class_of(size)].bytes;
        assert_true((bytes - size) * 8 <= bytes);
    }
}

static void blocks_are_not_aligned_to_16(void **state)
{
    (void)state;
    for (unsigned c = 1; c <= HAK_MID_LAST; c++)
        assert_int_equal(hak_classes[c].bytes % 16, 0);
}

static void a_slab_is_cut_into_more_than_it_holds(void **state)
{
    (void)state;
    for (unsigned c = 1; c <= HAK_MID_LAST; c++) {
        const hak_class_info *info = &hak_classes[c];
        size_t slab_bytes = (size_t)info->chunks << HAK_CHUNK_SHIFT;
        assert_int_equal(info->chunks, 1u << info->order);
        assert_true((size_t)info->blocks * info->bytes <= slab_bytes);
        assert_true(((size_t)info->blocks + 1) * info->bytes > slab_bytes);
        assert_true(info->blocks <= HAK_BITMAP_WORDS * 64);
    }
}

/* Every multiple of 16 in every block, and with it the start and the last possible address. */
static void an_offset_leads_to_a_neighbour(void **state)
{
    (void)state;
    for (unsigned c = 1; c <= HAK_MID_LAST; c++) {
        const hak_class_info *info = &hak_classes[c];
        for (unsigned block = 0; block < info->blocks; block++) {
            size_t start = (size_t)block * info->bytes;
            for (size_t in = 0; in < info->bytes; in += 16)
                if (hak_block_index(info, start + in) != block)
                    fail_msg("class %u: offset %zu is not in block %u", c, start + in, block);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_size_gets_a_class_that_is_not_the_smallest_that_fits),
        cmocka_unit_test(more_than_an_eighth_of_a_block_is_waste),
        cmocka_unit_test(blocks_are_not_aligned_to_16),
        cmocka_unit_test(a_slab_is_cut_into_more_than_it_holds),
        cmocka_unit_test(an_offset_leads_to_a_neighbour),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
