#include "heap/size_class.h"

hak_class_info hak_classes[HAK_CLASS_COUNT];
uint8_t hak_mid_classes[HAK_MID_MAX >> HAK_MID_STEP_SHIFT];

/* A slab is one chunk for blocks up to 4 KiB, and as many as hold sixteen blocks beyond. */
static void hak_class_set(unsigned class, uint32_t bytes)
{
    hak_class_info *info = &hak_classes[class];
    info->bytes = bytes;
    info->reciprocal = (uint32_t)(((1ull << 32) + bytes - 1) / bytes);
    info->order = 0;
    while (bytes > (4096u << info->order))
        info->order++;
    info->chunks = (uint8_t)(1u << info->order);
    info->blocks = (uint16_t)(((uint32_t)info->chunks << HAK_CHUNK_SHIFT) / bytes);
}

void hak_classes_init(void)
{
    for (unsigned c = 1; c <= HAK_TINY_CLASSES; c++)
        hak_class_set(c, c * 16);
    for (unsigned c = HAK_MID_FIRST; c <= HAK_MID_LAST; c++) {
        unsigned step = c - HAK_MID_FIRST;
        uint32_t base = 1024u << (step / 8);
        hak_class_set(c, base + base / 8 * (step % 8 + 1));
        for (uint32_t bytes = base + base / 8 * (step % 8); bytes < hak_classes[c].bytes;
             bytes += 1u << HAK_MID_STEP_SHIFT)
            hak_mid_classes[bytes >> HAK_MID_STEP_SHIFT] = (uint8_t)c;
    }
}
