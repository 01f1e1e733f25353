/* Three call-sites, and what hakmem counted at each. */
#include <stdio.h>

#include <hakmem/hakmem.h>

#define BUFFERS 1000
#define TABLES 100
#define IMAGES 10

int main(void)
{
    static void *buffer[BUFFERS], *table[TABLES], *image[IMAGES];
    for (int i = 0; i < BUFFERS; i++)
        buffer[i] = hak_alloc_cs(64 << 10, HAK_CALLSITE());
    for (int i = 0; i < TABLES; i++)
        table[i] = hak_alloc_cs(256 << 10, HAK_CALLSITE());
    for (int i = 0; i < IMAGES; i++)
        image[i] = hak_alloc_cs(2 << 20, HAK_CALLSITE());

    hak_site_info sites[8];
    size_t known = hak_sites(sites, 8);
    for (size_t i = 0; i < known && i < 8; i++)
        printf("line %u of %s: %llu blocks of %llu bytes\n", sites[i].line, sites[i].function,
               (unsigned long long)sites[i].allocs, (unsigned long long)sites[i].max_bytes);

    /* Plain free would do as well; this one is counted. */
    for (int i = 0; i < BUFFERS; i++)
        hak_free_cs(buffer[i], HAK_CALLSITE());
    for (int i = 0; i < TABLES; i++)
        hak_free_cs(table[i], HAK_CALLSITE());
    for (int i = 0; i < IMAGES; i++)
        hak_free_cs(image[i], HAK_CALLSITE());
    return known == 3 ? 0 : 1;
}
