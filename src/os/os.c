#include "os/os.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/bits.h"
#include "base/syscall.h"

#ifndef MAP_FIXED_NOREPLACE
#define MAP_FIXED_NOREPLACE 0x100000
#endif

size_t hak_os_page_bytes = 4096;

void hak_os_init(void)
{
    unsigned long page = getauxval(AT_PAGESZ);
    if (hak_is_power_of_two(page))
        hak_os_page_bytes = page;
}

size_t hak_os_address_limit(void)
{
    struct rlimit limit = {0};
    long result = hak_syscall4(SYS_prlimit64, 0, RLIMIT_AS, 0, (long)&limit);
    if (hak_syscall_failed(result) || limit.rlim_cur == RLIM_INFINITY)
        return SIZE_MAX;
    return (size_t)limit.rlim_cur;
}

static void *hak_mmap(void *hint, size_t bytes, int protection, int flags)
{
    long result = hak_syscall6(SYS_mmap, (long)hint, (long)bytes, protection,
                               MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);
    return hak_syscall_failed(result) ? NULL : (void *)result;
}

void *hak_os_reserve(void *hint, size_t bytes, bool exact)
{
    void *address =
        hak_mmap(hint, bytes, PROT_NONE, MAP_NORESERVE | (exact ? MAP_FIXED_NOREPLACE : 0));
    /* A kernel before 4.17 takes MAP_FIXED_NOREPLACE for a hint. */
    if (address != NULL && exact && address != hint) {
        hak_os_unmap(address, bytes);
        return NULL;
    }
    return address;
}

void *hak_os_reserve_zeros(size_t bytes)
{
    return hak_mmap(NULL, bytes, PROT_READ, MAP_NORESERVE);
}

bool hak_os_commit(void *address, size_t bytes)
{
    return !hak_syscall_failed(
        hak_syscall3(SYS_mprotect, (long)address, (long)bytes, PROT_READ | PROT_WRITE));
}

void *hak_os_map(size_t bytes, size_t alignment)
{
    if (alignment <= hak_os_page_bytes)
        return hak_mmap(NULL, bytes, PROT_READ | PROT_WRITE, 0);
    size_t padded = bytes + alignment - hak_os_page_bytes;
    if (padded < bytes)
        return NULL;
    /* Most often the kernel's choice is aligned already when the last one was. */
    char *address = hak_mmap(NULL, padded, PROT_READ | PROT_WRITE, 0);
    if (address == NULL)
        return NULL;
    char *start = (char *)hak_round_up((uintptr_t)address, alignment);
    if (start > address)
        hak_os_unmap(address, (size_t)(start - address));
    char *end = address + padded;
    if (start + bytes < end)
        hak_os_unmap(start + bytes, (size_t)(end - (start + bytes)));
    return start;
}

void hak_os_unmap(void *address, size_t bytes)
{
    hak_syscall3(SYS_munmap, (long)address, (long)bytes, 0);
}

void *hak_os_remap(void *address, size_t old_bytes, size_t new_bytes, bool may_move)
{
    long result = hak_syscall4(SYS_mremap, (long)address, (long)old_bytes, (long)new_bytes,
                               may_move ? MREMAP_MAYMOVE : 0);
    return hak_syscall_failed(result) ? NULL : (void *)result;
}

bool hak_os_purge(void *address, size_t bytes)
{
    return !hak_syscall_failed(
        hak_syscall3(SYS_madvise, (long)address, (long)bytes, MADV_DONTNEED));
}

void hak_os_huge(void *address, size_t bytes, bool on)
{
    hak_syscall3(SYS_madvise, (long)address, (long)bytes, on ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
}

uint64_t hak_os_now_ns(void)
{
    struct timespec now = {0};
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

uint64_t hak_os_coarse_ms(void)
{
    struct timespec now = {0};
    clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
    return (uint64_t)now.tv_sec * 1000u + (uint64_t)now.tv_nsec / 1000000u;
}

/* The first `bytes` of a file; 0 where it can't be read. */
static long hak_os_read_file(const char *path, char *text, size_t bytes)
{
    long fd = hak_syscall4(SYS_openat, AT_FDCWD, (long)path, O_RDONLY | O_CLOEXEC, 0);
    if (hak_syscall_failed(fd))
        return 0;
    long got = hak_syscall3(SYS_read, fd, (long)text, (long)bytes);
    hak_syscall3(SYS_close, fd, 0, 0);
    return hak_syscall_failed(got) ? 0 : got;
}

bool hak_os_huge_given = true;
bool hak_os_huge_always;

void hak_os_read_settings(void)
{
    /* "always [madvise] never": the choice in force stands in brackets. */
    char text[64];
    long got = hak_os_read_file("/sys/kernel/mm/transparent_hugepage/enabled", text, sizeof text);
    for (long i = 0; i + 1 < got; i++)
        if (text[i] == '[') {
            hak_os_huge_given = text[i + 1] != 'n';
            hak_os_huge_always = text[i + 1] == 'a';
        }
}

/* Resident pages are the second number of /proc/self/statm. */
static uint64_t hak_os_resident(void)
{
    char text[128];
    long got = hak_os_read_file("/proc/self/statm", text, sizeof text);
    long i = 0;
    while (i < got && text[i] != ' ')
        i++;
    uint64_t pages = 0;
    for (i++; i < got && text[i] >= '0' && text[i] <= '9'; i++)
        pages = pages * 10 + (uint64_t)(text[i] - '0');
    return pages * hak_os_page_bytes;
}

void hak_os_usage_read(hak_os_usage *out)
{
    struct rusage usage = {0};
    hak_syscall3(SYS_getrusage, RUSAGE_SELF, (long)&usage, 0);
    out->resident_bytes = hak_os_resident();
    out->peak_resident_bytes = (uint64_t)usage.ru_maxrss << 10;
    out->minor_faults = (uint64_t)usage.ru_minflt;
    out->major_faults = (uint64_t)usage.ru_majflt;
}

uint64_t hak_os_random(void)
{
    /* The kernel hands every process sixteen random bytes: no system call, no file. */
    const unsigned char *bytes = (const unsigned char *)getauxval(AT_RANDOM);
    uint64_t x = hak_os_now_ns() ^ (uintptr_t)&x;
    if (bytes != NULL)
        for (int i = 0; i < 8; i++)
            x ^= (uint64_t)bytes[i + 8] << (8 * i);
    x ^= x >> 33;
    x *= 0xff51afd7ed558ccdull;
    x ^= x >> 33;
    return x;
}

void hak_os_write(int fd, const void *text, size_t bytes)
{
    const char *at = text;
    while (bytes > 0) {
        long wrote = hak_syscall3(SYS_write, fd, (long)at, (long)bytes);
        if (wrote == -EINTR)
            continue;
        if (wrote <= 0)
            return;
        at += wrote;
        bytes -= (size_t)wrote;
    }
}

int hak_os_thread_id(void)
{
    return (int)hak_syscall3(SYS_gettid, 0, 0, 0);
}
