/* bits.h: bit operations, alignment arithmetic and the few compiler attributes the project uses.
 * Knows nothing of memory; takes no lock. */
#ifndef HAK_BASE_BITS_H
#define HAK_BASE_BITS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define hak_likely(x) __builtin_expect(!!(x), 1)
#define hak_unlikely(x) __builtin_expect(!!(x), 0)
#define HAK_NOINLINE __attribute__((noinline))
#define HAK_COLD __attribute__((noinline, cold))
#define HAK_INLINE static inline __attribute__((always_inline))
#define HAK_CACHE_LINE 64
#define HAK_ALIGNED(n) __attribute__((aligned(n)))
#define HAK_COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

/* Index of the lowest and of the highest set bit; the argument must not be 0. */
HAK_INLINE unsigned hak_lowest_bit(uint64_t x)
{
    return (unsigned)__builtin_ctzll(x);
}

HAK_INLINE unsigned hak_highest_bit(uint64_t x)
{
    return 63u - (unsigned)__builtin_clzll(x);
}

/* Without the POPCNT instruction, which baseline x86-64 lacks, compilers call a function for it. */
HAK_INLINE unsigned hak_popcount(uint64_t x)
{
#if defined(__POPCNT__) || !defined(__x86_64__)
    return (unsigned)__builtin_popcountll(x);
#else
    x -= x >> 1 & 0x5555555555555555u;
    x = (x & 0x3333333333333333u) + (x >> 2 & 0x3333333333333333u);
    x = (x + (x >> 4)) & 0x0F0F0F0F0F0F0F0Fu;
    return (unsigned)(x * 0x0101010101010101u >> 56);
#endif
}

HAK_INLINE bool hak_is_power_of_two(size_t x)
{
    return x != 0 && (x & (x - 1)) == 0;
}

/* `unit` is a power of two. hak_round_up wraps for x within `unit` of SIZE_MAX: callers bound x. */
HAK_INLINE size_t hak_round_up(size_t x, size_t unit)
{
    return (x + unit - 1) & ~(unit - 1);
}

HAK_INLINE size_t hak_round_down(size_t x, size_t unit)
{
    return x & ~(unit - 1);
}

HAK_INLINE size_t hak_min_size(size_t a, size_t b)
{
    return a < b ? a : b;
}

HAK_INLINE size_t hak_max_size(size_t a, size_t b)
{
    return a > b ? a : b;
}

/* The `count` lowest bits set; count 0..64. */
HAK_INLINE uint64_t hak_low_mask(unsigned count)
{
    return count >= 64 ? ~0ull : (1ull << count) - 1;
}

#endif
