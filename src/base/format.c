#include "base/format.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>

#include "base/assert.h"
#include "base/syscall.h"

enum { QUOTED_MAX = 128 };

void hak_text_init(hak_text *text, char *buffer, size_t capacity)
{
    hak_assert(capacity >= 1);
    *text = (hak_text){.buffer = buffer, .capacity = capacity};
    buffer[0] = '\0';
}

void hak_text_clear(hak_text *text)
{
    hak_text_init(text, text->buffer, text->capacity);
}

/* Room for up to `count` more bytes. A piece that is cut fills the buffer, so that no later,
 * shorter one stands where its end is missing. */
static size_t text_room(hak_text *text, size_t count)
{
    size_t room = text->capacity - 1 - text->length;
    if (count <= room)
        return count;
    text->truncated = true;
    return room;
}

void hak_text_fill(hak_text *text, char c, size_t count)
{
    count = text_room(text, count);
    memset(text->buffer + text->length, c, count);
    text->length += count;
    text->buffer[text->length] = '\0';
}

void hak_text_char(hak_text *text, char c)
{
    hak_text_fill(text, c, 1);
}

void hak_text_put_n(hak_text *text, const char *bytes, size_t count)
{
    count = text_room(text, count);
    if (count != 0)
        memcpy(text->buffer + text->length, bytes, count);
    text->length += count;
    text->buffer[text->length] = '\0';
}

void hak_text_put(hak_text *text, const char *string)
{
    hak_text_put_n(text, string, strlen(string));
}

static char hex_digit(unsigned value)
{
    return "0123456789abcdef"[value & 15];
}

void hak_text_quoted(hak_text *text, const char *bytes, size_t count)
{
    size_t shown = count < QUOTED_MAX ? count : QUOTED_MAX;

    hak_text_char(text, '\'');
    for (size_t i = 0; i < shown; i++) {
        unsigned char c = (unsigned char)bytes[i];
        if (c >= ' ' && c < 0x7f) {
            hak_text_char(text, (char)c);
        } else {
            char escape[4] = {'\\', 'x', hex_digit(c >> 4), hex_digit(c)};
            hak_text_put_n(text, escape, sizeof(escape));
        }
    }
    hak_text_put(text, shown < count ? "...'" : "'");
}

void hak_text_unsigned(hak_text *text, uint64_t value)
{
    char digits[20]; /* of UINT64_MAX */
    size_t first = sizeof(digits);

    do {
        digits[--first] = (char)('0' + value % 10);
        value /= 10;
    } while (value != 0);
    hak_text_put_n(text, digits + first, sizeof(digits) - first);
}

void hak_text_signed(hak_text *text, int64_t value)
{
    if (value < 0)
        hak_text_char(text, '-');
    /* Negated as unsigned: -INT64_MIN does not exist. */
    hak_text_unsigned(text, value < 0 ? 0 - (uint64_t)value : (uint64_t)value);
}

void hak_text_hex(hak_text *text, uint64_t value)
{
    char digits[18]; /* 0x and 16 digits */
    size_t first = sizeof(digits);

    do {
        digits[--first] = hex_digit((unsigned)(value & 15));
        value >>= 4;
    } while (value != 0);
    digits[--first] = 'x';
    digits[--first] = '0';
    hak_text_put_n(text, digits + first, sizeof(digits) - first);
}

void hak_text_ratio(hak_text *text, uint64_t numerator, uint64_t denominator, unsigned decimals)
{
    hak_assert(decimals <= 9);
    if (denominator == 0) {
        hak_text_char(text, '-');
        return;
    }
    /* Long division multiplies a rest below the denominator by ten; the bits given up here are
     * worth less than the ninth decimal. */
    while (denominator > UINT64_MAX / 10) {
        numerator >>= 1;
        denominator >>= 1;
    }

    uint64_t whole = numerator / denominator;
    uint64_t rest = numerator % denominator;
    uint64_t fraction = 0;
    uint64_t one = 1;
    for (unsigned i = 0; i < decimals; i++) {
        rest *= 10;
        fraction = fraction * 10 + rest / denominator;
        rest %= denominator;
        one *= 10;
    }
    if (rest >= denominator - rest)
        fraction++;
    if (fraction == one) {
        fraction = 0;
        whole++;
    }

    hak_text_unsigned(text, whole);
    if (decimals == 0)
        return;
    hak_text_char(text, '.');
    for (one /= 10; one != 0; one /= 10)
        hak_text_char(text, (char)('0' + fraction / one % 10));
}

static const char *const byte_units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
enum { LAST_BYTE_UNIT = 6 };

void hak_text_bytes(hak_text *text, uint64_t bytes)
{
    unsigned unit = 0;
    uint64_t scale = 1;

    while (unit < LAST_BYTE_UNIT && bytes / scale >= 1024) {
        scale <<= 10;
        unit++;
    }
    /* From 1023.95 on the rounded figure would read 1024.0. */
    if (unit > 0 && unit < LAST_BYTE_UNIT && scale * 1024 - bytes <= scale / 20) {
        scale <<= 10;
        unit++;
    }
    hak_text_ratio(text, bytes, scale, bytes % scale == 0 ? 0 : 1);
    hak_text_char(text, ' ');
    hak_text_put(text, byte_units[unit]);
}

void hak_text_bytes_exact(hak_text *text, uint64_t bytes)
{
    unsigned unit = 0;

    /* Not beyond TiB, the largest suffix that options take. */
    while (bytes != 0 && bytes % 1024 == 0 && unit < 4) {
        bytes /= 1024;
        unit++;
    }
    hak_text_unsigned(text, bytes);
    if (unit > 0) {
        hak_text_char(text, ' ');
        hak_text_put(text, byte_units[unit]);
    }
}

void hak_text_left(hak_text *text, size_t start, size_t width)
{
    size_t used = text->length - start;

    if (used < width)
        hak_text_fill(text, ' ', width - used);
}

void hak_text_right(hak_text *text, size_t start, size_t width)
{
    size_t used = text->length - start;

    if (used >= width)
        return;
    size_t length = text->length;
    hak_text_fill(text, ' ', width - used);
    size_t blanks = text->length - length;
    memmove(text->buffer + start + blanks, text->buffer + start, used);
    memset(text->buffer + start, ' ', blanks);
}

/* The kernel's signal set on 64-bit machines. */
typedef uint64_t kernel_sigset;
static const kernel_sigset sigpipe_set = (kernel_sigset)1 << (SIGPIPE - 1);

static long mask_signals(int how, const kernel_sigset *set, kernel_sigset *before)
{
    return hak_syscall4(SYS_rt_sigprocmask, how, (long)set, (long)before, sizeof(*set));
}

static long write_retrying(int fd, const char *data, size_t bytes)
{
    while (bytes != 0) {
        long written = hak_syscall3(SYS_write, fd, (long)data, (long)bytes);
        if (written == -EINTR)
            continue;
        if (written <= 0)
            return written < 0 ? written : -EIO;
        data += written;
        bytes -= (size_t)written;
    }
    return 0;
}

bool hak_write_all(int fd, const void *data, size_t bytes)
{
    kernel_sigset before = 0;
    kernel_sigset pending = 0;

    bool blocked = mask_signals(SIG_BLOCK, &sigpipe_set, &before) == 0;
    /* One that was pending already is the host's and stays. It can only be so where the host had
     * blocked the signal. */
    if (blocked && (before & sigpipe_set))
        hak_syscall3(SYS_rt_sigpending, (long)&pending, sizeof(pending), 0);

    long result = write_retrying(fd, data, bytes);

    if (blocked && result == -EPIPE && !(pending & sigpipe_set)) {
        const struct timespec now = {0, 0};
        hak_syscall4(SYS_rt_sigtimedwait, (long)&sigpipe_set, 0, (long)&now, sizeof(sigpipe_set));
    }
    if (blocked)
        mask_signals(SIG_SETMASK, &before, NULL);
    return result == 0;
}

bool hak_text_write(const hak_text *text, int fd)
{
    return hak_write_all(fd, text->buffer, text->length);
}
