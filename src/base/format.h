/* format.h: text without stdio. A hak_text fills a buffer of the caller's; hak_write_all brings it
 * to a file descriptor.
 *
 * Nothing here allocates, locks or calls stdio, so all of it may be used inside malloc and in
 * signal handlers. Text that does not fit is cut: what stands in the buffer is always a prefix of
 * what was put, ends in NUL, and `truncated` says so.
 *
 * Columns: remember `text.length` before a cell, put the cell, then align it:
 *
 *     size_t cell = text.length;
 *     hak_text_bytes(&text, bytes);
 *     hak_text_right(&text, cell, 12);
 */
#ifndef HAK_BASE_FORMAT_H
#define HAK_BASE_FORMAT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct hak_text {
    char *buffer;
    size_t capacity; /* bytes of the buffer, the NUL included; at least 1 */
    size_t length;   /* bytes put, without the NUL */
    bool truncated;
} hak_text;

void hak_text_init(hak_text *text, char *buffer, size_t capacity);
void hak_text_clear(hak_text *text);

void hak_text_char(hak_text *text, char c);
void hak_text_fill(hak_text *text, char c, size_t count);
void hak_text_put(hak_text *text, const char *string);
void hak_text_put_n(hak_text *text, const char *bytes, size_t count);

/* Bytes of unknown origin between single quotes: what is not printable ASCII is shown as \xNN, so
 * that a value from outside can't forge a line or drive a terminal. At most 128 bytes are shown. */
void hak_text_quoted(hak_text *text, const char *bytes, size_t count);

void hak_text_unsigned(hak_text *text, uint64_t value);
void hak_text_signed(hak_text *text, int64_t value);
void hak_text_hex(hak_text *text, uint64_t value); /* with 0x, no leading zeros */

/* numerator / denominator with `decimals` (up to 9) digits after the point, rounded half up; "-"
 * where the denominator is 0. 1500 / 1000 with two decimals: "1.50". */
void hak_text_ratio(hak_text *text, uint64_t numerator, uint64_t denominator, unsigned decimals);

/* For reading: "512 B", "64 KiB", "1.5 MiB". A figure with a decimal is rounded, one without is
 * exact. */
void hak_text_bytes(hak_text *text, uint64_t bytes);

/* Never rounded: the largest unit that leaves a whole number ("1536 KiB", "1000001"). What it
 * writes, hak_parse_value reads. */
void hak_text_bytes_exact(hak_text *text, uint64_t bytes);

/* Pad what was put since `start` (an earlier text->length) with blanks to `width` bytes: on its
 * right, or on its left. Wider cells stay as they are. */
void hak_text_left(hak_text *text, size_t start, size_t width);
void hak_text_right(hak_text *text, size_t start, size_t width);

/* Writes everything, through interruptions and short writes. Returns false where the descriptor
 * refuses: an error, or full while non-blocking. errno is kept. A reader that went away costs the
 * text, never the process: the SIGPIPE is taken back. */
bool hak_write_all(int fd, const void *data, size_t bytes);
bool hak_text_write(const hak_text *text, int fd);

#endif
