/* The table of knobs, the policy in force and its publication, and the public hak_policy_*. */
#include <errno.h>
#include <string.h>

#include "policy/options.h"

_Static_assert(HAK_KNOB_COUNT <= HAK_POLICY_MAX_KNOBS, "hak_policy is too small for the knobs");

const hak_knob_info hak_knob_table[HAK_KNOB_COUNT] = {
#define X(ID, name, unit, fallback, minimum, maximum, minimal, fast, text)                         \
    [HAK_KNOB_##ID] = {#name, "HAKMEM_" #ID, HAK_UNIT_##unit, fallback, minimum, maximum, minimal, \
                       fast,  text},
    HAK_KNOBS(X)
#undef X
};

/* The preset balanced stands here before any code has run: the first malloc comes before the
 * constructor. */
#define X(ID, name, unit, fallback, ...) [HAK_KNOB_##ID] = fallback,
_Atomic uint64_t hak_policy_values[HAK_KNOB_COUNT] = {HAK_KNOBS(X)};

/* Two whole copies, taken by turns: the policy of generation g stands in copies[g % 2], and the
 * next one is written into the other. So a reader never waits for a writer, not even one that it
 * has interrupted (a signal handler that allocates) or that sleeps in the middle of its work; it
 * takes again only where a policy was published meanwhile. */
static _Atomic uint64_t copies[2][HAK_KNOB_COUNT] = {{HAK_KNOBS(X)}};
#undef X

_Atomic uint64_t hak_policy_generation;
hak_lock hak_policy_lock = HAK_LOCK_INIT(HAK_RANK_POLICY);

static const char *const preset_names[HAK_PRESET_COUNT] = {"minimal", "fast", "balanced",
                                                           "learning", "research"};

uint64_t hak_preset_value(hak_preset preset, hak_knob knob)
{
    const hak_knob_info *info = &hak_knob_table[knob];

    switch (preset) {
    case HAK_PRESET_MINIMAL:
        return info->minimal;
    case HAK_PRESET_FAST:
        return info->fast;
    default:
        return info->fallback;
    }
}

const char *hak_preset_name(hak_preset preset)
{
    return preset_names[preset];
}

hak_preset hak_preset_find(const char *name, size_t length)
{
    for (unsigned i = 0; i < HAK_PRESET_COUNT; i++) {
        if (hak_same_word(name, length, preset_names[i], strlen(preset_names[i])))
            return (hak_preset)i;
    }
    return HAK_PRESET_COUNT;
}

static bool within_bounds(hak_knob knob, uint64_t value)
{
    return value >= hak_knob_table[knob].minimum && value <= hak_knob_table[knob].maximum;
}

hak_parse hak_knob_parse(hak_knob knob, const char *text, size_t length, uint64_t *value)
{
    uint64_t parsed = 0;
    hak_parse result = hak_parse_value(text, length, hak_knob_table[knob].unit, &parsed);

    if (result != HAK_PARSE_OK)
        return result;
    if (!within_bounds(knob, parsed))
        return HAK_PARSE_OUT_OF_BOUNDS;
    *value = parsed;
    return HAK_PARSE_OK;
}

/* Tells one table of knobs from another: FNV-1a over the names in their order. A value kept by hand
 * would be forgotten at the first new knob. */
static uint32_t table_version(void)
{
    static _Atomic uint32_t known;
    /* Relaxed: whoever finds it unset computes the same value. */
    uint32_t version = atomic_load_explicit(&known, memory_order_relaxed);

    if (version != 0)
        return version;
    version = 2166136261u;
    for (unsigned i = 0; i < HAK_KNOB_COUNT; i++) {
        /* The NUL too: it parts the names. */
        const char *c = hak_knob_table[i].name;
        do
            version = (version ^ (unsigned char)*c) * 16777619u;
        while (*c++ != '\0');
    }
    atomic_store_explicit(&known, version, memory_order_relaxed);
    return version;
}

static void blank_policy(hak_policy *policy)
{
    *policy = (hak_policy){.version = table_version(), .count = HAK_KNOB_COUNT};
}

void hak_policy_publish_locked(const uint64_t value[HAK_KNOB_COUNT])
{
    /* Relaxed: only holders of the lock write it. */
    uint64_t next = atomic_load_explicit(&hak_policy_generation, memory_order_relaxed) + 1;
    _Atomic uint64_t *copy = copies[next % 2];

    for (unsigned i = 0; i < HAK_KNOB_COUNT; i++) {
        /* Pairs with the acquire loads of the same words in hak_policy_read: a slow reader of
         * generation next - 2 that meets one of these words also sees generation next - 1, and
         * so takes again. */
        atomic_store_explicit(&copy[i], value[i], memory_order_release);
        atomic_store_explicit(&hak_policy_values[i], value[i], memory_order_relaxed);
    }
    /* Pairs with the acquire load of the generation in hak_policy_read and in the heaps: who sees
     * it sees all of this policy. */
    atomic_store_explicit(&hak_policy_generation, next, memory_order_release);
}

int hak_policy_read(hak_policy *out)
{
    uint64_t before;
    uint64_t after;

    if (out == NULL)
        return EINVAL;
    blank_policy(out);
    do {
        /* Pairs with the release store of the generation in hak_policy_publish_locked. */
        before = atomic_load_explicit(&hak_policy_generation, memory_order_acquire);
        /* Acquire: pairs with the release stores of the words, and keeps the load below behind
         * these. Not a fence, which would do as well, because ThreadSanitizer knows none. */
        for (unsigned i = 0; i < HAK_KNOB_COUNT; i++)
            out->value[i] = atomic_load_explicit(&copies[before % 2][i], memory_order_acquire);
        after = atomic_load_explicit(&hak_policy_generation, memory_order_relaxed);
    } while (before != after);
    out->generation = before;
    return 0;
}

int hak_policy_knob(const char *name)
{
    if (name == NULL)
        return -1;
    for (unsigned i = 0; i < HAK_KNOB_COUNT; i++) {
        if (strcmp(name, hak_knob_table[i].name) == 0)
            return (int)i;
    }
    return -1;
}

const char *hak_policy_name(int index)
{
    return index >= 0 && index < HAK_KNOB_COUNT ? hak_knob_table[index].name : NULL;
}

int hak_policy_set(hak_policy *policy, const char *name, const char *text)
{
    if (policy == NULL || text == NULL)
        return EINVAL;
    int knob = hak_policy_knob(name);
    if (knob < 0)
        return ENOENT;
    switch (hak_knob_parse((hak_knob)knob, text, strlen(text), &policy->value[knob])) {
    case HAK_PARSE_OK:
        return 0;
    case HAK_PARSE_OUT_OF_BOUNDS:
    case HAK_PARSE_OVERFLOW:
        return ERANGE;
    default:
        return EINVAL;
    }
}

int hak_policy_preset(hak_policy *out, const char *name)
{
    if (out == NULL || name == NULL)
        return ENOENT;
    hak_preset preset = hak_preset_find(name, strlen(name));
    if (preset == HAK_PRESET_COUNT)
        return ENOENT;
    blank_policy(out);
    for (unsigned i = 0; i < HAK_KNOB_COUNT; i++)
        out->value[i] = hak_preset_value(preset, (hak_knob)i);
    return 0;
}

int hak_policy_publish(const hak_policy *policy)
{
    if (policy == NULL)
        return EINVAL;
    /* A copy, so that what is published is what was checked, whatever other threads do to it. */
    const hak_policy checked = *policy;
    if (checked.version != table_version() || checked.count != HAK_KNOB_COUNT)
        return EINVAL;
    for (unsigned i = 0; i < HAK_KNOB_COUNT; i++) {
        if (!within_bounds((hak_knob)i, checked.value[i]))
            return ERANGE;
    }
    /* Another library's constructor may come before hakmem's, which would publish over this. */
    hak_policy_init();
    hak_lock_take(&hak_policy_lock);
    hak_policy_publish_locked(checked.value);
    hak_lock_drop(&hak_policy_lock);
    return 0;
}
