#include "observe/ring.h"

#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#include "base/format.h"

/* An entry is guarded by its sequence word: twice the event's position plus 1 while it is written,
 * plus 2 once it stands, 0 before the first. Fields are atomic words too, stored with release and
 * loaded with acquire: a reader that meets a field of a later writer also sees that writer's sequence
 * word, and drops what it has. (Fences would do, but ThreadSanitizer knows none.) */
typedef struct hak_ring_entry {
    _Atomic uint64_t sequence;
    _Atomic uint64_t time_ns;
    _Atomic uint64_t who; /* thread << 32 | event */
    _Atomic uint64_t a;
    _Atomic uint64_t b;
} hak_ring_entry;

bool hak_ring_on;

/* Set once, before hak_ring_on and before there is a second thread. */
static hak_ring_entry *hak_ring_entries;
static uint64_t hak_ring_mask;

static _Atomic uint64_t hak_ring_next HAK_ALIGNED(HAK_CACHE_LINE);

bool hak_ring_start(uint64_t entries)
{
    if (entries == 0 || hak_ring_entries != NULL)
        return false;
    uint64_t capacity = 1;
    while (capacity < entries)
        capacity <<= 1;
    size_t bytes = hak_round_up(capacity * sizeof(hak_ring_entry), hak_os_page_bytes);
    hak_ring_entries = hak_os_map(bytes, hak_os_page_bytes);
    if (hak_ring_entries == NULL)
        return false;
    hak_ring_mask = capacity - 1;
    hak_ring_on = true;
    return true;
}

uint64_t hak_ring_capacity(void)
{
    return hak_ring_entries == NULL ? 0 : hak_ring_mask + 1;
}

uint64_t hak_ring_position(void)
{
    return atomic_load_explicit(&hak_ring_next, memory_order_relaxed);
}

void hak_ring_add(hak_event event, uint64_t a, uint64_t b)
{
    uint64_t now = hak_os_now_ns();
    uint64_t who = (uint64_t)(uint32_t)hak_os_thread_id() << 32 | (uint32_t)event;
    /* Relaxed: it hands out positions and orders nothing else. */
    uint64_t position = atomic_fetch_add_explicit(&hak_ring_next, 1, memory_order_relaxed);
    hak_ring_entry *entry = &hak_ring_entries[position & hak_ring_mask];

    /* Whoever is in the entry sleeps a whole round behind, or was interrupted by us, or ahead: this
     * event is dropped rather than waited for. (In a fork's child it may be nobody: that one entry
     * then stays unused.) */
    uint64_t seen = atomic_load_explicit(&entry->sequence, memory_order_relaxed);
    if ((seen & 1) != 0 || seen > 2 * position)
        return;
    /* Pairs: acquire with the release store below by the entry's last writer. */
    if (!atomic_compare_exchange_strong_explicit(&entry->sequence, &seen, 2 * position + 1,
                                                 memory_order_acquire, memory_order_relaxed))
        return;
    /* Pairs: each with the acquire load of the same word in hak_ring_read. */
    atomic_store_explicit(&entry->time_ns, now, memory_order_release);
    atomic_store_explicit(&entry->who, who, memory_order_release);
    atomic_store_explicit(&entry->a, a, memory_order_release);
    atomic_store_explicit(&entry->b, b, memory_order_release);
    /* Pairs: the first acquire load in hak_ring_read, and the CAS above. */
    atomic_store_explicit(&entry->sequence, 2 * position + 2, memory_order_release);
}

bool hak_ring_read(uint64_t position, hak_ring_record *out)
{
    if (hak_ring_entries == NULL)
        return false;
    hak_ring_entry *entry = &hak_ring_entries[position & hak_ring_mask];
    /* Pairs: the last release store in hak_ring_add. */
    if (atomic_load_explicit(&entry->sequence, memory_order_acquire) != 2 * position + 2)
        return false;
    /* Acquire: pairs with the release stores of the fields, and keeps the last load behind these. */
    out->time_ns = atomic_load_explicit(&entry->time_ns, memory_order_acquire);
    uint64_t who = atomic_load_explicit(&entry->who, memory_order_acquire);
    out->a = atomic_load_explicit(&entry->a, memory_order_acquire);
    out->b = atomic_load_explicit(&entry->b, memory_order_acquire);
    out->thread = (uint32_t)(who >> 32);
    out->event = (uint32_t)who;
    return atomic_load_explicit(&entry->sequence, memory_order_relaxed) == 2 * position + 2;
}

/* ---- As text --------------------------------------------------------------------------------- */

static const struct {
    const char *name;
    const char *a;
    const char *b;
} hak_event_names[HAK_EVENT_COUNT] = {
#define X(ID, name, a, b) [HAK_EVENT_##ID] = {name, a, b},
    HAK_EVENTS(X)
#undef X
};

static void hak_ring_put_field(hak_text *text, const char *name, uint64_t value)
{
    hak_text_char(text, ' ');
    hak_text_put(text, name);
    hak_text_char(text, '=');
    if (strcmp(name, "address") == 0 || strcmp(name, "tag") == 0)
        hak_text_hex(text, value);
    else
        hak_text_unsigned(text, value);
}

/* "12345.000000001 4242 refill class=5 blocks=32": at most 150 bytes. */
static void hak_ring_put(hak_text *text, const hak_ring_record *record)
{
    hak_text_ratio(text, record->time_ns, 1000000000, 9);
    hak_text_char(text, ' ');
    hak_text_unsigned(text, record->thread);
    hak_text_char(text, ' ');
    hak_text_put(text, hak_event_names[record->event].name);
    hak_ring_put_field(text, hak_event_names[record->event].a, record->a);
    hak_ring_put_field(text, hak_event_names[record->event].b, record->b);
    hak_text_char(text, '\n');
}

/* Small, because it may be a signal's stack. A piece ends with a line, so that two threads that crash
 * together leave whole lines. */
#define HAK_RING_TEXT_BYTES 1024u
#define HAK_RING_LINE_BYTES 160u

void hak_ring_print(int fd)
{
    uint64_t capacity = hak_ring_capacity();
    if (capacity == 0)
        return;
    uint64_t end = hak_ring_position();
    uint64_t at = end > capacity ? end - capacity : 0;
    uint64_t printed = 0;
    char buffer[HAK_RING_TEXT_BYTES];
    hak_text text;
    hak_text_init(&text, buffer, sizeof buffer);
    hak_text_put(&text, "hakmem: event ring of process ");
    hak_text_unsigned(&text, (uint64_t)getpid());
    hak_text_put(&text, ", oldest first: seconds, thread, event\n");
    for (; at < end; at++) {
        hak_ring_record record;
        if (!hak_ring_read(at, &record))
            continue;
        hak_ring_put(&text, &record);
        printed++;
        if (text.length + HAK_RING_LINE_BYTES < sizeof buffer)
            continue;
        if (!hak_text_write(&text, fd))
            return;
        hak_text_clear(&text);
    }
    hak_text_put(&text, "hakmem: end of the event ring: ");
    hak_text_unsigned(&text, printed);
    hak_text_put(&text, " of ");
    hak_text_unsigned(&text, end);
    hak_text_put(&text, " events\n");
    hak_text_write(&text, fd);
}
