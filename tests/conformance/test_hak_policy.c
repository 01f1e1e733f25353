/* hak_policy_*: reading, setting by name, presets, publishing. */
#include <hakmem/hakmem.h>

#include "blocks.h"

static bool same_values(const hak_policy *a, const hak_policy *b)
{
    return a->count == b->count && memcmp(a->value, b->value, a->count * sizeof(a->value[0])) == 0;
}

static void check_names(const hak_policy *policy)
{
    CHECK(policy->count > 0 && policy->count <= HAK_POLICY_MAX_KNOBS);
    for (int i = 0; i < (int)policy->count; i++) {
        const char *name = hak_policy_name(i);
        REQUIRE(name != NULL);
        CHECK_EQ(hak_policy_knob(name), i);
    }
    CHECK(hak_policy_name(-1) == NULL);
    CHECK(hak_policy_name((int)policy->count) == NULL);
    CHECK(hak_policy_name(1 << 30) == NULL);
    CHECK_EQ(hak_policy_knob("no_such_knob"), -1);
    CHECK_EQ(hak_policy_knob(""), -1);
    CHECK(hak_policy_knob("bin_bytes") >= 0);
}

static void check_set(const hak_policy *in_force)
{
    hak_policy policy = *in_force;
    int bin_bytes = hak_policy_knob("bin_bytes");
    int refill = hak_policy_knob("refill_percent");
    int delay = hak_policy_knob("purge_delay");
    REQUIRE(bin_bytes >= 0 && refill >= 0 && delay >= 0);
    CHECK_EQ(hak_policy_set(&policy, "bin_bytes", "32768"), 0);
    CHECK_EQ(policy.value[bin_bytes], 32768);
    CHECK_EQ(hak_policy_set(&policy, "bin_bytes", "128k"), 0);
    CHECK_EQ(policy.value[bin_bytes], 128 << 10);
    CHECK_EQ(hak_policy_set(&policy, "bin_bytes", "2M"), 0);
    CHECK_EQ(policy.value[bin_bytes], 2 << 20);
    CHECK_EQ(hak_policy_set(&policy, "refill_percent", "25%"), 0);
    CHECK_EQ(policy.value[refill], 25);

    hak_policy before = policy;
    static const struct {
        const char *name, *text;
        int error;
    } wrong[] = {
        {"no_such_knob", "1", ENOENT},   {"bin_bytes", "", EINVAL},
        {"bin_bytes", "much", EINVAL},   {"bin_bytes", "12 34", EINVAL},
        {"bin_bytes", "-1", EINVAL},     {"bin_bytes", "1", ERANGE},
        {"bin_bytes", "1T", ERANGE},     {"bin_bytes", "99999999999999999999999", ERANGE},
        {"refill_percent", "0", ERANGE}, {"refill_percent", "101%", ERANGE},
    };
    for (size_t i = 0; i < TEST_COUNT_OF(wrong); i++) {
        CHECK_EQ(hak_policy_set(&policy, wrong[i].name, wrong[i].text), wrong[i].error);
        CHECK_EQ(memcmp(&policy, &before, sizeof(policy)), 0);
    }
}

static void check_presets(void)
{
    static const char *const presets[] = {"minimal", "fast", "balanced", "learning", "research"};
    hak_policy policy;
    for (size_t i = 0; i < TEST_COUNT_OF(presets); i++) {
        memset(&policy, 0, sizeof(policy));
        CHECK_EQ(hak_policy_preset(&policy, presets[i]), 0);
        CHECK(policy.count > 0);
        hak_policy read;
        CHECK_EQ(hak_policy_publish(&policy), 0);
        CHECK_EQ(hak_policy_read(&read), 0);
        CHECK(same_values(&policy, &read));
    }
    CHECK_EQ(hak_policy_preset(&policy, "no_such_preset"), ENOENT);
    hak_policy minimal, balanced;
    CHECK_EQ(hak_policy_preset(&minimal, "minimal"), 0);
    CHECK_EQ(hak_policy_preset(&balanced, "balanced"), 0);
    CHECK(!same_values(&minimal, &balanced));
}

static void check_publish(const hak_policy *in_force)
{
    hak_policy policy = *in_force, read;
    CHECK_EQ(hak_policy_set(&policy, "bin_bytes", "16k"), 0);
    CHECK_EQ(hak_policy_publish(&policy), 0);
    CHECK_EQ(hak_policy_read(&read), 0);
    CHECK(same_values(&policy, &read));
    CHECK(read.generation > in_force->generation);

    /* A wrong one changes nothing. */
    hak_policy wrong = policy;
    wrong.version++;
    CHECK_EQ(hak_policy_publish(&wrong), EINVAL);
    CHECK_EQ(hak_policy_publish(NULL), EINVAL);
    wrong = policy;
    wrong.value[hak_policy_knob("bin_bytes")] = 1;
    CHECK_EQ(hak_policy_publish(&wrong), ERANGE);
    hak_policy after;
    CHECK_EQ(hak_policy_read(&after), 0);
    CHECK_EQ(memcmp(&after, &read, sizeof(after)), 0);

    /* What is read may be published again. */
    CHECK_EQ(hak_policy_publish(&after), 0);
}

/* Policies change under a program that allocates, and no block suffers. */
static void check_blocks_live_through_changes(void)
{
    static const char *const presets[] = {"minimal", "fast", "balanced"};
    enum { count = 600 };
    static void *block[count];
    static size_t size[count];
    for (size_t i = 0; i < 60000; i++) {
        size_t slot = test_mix(i) % count;
        if (block[slot] != NULL) {
            CHECK_EQ(test_intact(block[slot], size[slot], slot), size[slot]);
            free(block[slot]);
        }
        uint64_t choice = test_mix(i * 3 + 1);
        size[slot] = choice % 16 == 0 ? (choice >> 8) % 200000 + 1 : (choice >> 8) % 3000 + 1;
        block[slot] = malloc(size[slot]);
        REQUIRE(block[slot] != NULL);
        test_fill(block[slot], size[slot], slot);
        if (i % 500 == 0) {
            hak_policy policy;
            CHECK_EQ(hak_policy_preset(&policy, presets[i / 500 % 3]), 0);
            CHECK_EQ(hak_policy_publish(&policy), 0);
        }
    }
    for (size_t i = 0; i < count; i++) {
        free(block[i]);
    }
}

int main(void)
{
    test_start(60);
    hak_policy policy;
    CHECK_EQ(hak_policy_read(NULL), EINVAL);
    CHECK_EQ(hak_policy_read(&policy), 0);
    check_names(&policy);
    check_set(&policy);
    check_publish(&policy);
    check_presets();
    check_blocks_live_through_changes();
    CHECK_EQ(hak_policy_publish(&policy), 0);
    return test_result();
}
