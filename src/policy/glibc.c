/* glibc's own malloc options: which are mapped to knobs, which are ignored and why. */
#include <limits.h>
#include <string.h>

#include "policy/options.h"

/* glibc's numbers for mallopt, which programs were compiled with. musl's headers have none. */
enum {
    PARAM_NONE = 0,
    PARAM_MXFAST = 1,
    PARAM_NLBLKS = 2,
    PARAM_GRAIN = 3,
    PARAM_KEEP = 4,
    PARAM_TRIM_THRESHOLD = -1,
    PARAM_TOP_PAD = -2,
    PARAM_MMAP_THRESHOLD = -3,
    PARAM_MMAP_MAX = -4,
    PARAM_CHECK_ACTION = -5,
    PARAM_PERTURB = -6,
    PARAM_ARENA_TEST = -7,
    PARAM_ARENA_MAX = -8
};

enum {
    MXFAST_MAX = 160,              /* 80 * sizeof(size_t) / 4, as mallopt(3) has it */
    MMAP_THRESHOLD_MAX = 32 << 20, /* DEFAULT_MMAP_THRESHOLD_MAX of 64-bit machines, likewise */
    THP_FROM_FIRST_BYTE = 2
};

#define NO_ARENAS "hakmem has no arenas: each thread has a heap, taken over by others when it ends"
#define OWN_BOUNDS "`bin_bytes` and `bin_blocks` bound what a thread keeps"

const hak_glibc_option hak_glibc_table[] = {
    {"MALLOC_TRIM_THRESHOLD_", "glibc.malloc.trim_threshold", "M_TRIM_THRESHOLD",
     PARAM_TRIM_THRESHOLD, INT_MIN, INT_MAX, HAK_KNOB_RETAIN_BYTES,
     "sets `retain_bytes`, brought within its bounds; -1 is the upper bound"},
    {"MALLOC_MMAP_THRESHOLD_", "glibc.malloc.mmap_threshold", "M_MMAP_THRESHOLD",
     PARAM_MMAP_THRESHOLD, 0, MMAP_THRESHOLD_MAX, HAK_KNOB_BIG_THRESHOLD,
     "sets `big_threshold`, brought within its bounds"},
    {NULL, "glibc.malloc.hugetlb", NULL, PARAM_NONE, 0, 0, HAK_KNOB_THP,
     "1 and above set `thp` to 2; 0, glibc's default, changes nothing"},
    {"MALLOC_ARENA_MAX", "glibc.malloc.arena_max", "M_ARENA_MAX", PARAM_ARENA_MAX, 0, INT_MAX,
     HAK_NO_KNOB, NO_ARENAS},
    {"MALLOC_ARENA_TEST", "glibc.malloc.arena_test", "M_ARENA_TEST", PARAM_ARENA_TEST, 0, INT_MAX,
     HAK_NO_KNOB, NO_ARENAS},
    {"MALLOC_TOP_PAD_", "glibc.malloc.top_pad", "M_TOP_PAD", PARAM_TOP_PAD, INT_MIN, INT_MAX,
     HAK_NO_KNOB, "memory is taken in superslabs, not by moving a break"},
    {"MALLOC_MMAP_MAX_", "glibc.malloc.mmap_max", "M_MMAP_MAX", PARAM_MMAP_MAX, INT_MIN, INT_MAX,
     HAK_NO_KNOB, "`bigcache_bytes` says how many freed mappings are kept; none is refused"},
    {"MALLOC_CHECK_", "glibc.malloc.check", "M_CHECK_ACTION", PARAM_CHECK_ACTION, INT_MIN, INT_MAX,
     HAK_NO_KNOB, "there is no metadata between blocks to be checked"},
    {"MALLOC_PERTURB_", "glibc.malloc.perturb", "M_PERTURB", PARAM_PERTURB, INT_MIN, INT_MAX,
     HAK_NO_KNOB, "a freed block is never written to"},
    {NULL, "glibc.malloc.mxfast", "M_MXFAST", PARAM_MXFAST, 0, MXFAST_MAX, HAK_NO_KNOB, OWN_BOUNDS},
    {NULL, "glibc.malloc.tcache_max", NULL, PARAM_NONE, 0, 0, HAK_NO_KNOB, OWN_BOUNDS},
    {NULL, "glibc.malloc.tcache_count", NULL, PARAM_NONE, 0, 0, HAK_NO_KNOB, OWN_BOUNDS},
    {NULL, "glibc.malloc.tcache_unsorted_limit", NULL, PARAM_NONE, 0, 0, HAK_NO_KNOB, OWN_BOUNDS},
    {NULL, NULL, "M_NLBLKS", PARAM_NLBLKS, INT_MIN, INT_MAX, HAK_NO_KNOB, "glibc ignores it too"},
    {NULL, NULL, "M_GRAIN", PARAM_GRAIN, INT_MIN, INT_MAX, HAK_NO_KNOB, "glibc ignores it too"},
    {NULL, NULL, "M_KEEP", PARAM_KEEP, INT_MIN, INT_MAX, HAK_NO_KNOB, "glibc ignores it too"},
};

const size_t hak_glibc_count = HAK_COUNT_OF(hak_glibc_table);

/* The knob's value for glibc's; false where it leaves the knob alone. */
static bool map_glibc_value(unsigned knob, uint64_t value, uint64_t *mapped)
{
    const hak_knob_info *info = &hak_knob_table[knob];

    if (knob == HAK_KNOB_THP) {
        *mapped = THP_FROM_FIRST_BYTE;
        return value != 0;
    }
    *mapped = value < info->minimum ? info->minimum : value;
    *mapped = *mapped > info->maximum ? info->maximum : *mapped;
    return true;
}

static void take_glibc(hak_settings *settings, const hak_glibc_option *option, const char *name,
                       const char *text, size_t length)
{
    uint64_t value = 0;
    uint64_t mapped = 0;

    if (option->knob == HAK_NO_KNOB)
        return;
    hak_parse result = hak_parse_c_number(text, length, &value);
    if (result != HAK_PARSE_OK) {
        /* glibc says nothing of it, and it may not have been meant for hakmem: for the curious. */
        hak_line line;
        hak_line_start(&line);
        hak_text_put(&line.text, name);
        hak_text_char(&line.text, '=');
        hak_text_quoted(&line.text, text, length);
        hak_text_char(&line.text, ' ');
        hak_text_put(&line.text, hak_parse_text(result));
        hak_text_put(&line.text, "; ignored");
        hak_line_end(&line, HAK_LOG_INFO);
        return;
    }
    if (settings->source[option->knob] <= HAK_SOURCE_GLIBC &&
        map_glibc_value(option->knob, value, &mapped)) {
        settings->value[option->knob] = mapped;
        settings->source[option->knob] = HAK_SOURCE_GLIBC;
    }
}

static void take_tunables(hak_settings *settings, const char *list)
{
    while (*list != '\0') {
        size_t length = strcspn(list, ":");
        for (size_t i = 0; i < hak_glibc_count; i++) {
            const hak_glibc_option *option = &hak_glibc_table[i];
            const char *value =
                option->tunable != NULL ? hak_after_name(list, option->tunable) : NULL;
            if (value != NULL)
                take_glibc(settings, option, option->tunable, value,
                           (size_t)(list + length - value));
        }
        list += length;
        list += *list == ':';
    }
}

void hak_settings_glibc(hak_settings *settings, char *const *variables)
{
    for (; variables != NULL && *variables != NULL; variables++) {
        const char *tunables = hak_after_name(*variables, "GLIBC_TUNABLES");
        if (tunables != NULL)
            take_tunables(settings, tunables);
        for (size_t i = 0; i < hak_glibc_count; i++) {
            const hak_glibc_option *option = &hak_glibc_table[i];
            const char *value =
                option->variable != NULL ? hak_after_name(*variables, option->variable) : NULL;
            if (value != NULL)
                take_glibc(settings, option, option->variable, value, strlen(value));
        }
    }
}

static void change_knob(hak_knob knob, uint64_t value)
{
    uint64_t values[HAK_KNOB_COUNT];

    hak_policy_init();
    if (hak_settings_in_force.source[knob] >= HAK_SOURCE_FILE)
        return;
    hak_lock_take(&hak_policy_lock);
    for (unsigned i = 0; i < HAK_KNOB_COUNT; i++)
        values[i] = hak_knob_get((hak_knob)i);
    values[knob] = value;
    hak_policy_publish_locked(values);
    hak_lock_drop(&hak_policy_lock);
}

int hak_policy_mallopt(int param, int value)
{
    for (size_t i = 0; i < hak_glibc_count; i++) {
        const hak_glibc_option *option = &hak_glibc_table[i];
        uint64_t mapped = 0;
        if (option->param_name == NULL || option->param != param)
            continue;
        if (value < option->minimum || value > option->maximum)
            return 0;
        /* Sign-extended: a negative threshold is no threshold. */
        if (option->knob != HAK_NO_KNOB &&
            map_glibc_value(option->knob, (uint64_t)(int64_t)value, &mapped))
            change_knob((hak_knob)option->knob, mapped);
        return 1;
    }
    return 0;
}
