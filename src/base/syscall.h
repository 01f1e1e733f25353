/* syscall.h: raw system calls.
 *
 * libc's wrappers are cancellation points and set errno; an allocator may do neither behind its
 * host's back. Results are the kernel's: -errno on failure. The numbers in use are a closed list,
 * kept in docs/how-it-works.md.
 */
#ifndef HAK_BASE_SYSCALL_H
#define HAK_BASE_SYSCALL_H

#include <stdbool.h>

#include "base/bits.h"

#if defined(__x86_64__)
HAK_INLINE long hak_syscall6(long n, long a, long b, long c, long d, long e, long f)
{
    long result;
    register long r10 __asm__("r10") = d;
    register long r8 __asm__("r8") = e;
    register long r9 __asm__("r9") = f;
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(n), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                     : "rcx", "r11", "memory");
    return result;
}
#elif defined(__aarch64__)
HAK_INLINE long hak_syscall6(long n, long a, long b, long c, long d, long e, long f)
{
    register long x8 __asm__("x8") = n;
    register long x0 __asm__("x0") = a;
    register long x1 __asm__("x1") = b;
    register long x2 __asm__("x2") = c;
    register long x3 __asm__("x3") = d;
    register long x4 __asm__("x4") = e;
    register long x5 __asm__("x5") = f;
    __asm__ volatile("svc 0"
                     : "+r"(x0)
                     : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5)
                     : "memory", "cc");
    return x0;
}
#else
#error "hakmem knows the system call conventions of x86-64 and aarch64 only"
#endif

HAK_INLINE long hak_syscall4(long n, long a, long b, long c, long d)
{
    return hak_syscall6(n, a, b, c, d, 0, 0);
}

HAK_INLINE long hak_syscall3(long n, long a, long b, long c)
{
    return hak_syscall6(n, a, b, c, 0, 0, 0);
}

HAK_INLINE bool hak_syscall_failed(long result)
{
    return (unsigned long)result > -4096ul;
}

#endif
