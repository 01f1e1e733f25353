/* The exchange: what it takes in, hands on, and gives back. */
#include "heap_test.h"

enum { class = 16, many = 400 }; /* 256 bytes */
static void *blocks[many];

static hak_heap *filled(void)
{
    hak_heap *owner = new_heap();
    for (unsigned i = 0; i < many; i++)
        blocks[i] = pop(owner, class);
    return owner;
}

static void more_is_taken_in_than_the_knob_allows(void **state)
{
    (void)state;
    set_knob(HAK_KNOB_EXCHANGE_BYTES, 100 * 256);
    filled();
    assert_int_equal(hak_exchange_put(class, blocks, 60), 60);
    assert_int_equal(hak_exchange_bytes(), 60 * 256);
    /* The last of them: those before are still the caller's. */
    assert_int_equal(hak_exchange_put(class, blocks + 60, 60), 40);
    assert_int_equal(hak_exchange_put(class, blocks + 120, 60), 0);
    void *taken[100];
    assert_int_equal(hak_exchange_take(class, taken + 100, 100), 100);
    for (unsigned i = 0; i < 100; i++)
        assert_ptr_equal(taken[i], i < 60 ? blocks[i] : blocks[i + 20]);
    assert_int_equal(hak_exchange_bytes(), 0);
    assert_int_equal(hak_exchange_take(class, taken + 100, 100), 0);
}

static void a_refill_takes_fresh_memory_before_what_lies_there(void **state)
{
    (void)state;
    hak_heap *owner = filled();
    hak_heap *other = new_heap();
    assert_int_equal(hak_exchange_put(class, blocks, 8), 8);
    for (unsigned i = 0; i < 8; i++)
        assert_int_equal(tag_of(pop(other, class)) >> HAK_TAG_OWNER_SHIFT, owner->owner);
    assert_int_equal(tag_of(pop(other, class)) >> HAK_TAG_OWNER_SHIFT, other->owner);
}

static void a_trim_does_not_wait(void **state)
{
    (void)state;
    set_knob(HAK_KNOB_PURGE_DELAY, 3600000);
    filled();
    assert_int_equal(hak_exchange_put(class, blocks, 100), 100);
    hak_exchange_trim(true);
    assert_int_equal(hak_exchange_put(class, blocks, 100), 100);
    for (unsigned i = 0; i < 4; i++)
        hak_exchange_trim(false);
    assert_int_equal(hak_exchange_bytes(), 100 * 256);
}

/* Half of it at a time, and none of what was in use since. */
static void what_nobody_takes_stays(void **state)
{
    (void)state;
    set_knob(HAK_KNOB_PURGE_DELAY, 0);
    hak_heap *owner = filled();
    void *taken[60];
    assert_int_equal(hak_exchange_put(class, blocks, 100), 100);
    hak_exchange_trim(false); /* begins to look */
    hak_exchange_trim(false);
    assert_int_equal(hak_exchange_bytes(), 50 * 256);
    assert_int_equal(hak_exchange_take(class, taken + 50, 50), 50);
    assert_int_equal(hak_exchange_put(class, taken, 50), 50);
    hak_exchange_trim(false);
    assert_int_equal(hak_exchange_bytes(), 50 * 256);
    uint64_t posted = hak_exchange_posted();
    hak_exchange_trim(true);
    assert_int_equal(hak_exchange_bytes(), 0);
    assert_int_equal(hak_exchange_posted(), posted + 50);
    hak_remote_drain(owner);
    assert_int_equal(owner->count.remote_drained, 100);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(more_is_taken_in_than_the_knob_allows, default_policy),
        cmocka_unit_test_setup(a_refill_takes_fresh_memory_before_what_lies_there, default_policy),
        cmocka_unit_test_setup(a_trim_does_not_wait, default_policy),
        cmocka_unit_test_setup(what_nobody_takes_stays, default_policy),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
