/* heap_test.h: what the tests of the heap's rooms share. They work on heaps of their own, which no
 * thread allocates from, so that nothing but the test moves their blocks. */
#ifndef HAK_TEST_HEAP_TEST_H
#define HAK_TEST_HEAP_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>
#include <hakmem/hakmem.h>

#include "heap/bin.h"
#include "heap/central.h"
#include "heap/exchange.h"
#include "heap/heap.h"
#include "heap/large.h"
#include "heap/remote.h"
#include "os/os.h"
#include "policy/policy.h"

#define KIB(n) ((size_t)(n) << 10)
#define MIB(n) ((size_t)(n) << 20)

__attribute__((unused)) static void set_knob(hak_knob knob, uint64_t value)
{
    hak_policy policy;
    assert_int_equal(hak_policy_read(&policy), 0);
    policy.value[knob] = value;
    assert_int_equal(hak_policy_publish(&policy), 0);
}

/* Every test begins with the default policy. */
__attribute__((unused)) static int default_policy(void **state)
{
    (void)state;
    hak_policy policy;
    /* Other tests' blocks. */
    hak_exchange_trim(true);
    return hak_policy_preset(&policy, "balanced") == 0 ? hak_policy_publish(&policy) : -1;
}

/* A heap that nobody used before: those given back are left alone. */
__attribute__((unused)) static hak_heap *new_heap(void)
{
    static hak_heap *held[64];
    static unsigned count;
    for (;;) {
        hak_heap *heap = hak_heap_borrow();
        assert_non_null(heap);
        assert_true(count < HAK_COUNT_OF(held));
        held[count++] = heap;
        if (hak_heap_served(heap) == 0 && heap->beats == 0 && heap->arrays == NULL)
            return heap;
    }
}

__attribute__((unused)) static void *pop(hak_heap *heap, unsigned class)
{
    hak_bin *bin = &heap->hot.bins[class];
    if (*bin->top == NULL)
        assert_true(hak_bin_refill(heap, class));
    return *bin->top--;
}

__attribute__((unused)) static void push(hak_heap *heap, unsigned class, void *block)
{
    hak_bin *bin = &heap->hot.bins[class];
    if (bin->top == bin->limit)
        hak_bin_free_full(heap, class, block);
    else
        *++bin->top = block;
}

__attribute__((unused)) static hak_slab *slab_of(const void *block, unsigned class)
{
    (void)class;
    return hak_slab_of(block);
}

__attribute__((unused)) static uint32_t tag_of(const void *block)
{
    return hak_chunk_map.tags[(uintptr_t)block >> HAK_CHUNK_SHIFT];
}

__attribute__((unused)) static void sleep_ms(long ms)
{
    struct timespec pause = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};
    nanosleep(&pause, NULL);
}

#endif
