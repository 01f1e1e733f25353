/* region.h: reserved address space, and the two flat tables that describe it: the chunk map (tags)
 * and the superslab table. Everything here is called under hak_central_lock.
 *
 * The region stands low in the address space (64 to 256 GiB up, at a random place), below what the
 * kernel gives to anybody else. So both tables begin at address 0 and end where the region can end:
 * whether an address may be ours is one compare, with no base to subtract.
 */
#ifndef HAK_HEAP_REGION_H
#define HAK_HEAP_REGION_H

#include "heap/types.h"

bool hak_region_init(void);

/* The next superslab's worth of address space, readable and writable; NULL without memory. */
char *hak_region_take(void);

/* Undoes the hak_region_take just done. */
void hak_region_untake(char *start);

uint64_t hak_region_reserved(void);
uint64_t hak_region_mapped(void);

#endif
