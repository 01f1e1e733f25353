/* The self-profile: what the allocator's own slow work costs, by category. */
#include <stdatomic.h>
#include <unistd.h>

#include "base/format.h"
#include "observe/observe.h"

/* A line each, so that two categories at work don't share one. */
typedef struct hak_prof_counters {
    _Atomic uint64_t count HAK_ALIGNED(HAK_CACHE_LINE);
    _Atomic uint64_t total_ns;
    _Atomic uint64_t max_ns;
} hak_prof_counters;

bool hak_prof_on;

/* Relaxed throughout: figures that order nothing. */
static hak_prof_counters hak_prof[HAK_PROF_COUNT];

static const struct {
    const char *name;
    const char *text;
} hak_prof_names[HAK_PROF_COUNT] = {
#define X(ID, name, text) [HAK_PROF_##ID] = {name, text},
    HAK_PROF_CATEGORIES(X)
#undef X
};

void hak_prof_add(hak_prof_category category, uint64_t nanoseconds)
{
    hak_prof_counters *prof = &hak_prof[category];
    atomic_fetch_add_explicit(&prof->count, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&prof->total_ns, nanoseconds, memory_order_relaxed);
    uint64_t seen = atomic_load_explicit(&prof->max_ns, memory_order_relaxed);
    while (nanoseconds > seen &&
           !atomic_compare_exchange_weak_explicit(&prof->max_ns, &seen, nanoseconds,
                                                  memory_order_relaxed, memory_order_relaxed)) {
    }
}

hak_prof_figures hak_prof_read(hak_prof_category category)
{
    const hak_prof_counters *prof = &hak_prof[category];
    return (hak_prof_figures){
        .count = atomic_load_explicit(&prof->count, memory_order_relaxed),
        .total_ns = atomic_load_explicit(&prof->total_ns, memory_order_relaxed),
        .max_ns = atomic_load_explicit(&prof->max_ns, memory_order_relaxed),
    };
}

static void hak_prof_put_row(hak_text *text, hak_prof_category category)
{
    hak_prof_figures f = hak_prof_read(category);
    size_t cell = text->length;
    hak_text_put(text, hak_prof_names[category].name);
    hak_text_left(text, cell, 10);
    cell = text->length;
    hak_text_unsigned(text, f.count);
    hak_text_right(text, cell, 12);
    cell = text->length;
    hak_text_ratio(text, f.total_ns, 1000000, 3);
    hak_text_right(text, cell, 14);
    cell = text->length;
    hak_text_ratio(text, f.total_ns, f.count, 0);
    hak_text_right(text, cell, 12);
    cell = text->length;
    hak_text_unsigned(text, f.max_ns);
    hak_text_right(text, cell, 14);
    hak_text_put(text, "\n            ");
    hak_text_put(text, hak_prof_names[category].text);
    hak_text_char(text, '\n');
}

void hak_prof_put(hak_text *text)
{
    hak_text_put(text, "self-profile       times      total ms     mean ns        max ns\n");
    for (unsigned c = 0; c < HAK_PROF_COUNT; c++)
        hak_prof_put_row(text, (hak_prof_category)c);
}

void hak_prof_print(int fd)
{
    char buffer[4096];
    hak_text text;
    hak_text_init(&text, buffer, sizeof buffer);
    hak_text_put(&text, "hakmem: process ");
    hak_text_unsigned(&text, (uint64_t)getpid());
    hak_text_char(&text, '\n');
    hak_prof_put(&text);
    hak_text_write(&text, fd);
}
