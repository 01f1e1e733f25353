/* size_class.h: which block size serves a request, and how its slabs are cut.
 *
 * Tiny classes stand every 16 bytes up to 1 KiB; mid classes eight to a doubling up to 32 KiB, so
 * that at most 1/9 of a block is waste. Pure arithmetic and one table; no lock.
 */
#ifndef HAK_HEAP_SIZE_CLASS_H
#define HAK_HEAP_SIZE_CLASS_H

#include <stddef.h>
#include <stdint.h>

#include "heap/hot.h"

#define HAK_TINY_CLASSES 64u
#define HAK_MID_FIRST 65u
#define HAK_MID_LAST 104u
#define HAK_LEARNED_FIRST 105u
#define HAK_MID_MAX 32768u

typedef struct hak_class_info {
    uint32_t bytes;      /* of a block */
    uint32_t reciprocal; /* ceil(2^32 / bytes): offset * reciprocal >> 32 is the block's number */
    uint16_t blocks;     /* in a slab */
    uint8_t chunks;      /* of a slab: 1, 2, 4 or 8 */
    uint8_t order;       /* log2 of that */
} hak_class_info;

extern hak_class_info hak_classes[HAK_CLASS_COUNT];

void hak_classes_init(void);

/* Mid classes stand at multiples of 128 bytes, so a small table leads to them. */
#define HAK_MID_STEP_SHIFT 7
extern uint8_t hak_mid_classes[HAK_MID_MAX >> HAK_MID_STEP_SHIFT];

/* The class that serves `size`, HAK_TINY_MAX + 1 .. HAK_MID_MAX. */
HAK_INLINE unsigned hak_class_of_mid(size_t size)
{
    return hak_mid_classes[(size - 1) >> HAK_MID_STEP_SHIFT];
}

/* The class that serves `size`, 1 .. HAK_MID_MAX. */
HAK_INLINE unsigned hak_class_of(size_t size)
{
    return size <= HAK_TINY_MAX ? (unsigned)((size + 15) >> 4) : hak_class_of_mid(size);
}

/* The number of the block that `offset` bytes into a slab lie in. Exact for every multiple of 16 in a
 * slab: the error, offset * (reciprocal * bytes - 2^32) / 2^32 bytes, stays below 2^19 * 2^15 / 2^32. */
HAK_INLINE unsigned hak_block_index(const hak_class_info *info, size_t offset)
{
    return (unsigned)(((uint64_t)offset * info->reciprocal) >> 32);
}

#endif
