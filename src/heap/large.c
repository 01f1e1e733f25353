#include "heap/large.h"

#include <string.h>

#include "heap/central.h"
#include "os/os.h"

static uint32_t hak_large_units(size_t size)
{
    return (uint32_t)(hak_round_up(size, hak_max_size(HAK_UNIT_BYTES, hak_os_page_bytes)) >>
                      HAK_UNIT_SHIFT);
}

static void hak_large_drop(hak_heap *heap, uint32_t slot)
{
    hak_large_slot *slots = heap->large;
    heap->large_bytes -= (uint64_t)slots[slot].units << HAK_UNIT_SHIFT;
    heap->large_count--;
    memmove(&slots[slot], &slots[slot + 1], (heap->large_count - slot) * sizeof *slots);
}

/* The kept span that fits most closely, the newest of such; none may be too large by more than the
 * knob allows. */
static void *hak_large_reuse(hak_heap *heap, uint32_t units, size_t alignment)
{
    uint32_t most = units + (uint32_t)((uint64_t)units * heap->knobs.large_waste / 100);
    uint32_t best = HAK_LARGE_SLOTS;
    for (uint32_t i = 0; i < heap->large_count; i++) {
        const hak_large_slot *slot = &heap->large[i];
        if (slot->units < units || slot->units > most) continue;
        if (((uintptr_t)slot->start & (alignment - 1)) != 0) continue;
        if (best == HAK_LARGE_SLOTS || slot->units <= heap->large[best].units) best = i;
    }
    if (best == HAK_LARGE_SLOTS) return NULL;
    char *start = heap->large[best].start;
    hak_span_keep(start, false);
    hak_large_drop(heap, best);
    return start;
}

void *hak_large_alloc(hak_heap *heap, size_t size, size_t alignment, bool *zeroed)
{
    uint32_t units = hak_large_units(size);
    hak_count(&heap->count.large_requests, 1);
    hak_count(&heap->count.large_bytes, size);
    *zeroed = false;
    void *block = hak_large_reuse(heap, units, alignment);
    if (block != NULL) {
        hak_count(&heap->count.large_hits, 1);
        return block;
    }
    size_t align = hak_max_size(hak_max_size(alignment, hak_os_page_bytes), HAK_UNIT_BYTES);
    block = hak_span_new(units, (uint32_t)(align >> HAK_UNIT_SHIFT), zeroed);
    if (block != NULL) hak_count(&heap->count.large_made, 1);
    return block;
}

void hak_large_flush(hak_heap *heap, uint64_t bytes)
{
    while (heap->large_bytes > bytes) {
        hak_large_slot slot = heap->large[0];
        hak_large_drop(heap, 0);
        hak_count(&heap->count.large_returned, 1);
        hak_span_delete(slot.start, slot.units);
    }
}

bool hak_large_free(hak_heap *heap, void *block)
{
    uint32_t units = hak_span_units(block);
    if (units == 0) return false;
    uint64_t bytes = (uint64_t)units << HAK_UNIT_SHIFT;
    if (heap == NULL || bytes > heap->knobs.large_slot_bytes) {
        hak_span_delete(block, units);
        return true;
    }
    hak_large_flush(heap, heap->knobs.large_slot_bytes - bytes);
    if (heap->large_count == HAK_LARGE_SLOTS)
        hak_large_flush(heap, heap->large_bytes - 1);
    hak_span_keep(block, true);
    heap->large[heap->large_count++] = (hak_large_slot){.start = block, .units = units};
    heap->large_bytes += bytes;
    return true;
}

size_t hak_large_usable(const void *block)
{
    return (size_t)hak_span_units(block) << HAK_UNIT_SHIFT;
}

bool hak_large_resize(hak_heap *heap, void *block, size_t size)
{
    uint32_t units = hak_span_units(block);
    uint32_t want = hak_large_units(size);
    bool zeroed;
    if (want > HAK_SUPERSLAB_UNITS) return false;
    /* A span that would shrink by little stays as it is: it may grow again. */
    if (want <= units && want >= units - units / 4) return true;
    if (!hak_span_resize(block, units, want, &zeroed)) return false;
    hak_count(&heap->count.large_hits, 1);
    return true;
}
