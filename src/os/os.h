/* os.h: the only room that talks to the kernel about memory, time and processes.
 *
 * Callers: every room above base. Takes no lock. Never touches errno: failures are results. Lengths
 * and addresses are multiples of hak_os_page() unless said otherwise.
 */
#ifndef HAK_OS_OS_H
#define HAK_OS_OS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Reads page size and limits. Idempotent; called before anything else here. */
void hak_os_init(void);

/* Bytes in a page: 4, 16 or 64 KiB. */
extern size_t hak_os_page_bytes;

/* Address-space limit of the process (RLIMIT_AS) in bytes; SIZE_MAX where there is none. */
size_t hak_os_address_limit(void);

/* Address space without memory, at `hint` exactly where `exact`, anywhere otherwise. NULL on
 * failure. */
void *hak_os_reserve(void *hint, size_t bytes, bool exact);

/* Reserved space that reads as zeros and can't be written until it is committed. */
void *hak_os_reserve_zeros(size_t bytes);

/* Makes reserved space readable and writable; false where the system refuses memory. */
bool hak_os_commit(void *address, size_t bytes);

/* A fresh zeroed mapping, aligned to `alignment` (a power of two). NULL on failure. */
void *hak_os_map(size_t bytes, size_t alignment);
void hak_os_unmap(void *address, size_t bytes);

/* Grows or shrinks a mapping; it may move if `may_move`. NULL on failure (the old one stands). */
void *hak_os_remap(void *address, size_t old_bytes, size_t new_bytes, bool may_move);

/* Gives pages back: they read as zeros afterwards and are not resident. False where the system could
 * not (locked pages): their contents then still stand. */
bool hak_os_purge(void *address, size_t bytes);

/* Asks for huge pages, or for none, where the system lets a program choose. */
void hak_os_huge(void *address, size_t bytes, bool on);

/* Whether the system gives huge pages to those who ask. True until hak_os_read_settings has read it. */
extern bool hak_os_huge_given;

/* Whether it gives them to everybody. False until then. */
extern bool hak_os_huge_always;

/* Reads the settings that stand in files. For the constructor: nothing else here opens a file. */
void hak_os_read_settings(void);

/* Monotonic time. The coarse one costs a few nanoseconds and stands still for up to a tick. */
uint64_t hak_os_now_ns(void);
uint64_t hak_os_coarse_ms(void);

typedef struct hak_os_usage {
    uint64_t resident_bytes; /* 0 where it can't be read */
    uint64_t peak_resident_bytes;
    uint64_t minor_faults;
    uint64_t major_faults;
} hak_os_usage;
void hak_os_usage_read(hak_os_usage *out);

/* Sixty-four bits that differ from process to process. */
uint64_t hak_os_random(void);

/* Writes all of it, or gives up at the first error. Async-signal-safe. */
void hak_os_write(int fd, const void *text, size_t bytes);

int hak_os_thread_id(void);

#endif
