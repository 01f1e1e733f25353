/* The project's one lock: exclusion, sleeping and waking, trying, and in debug builds the ranks. */
#include <pthread.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "base/lock.h"
#include "heap_test.h"

static hak_lock lock = HAK_LOCK_INIT(HAK_RANK_HEAPS);
static hak_lock inner = HAK_LOCK_INIT(HAK_RANK_META);
static unsigned long guarded;

static void *add_often(void *unused)
{
    (void)unused;
    for (int i = 0; i < 50000; i++) {
        hak_lock_take(&lock);
        guarded++;
        hak_lock_drop(&lock);
    }
    return NULL;
}

static void two_threads_hold_it_at_once(void **state)
{
    (void)state;
    pthread_t threads[4];
    guarded = 0;
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, add_often, NULL), 0);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(guarded, 4 * 50000);
    assert_int_equal(atomic_load(&lock.word), 0);
}

/* A holder that stays long enough for the other to fall asleep. */
static void a_sleeper_is_not_woken(void **state)
{
    (void)state;
    pthread_t thread;
    guarded = 0;
    hak_lock_take(&lock);
    assert_int_equal(pthread_create(&thread, NULL, add_often, NULL), 0);
    while (atomic_load(&lock.word) != 2)
        sleep_ms(1);
    assert_int_equal(guarded, 0);
    sleep_ms(5);
    hak_lock_drop(&lock);
    pthread_join(thread, NULL);
    assert_int_equal(guarded, 50000);
}

#if defined(HAK_DEBUG)
/* How a child ends that takes two locks in this order. */
static int child_taking(hak_lock *first, hak_lock *second)
{
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        struct rlimit none = {0};
        setrlimit(RLIMIT_CORE, &none);
        hak_lock_take(first);
        hak_lock_take(second);
        hak_lock_drop(second);
        hak_lock_drop(first);
        _exit(0);
    }
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    return status;
}

static void ranks_may_be_taken_in_any_order(void **state)
{
    (void)state;
    assert_int_equal(child_taking(&lock, &inner), 0);
    assert_int_not_equal(child_taking(&inner, &lock), 0);
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_threads_hold_it_at_once),
        cmocka_unit_test(a_sleeper_is_not_woken),
#if defined(HAK_DEBUG)
        cmocka_unit_test(ranks_may_be_taken_in_any_order),
#endif
    };
    (void)inner;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
