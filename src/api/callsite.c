/* callsite.c: the entry points that carry a call-site. */
#include <hakmem/hakmem.h>

#include "api/entry.h"
#include "site/callsite.h"

HAK_EXPORT void *hak_alloc_cs(size_t size, hak_callsite *site)
{
    void *block = hak_malloc(size);
    if (block != NULL)
        hak_callsite_alloc(site, size);
    return block;
}

HAK_EXPORT void *hak_calloc_cs(size_t count, size_t size, hak_callsite *site)
{
    void *block = hak_calloc(count, size);
    if (block != NULL)
        hak_callsite_alloc(site, count * size);
    return block;
}

HAK_EXPORT void *hak_realloc_cs(void *block, size_t size, hak_callsite *site)
{
    size_t old = hak_usable(block);
    void *moved = hak_realloc(block, size);
    if (block != NULL && (moved != NULL || size == 0))
        hak_callsite_free(site, old);
    if (moved != NULL)
        hak_callsite_alloc(site, size);
    return moved;
}

HAK_EXPORT void hak_free_cs(void *block, hak_callsite *site)
{
    if (block == NULL)
        return;
    hak_callsite_free(site, hak_usable(block));
    hak_free(block);
}
