/* The policy in force: presets, settings by name, publication, reading under publication, mallopt.
 */
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>

#include <cmocka.h>

#include "policy/options.h"

/* Before anything else in this program has run, main() copies the values here. */
static uint64_t at_start[HAK_KNOB_COUNT];
static hak_policy policy_at_start;

/* The tests turn knobs of the allocator that serves them: balanced again after each. */
static int publish_balanced(void **state)
{
    (void)state;
    hak_policy policy;
    if (hak_policy_preset(&policy, "balanced") != 0)
        return -1;
    return hak_policy_publish(&policy);
}

static void there_is_no_policy_before_the_constructor(void **state)
{
    (void)state;
    /* Where the library's constructor has run, the environment may have had its say. */
    if (policy_at_start.generation != 0)
        skip();
    for (unsigned i = 0; i < HAK_KNOB_COUNT; i++) {
        assert_true(at_start[i] == hak_knob_table[i].fallback);
        assert_true(policy_at_start.value[i] == hak_knob_table[i].fallback);
    }
}

static void a_default_is_out_of_its_own_bounds(void **state)
{
    (void)state;
    for (unsigned i = 0; i < HAK_KNOB_COUNT; i++) {
        const hak_knob_info *info = &hak_knob_table[i];
        assert_true(info->minimum < info->maximum);
        const uint64_t values[] = {info->fallback, info->minimal, info->fast};
        for (size_t j = 0; j < 3; j++)
            assert_true(values[j] >= info->minimum && values[j] <= info->maximum);
    }
}

static void a_variable_is_not_the_name_in_capitals(void **state)
{
    (void)state;
    for (unsigned i = 0; i < HAK_KNOB_COUNT; i++) {
        const hak_knob_info *info = &hak_knob_table[i];
        assert_memory_equal(info->variable, "HAKMEM_", 7);
        assert_true(hak_same_word(info->variable + 7, strlen(info->variable + 7), info->name,
                                  strlen(info->name)));
        assert_null(strpbrk(info->variable, "abcdefghijklmnopqrstuvwxyz"));
    }
}

static void a_preset_is_another_one(void **state)
{
    (void)state;
    hak_policy policy;
    static const char *const as_default[] = {"balanced", "learning", "research"};

    for (size_t p = 0; p < 3; p++) {
        assert_int_equal(hak_policy_preset(&policy, as_default[p]), 0);
        for (unsigned i = 0; i < HAK_KNOB_COUNT; i++)
            assert_true(policy.value[i] == hak_knob_table[i].fallback);
    }
    assert_int_equal(hak_policy_preset(&policy, "minimal"), 0);
    assert_int_equal(policy.value[HAK_KNOB_BIGCACHE_BYTES], 0);
    assert_int_equal(policy.value[HAK_KNOB_BIN_BYTES], 16 << 10);
    assert_int_equal(hak_policy_preset(&policy, "fast"), 0);
    assert_int_equal(policy.value[HAK_KNOB_BIGCACHE_BYTES], 64 << 20);
    assert_int_equal(policy.count, HAK_KNOB_COUNT);
    assert_int_equal(hak_policy_preset(&policy, "fastest"), ENOENT);
    assert_int_equal(hak_policy_preset(&policy, NULL), ENOENT);
}

static void a_name_leads_to_another_knob(void **state)
{
    (void)state;
    for (int i = 0; i < HAK_KNOB_COUNT; i++)
        assert_int_equal(hak_policy_knob(hak_policy_name(i)), i);
    assert_null(hak_policy_name(-1));
    assert_null(hak_policy_name(HAK_KNOB_COUNT));
    assert_int_equal(hak_policy_knob("bin_byte"), -1);
    assert_int_equal(hak_policy_knob("bin_bytes "), -1);
    assert_int_equal(hak_policy_knob(""), -1);
    assert_int_equal(hak_policy_knob(NULL), -1);
}

static void a_wrong_setting_changes_the_policy(void **state)
{
    (void)state;
    hak_policy policy;
    hak_policy before;

    assert_int_equal(hak_policy_preset(&policy, "balanced"), 0);
    before = policy;
    assert_int_equal(hak_policy_set(&policy, "bin_byte", "64k"), ENOENT);
    assert_int_equal(hak_policy_set(&policy, NULL, "64k"), ENOENT);
    assert_int_equal(hak_policy_set(&policy, "bin_bytes", "64q"), EINVAL);
    assert_int_equal(hak_policy_set(&policy, "bin_bytes", ""), EINVAL);
    assert_int_equal(hak_policy_set(&policy, "bin_bytes", NULL), EINVAL);
    assert_int_equal(hak_policy_set(NULL, "bin_bytes", "64k"), EINVAL);
    assert_int_equal(hak_policy_set(&policy, "bin_bytes", "1023"), ERANGE);
    assert_int_equal(hak_policy_set(&policy, "bin_bytes", "4194305"), ERANGE);
    assert_int_equal(hak_policy_set(&policy, "bin_bytes", "99999999999999999999"), ERANGE);
    assert_memory_equal(&policy, &before, sizeof(policy));
    assert_int_equal(hak_policy_set(&policy, "bin_bytes", "128 KiB"), 0);
    assert_int_equal(policy.value[HAK_KNOB_BIN_BYTES], 128 << 10);
    assert_int_equal(hak_policy_set(&policy, "refill_percent", "25%"), 0);
    assert_int_equal(policy.value[HAK_KNOB_REFILL_PERCENT], 25);
}

static void a_published_policy_is_not_the_one_in_force(void **state)
{
    (void)state;
    hak_policy policy;
    hak_policy read;

    assert_int_equal(hak_policy_read(&policy), 0);
    assert_int_equal(hak_policy_set(&policy, "bin_bytes", "128k"), 0);
    assert_int_equal(hak_policy_set(&policy, "trace_signal", "on"), 0);
    assert_int_equal(hak_policy_publish(&policy), 0);
    assert_int_equal(hak_policy_read(&read), 0);
    assert_memory_equal(read.value, policy.value, sizeof(read.value));
    assert_int_equal(read.generation, policy.generation + 1);
    assert_int_equal(read.version, policy.version);
    assert_int_equal(read.count, HAK_KNOB_COUNT);
    for (unsigned i = 0; i < HAK_KNOB_COUNT; i++)
        assert_true(hak_knob_get((hak_knob)i) == policy.value[i]);
    assert_int_equal(atomic_load(&hak_policy_generation), read.generation);

    /* Twice more: both copies have been in use. */
    assert_int_equal(hak_policy_set(&policy, "bin_bytes", "256k"), 0);
    assert_int_equal(hak_policy_publish(&policy), 0);
    assert_int_equal(hak_policy_set(&policy, "bin_bytes", "512k"), 0);
    assert_int_equal(hak_policy_publish(&policy), 0);
    assert_int_equal(hak_policy_read(&read), 0);
    assert_int_equal(read.value[HAK_KNOB_BIN_BYTES], 512 << 10);
}

static void a_policy_that_is_wrong_is_published(void **state)
{
    (void)state;
    hak_policy before;
    hak_policy policy;
    hak_policy after;

    assert_int_equal(hak_policy_read(&before), 0);
    assert_int_equal(hak_policy_publish(NULL), EINVAL);
    assert_int_equal(hak_policy_read(NULL), EINVAL);
    policy = before;
    policy.version++;
    assert_int_equal(hak_policy_publish(&policy), EINVAL);
    policy = before;
    policy.count--;
    assert_int_equal(hak_policy_publish(&policy), EINVAL);
    memset(&policy, 0, sizeof(policy));
    assert_int_equal(hak_policy_publish(&policy), EINVAL);
    for (unsigned i = 0; i < HAK_KNOB_COUNT; i++) {
        policy = before;
        policy.value[i] = hak_knob_table[i].maximum + 1;
        assert_int_equal(hak_policy_publish(&policy), ERANGE);
        if (hak_knob_table[i].minimum == 0)
            continue;
        policy.value[i] = hak_knob_table[i].minimum - 1;
        assert_int_equal(hak_policy_publish(&policy), ERANGE);
    }
    assert_int_equal(hak_policy_read(&after), 0);
    assert_memory_equal(&before, &after, sizeof(before));
}

/* ---- Reading while others publish. The values of a test policy all follow from one number, so
 * that a mixture of two policies shows. */

static void policy_of(uint64_t seed, uint64_t *value)
{
    for (unsigned i = 0; i < HAK_KNOB_COUNT; i++) {
        const hak_knob_info *info = &hak_knob_table[i];
        value[i] = info->minimum + seed % (info->maximum - info->minimum + 1);
    }
}

static bool is_whole(const hak_policy *policy)
{
    uint64_t expected[HAK_KNOB_COUNT];
    const unsigned widest = HAK_KNOB_BIGCACHE_BYTES;

    policy_of(policy->value[widest] - hak_knob_table[widest].minimum, expected);
    return memcmp(expected, policy->value, sizeof(expected)) == 0;
}

static void publish_seed(uint64_t seed)
{
    hak_policy policy;

    hak_policy_preset(&policy, "balanced");
    policy_of(seed, policy.value);
    hak_policy_publish(&policy);
}

enum { PUBLICATIONS = 20000, WRITERS = 2, READERS = 2 };
static _Atomic int writers_left;

static void *publish_many(void *argument)
{
    uint64_t seed = (uint64_t)(uintptr_t)argument;

    for (unsigned i = 0; i < PUBLICATIONS; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        publish_seed((seed >> 20) % (1u << 30));
    }
    atomic_fetch_sub(&writers_left, 1);
    return NULL;
}

static void *read_many(void *argument)
{
    _Bool *fault = argument;
    hak_policy policy;
    uint64_t generation = 0;

    while (atomic_load(&writers_left) != 0) {
        hak_policy_read(&policy);
        if (!is_whole(&policy) || policy.generation < generation)
            *fault = true;
        generation = policy.generation;
    }
    return NULL;
}

static void a_reader_gets_parts_of_two_policies(void **state)
{
    (void)state;
    pthread_t writers[WRITERS];
    pthread_t readers[READERS];
    _Bool faults[READERS] = {false};
    hak_policy policy;

    publish_seed(1);
    hak_policy_read(&policy);
    assert_true(is_whole(&policy));
    uint64_t generation = policy.generation;
    atomic_store(&writers_left, WRITERS);
    for (size_t i = 0; i < READERS; i++)
        assert_int_equal(pthread_create(&readers[i], NULL, read_many, &faults[i]), 0);
    for (size_t i = 0; i < WRITERS; i++)
        assert_int_equal(pthread_create(&writers[i], NULL, publish_many, (void *)(i + 1)), 0);
    for (size_t i = 0; i < WRITERS; i++)
        pthread_join(writers[i], NULL);
    for (size_t i = 0; i < READERS; i++)
        pthread_join(readers[i], NULL);
    for (size_t i = 0; i < READERS; i++)
        assert_false(faults[i]);
    hak_policy_read(&policy);
    assert_int_equal(policy.generation, generation + WRITERS * PUBLICATIONS);
}

static _Atomic unsigned reads_by_handler;
static _Atomic bool fault_in_handler;

static void read_in_handler(int number)
{
    (void)number;
    hak_policy policy;
    hak_policy_read(&policy);
    if (!is_whole(&policy))
        atomic_store(&fault_in_handler, true);
    atomic_fetch_add(&reads_by_handler, 1);
}

static void a_reader_waits_for_the_publisher_that_it_interrupted(void **state)
{
    (void)state;
    struct sigaction action = {.sa_handler = read_in_handler, .sa_flags = SA_RESTART};
    struct sigaction before;
    const struct itimerval every = {{0, 100}, {0, 100}};
    const struct itimerval never = {{0, 0}, {0, 0}};

    publish_seed(1);
    sigaction(SIGALRM, &action, &before);
    setitimer(ITIMER_REAL, &every, NULL);
    for (uint64_t seed = 0; atomic_load(&reads_by_handler) < 1000; seed++)
        publish_seed(seed);
    setitimer(ITIMER_REAL, &never, NULL);
    sigaction(SIGALRM, &before, NULL);
    assert_false(atomic_load(&fault_in_handler));

    /* And for one that sleeps. */
    hak_policy policy;
    hak_lock_take(&hak_policy_lock);
    assert_int_equal(hak_policy_read(&policy), 0);
    hak_lock_drop(&hak_policy_lock);
}

/* ---- mallopt. By number, as programs that were compiled long ago call it. */

enum {
    TRIM_THRESHOLD = -1,
    TOP_PAD = -2,
    MMAP_THRESHOLD = -3,
    MMAP_MAX = -4,
    CHECK_ACTION = -5,
    PERTURB = -6,
    ARENA_TEST = -7,
    ARENA_MAX = -8,
    MXFAST = 1
};

static void a_threshold_by_mallopt_has_no_effect(void **state)
{
    (void)state;
    assert_int_equal(hak_policy_mallopt(TRIM_THRESHOLD, 128 << 10), 1);
    assert_int_equal(hak_knob_get(HAK_KNOB_RETAIN_BYTES), 128 << 10);
    assert_int_equal(hak_policy_mallopt(TRIM_THRESHOLD, -1), 1);
    assert_true(hak_knob_get(HAK_KNOB_RETAIN_BYTES) ==
                hak_knob_table[HAK_KNOB_RETAIN_BYTES].maximum);
    assert_int_equal(hak_policy_mallopt(MMAP_THRESHOLD, 128 << 10), 1);
    assert_int_equal(hak_knob_get(HAK_KNOB_BIG_THRESHOLD), 128 << 10);
    /* Within glibc's bounds, beyond ours. */
    assert_int_equal(hak_policy_mallopt(MMAP_THRESHOLD, 32 << 20), 1);
    assert_int_equal(hak_knob_get(HAK_KNOB_BIG_THRESHOLD), 2 << 20);
    assert_int_equal(hak_policy_mallopt(MMAP_THRESHOLD, 0), 1);
    assert_int_equal(hak_knob_get(HAK_KNOB_BIG_THRESHOLD), 64 << 10);
    /* Nothing else was touched. */
    assert_int_equal(hak_knob_get(HAK_KNOB_BIN_BYTES), 64 << 10);
}

static void mallopt_takes_what_mallopt_refuses(void **state)
{
    (void)state;
    uint64_t generation = atomic_load(&hak_policy_generation);
    assert_int_equal(hak_policy_mallopt(MMAP_THRESHOLD, (32 << 20) + 1), 0);
    assert_int_equal(hak_policy_mallopt(MMAP_THRESHOLD, -1), 0);
    assert_int_equal(hak_policy_mallopt(MXFAST, 161), 0);
    assert_int_equal(hak_policy_mallopt(MXFAST, -1), 0);
    assert_int_equal(hak_policy_mallopt(ARENA_MAX, -1), 0);
    assert_int_equal(hak_policy_mallopt(0, 0), 0); /* not the options that mallopt has not */
    assert_int_equal(hak_policy_mallopt(-9, 1), 0);
    assert_int_equal(hak_policy_mallopt(5, 1), 0);
    assert_int_equal(hak_policy_mallopt(INT_MIN, 1), 0);
    assert_int_equal(atomic_load(&hak_policy_generation), generation);
}

static void mallopt_refuses_or_obeys_what_is_ignored(void **state)
{
    (void)state;
    static const int ignored[] = {
        TOP_PAD, MMAP_MAX, CHECK_ACTION, PERTURB, ARENA_TEST, ARENA_MAX, MXFAST, 2, 3, 4};
    uint64_t generation = atomic_load(&hak_policy_generation);
    for (size_t i = 0; i < sizeof(ignored) / sizeof(ignored[0]); i++)
        assert_int_equal(hak_policy_mallopt(ignored[i], 1), 1);
    assert_int_equal(atomic_load(&hak_policy_generation), generation);
}

static void mallopt_overrides_what_the_user_set(void **state)
{
    (void)state;
    uint8_t *source = &hak_settings_in_force.source[HAK_KNOB_RETAIN_BYTES];
    uint8_t before = *source;
    uint64_t value = hak_knob_get(HAK_KNOB_RETAIN_BYTES);

    *source = HAK_SOURCE_ENVIRONMENT;
    assert_int_equal(hak_policy_mallopt(TRIM_THRESHOLD, 4096), 1);
    uint64_t by_environment = hak_knob_get(HAK_KNOB_RETAIN_BYTES);
    *source = HAK_SOURCE_GLIBC;
    assert_int_equal(hak_policy_mallopt(TRIM_THRESHOLD, 4096), 1);
    uint64_t by_glibc = hak_knob_get(HAK_KNOB_RETAIN_BYTES);
    *source = before;
    assert_int_equal(by_environment, value);
    assert_int_equal(by_glibc, 4096);
}

int main(void)
{
    for (unsigned i = 0; i < HAK_KNOB_COUNT; i++)
        at_start[i] = hak_knob_get((hak_knob)i);
    hak_policy_read(&policy_at_start);
    hak_policy_init();

#define TEST(name) cmocka_unit_test_setup_teardown(name, publish_balanced, publish_balanced)
    const struct CMUnitTest tests[] = {
        TEST(there_is_no_policy_before_the_constructor),
        TEST(a_default_is_out_of_its_own_bounds),
        TEST(a_variable_is_not_the_name_in_capitals),
        TEST(a_preset_is_another_one),
        TEST(a_name_leads_to_another_knob),
        TEST(a_wrong_setting_changes_the_policy),
        TEST(a_published_policy_is_not_the_one_in_force),
        TEST(a_policy_that_is_wrong_is_published),
        TEST(a_reader_gets_parts_of_two_policies),
        TEST(a_reader_waits_for_the_publisher_that_it_interrupted),
        TEST(a_threshold_by_mallopt_has_no_effect),
        TEST(mallopt_takes_what_mallopt_refuses),
        TEST(mallopt_refuses_or_obeys_what_is_ignored),
        TEST(mallopt_overrides_what_the_user_set),
    };
    return cmocka_run_group_tests_name("policy", tests, NULL, NULL);
}
