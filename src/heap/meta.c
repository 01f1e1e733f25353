#include "heap/meta.h"

#include "base/bits.h"
#include "os/os.h"

/* A mapping is touched page by page as it is used, so its size costs address space only. */
#define HAK_META_MAP_BYTES ((size_t)1 << 20)

hak_lock hak_meta_lock = HAK_LOCK_INIT(HAK_RANK_META);
static char *hak_meta_next;
static char *hak_meta_end;
static uint64_t hak_meta_used;

void *hak_meta_alloc(size_t bytes, size_t alignment)
{
    hak_lock_take(&hak_meta_lock);
    char *start = (char *)hak_round_up((uintptr_t)hak_meta_next, alignment);
    if (hak_meta_next == NULL || start + bytes > hak_meta_end) {
        size_t map_bytes = HAK_META_MAP_BYTES;
        /* Under a tight address-space limit a small mapping may still be had. */
        do {
            size_t need = hak_round_up(bytes, hak_os_page_bytes);
            map_bytes = hak_max_size(map_bytes, need);
            start = hak_os_map(map_bytes, hak_os_page_bytes);
            if (start != NULL || map_bytes == need)
                break;
            map_bytes /= 4;
        } while (true);
        if (start == NULL) {
            hak_lock_drop(&hak_meta_lock);
            return NULL;
        }
        hak_meta_end = start + map_bytes;
    }
    hak_meta_next = start + bytes;
    hak_meta_used += bytes;
    hak_lock_drop(&hak_meta_lock);
    return start;
}

uint64_t hak_meta_bytes(void)
{
    hak_lock_take(&hak_meta_lock);
    uint64_t used = hak_meta_used;
    hak_lock_drop(&hak_meta_lock);
    return used;
}
