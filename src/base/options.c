#include "base/options.h"

#include <string.h>

static char lower(char c)
{
    return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r';
}

static void trim(const char **text, size_t *length)
{
    while (*length != 0 && is_blank(**text)) {
        (*text)++;
        (*length)--;
    }
    while (*length != 0 && is_blank((*text)[*length - 1]))
        (*length)--;
}

bool hak_same_word(const char *a, size_t a_length, const char *b, size_t b_length)
{
    if (a_length != b_length)
        return false;
    for (size_t i = 0; i < a_length; i++) {
        if (lower(a[i]) != lower(b[i]))
            return false;
    }
    return true;
}

const char *hak_after_name(const char *text, const char *name)
{
    size_t length = strlen(name);
    return strncmp(text, name, length) == 0 && text[length] == '=' ? text + length + 1 : NULL;
}

/* The 1 or 0 that a word stands for, or -1. */
static int switch_word(const char *text, size_t length)
{
    static const char *const words[][2] = {
        {"off", "on"},
        {"no", "yes"},
        {"false", "true"},
    };

    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        for (int value = 0; value <= 1; value++) {
            if (hak_same_word(text, length, words[i][value], strlen(words[i][value])))
                return value;
        }
    }
    return -1;
}

static uint64_t byte_suffix(const char *suffix, size_t length)
{
    static const char letters[] = "kmgt";
    uint64_t factor = 1;

    const char *letter = memchr(letters, lower(suffix[0]), sizeof(letters) - 1);
    if (letter != NULL) {
        factor = (uint64_t)1024 << (10 * (letter - letters));
        suffix++;
        length--;
        if (length != 0 && lower(suffix[0]) == 'i') {
            suffix++;
            length--;
        }
    }
    if (length != 0 && lower(suffix[0]) == 'b')
        length--;
    return length == 0 ? factor : 0;
}

/* What the number before the suffix is multiplied by; 0: the unit has no such suffix. */
static uint64_t suffix_factor(hak_unit unit, const char *suffix, size_t length)
{
    if (length == 0)
        return 1;
    switch (unit) {
    case HAK_UNIT_bytes:
        return byte_suffix(suffix, length);
    case HAK_UNIT_blocks:
    case HAK_UNIT_count:
        return hak_same_word(suffix, length, "k", 1) ? 1024 : 0;
    case HAK_UNIT_percent:
        return hak_same_word(suffix, length, "%", 1) ? 1 : 0;
    case HAK_UNIT_ms:
        if (hak_same_word(suffix, length, "ms", 2))
            return 1;
        return hak_same_word(suffix, length, "s", 1) ? 1000 : 0;
    default:
        return 0;
    }
}

static int digit_value(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c = lower(c);
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : 16;
}

/* Reads digits of the base from the front of the text, which then starts behind them. */
static hak_parse take_digits(const char **text, size_t *length, unsigned base, uint64_t *value)
{
    uint64_t sum = 0;
    bool overflow = false;
    size_t taken = 0;

    for (; taken < *length && (unsigned)digit_value((*text)[taken]) < base; taken++) {
        overflow |= __builtin_mul_overflow(sum, (uint64_t)base, &sum);
        overflow |= __builtin_add_overflow(sum, (uint64_t)digit_value((*text)[taken]), &sum);
    }
    if (taken == 0)
        return HAK_PARSE_NOT_A_NUMBER;
    *text += taken;
    *length -= taken;
    *value = sum;
    return overflow ? HAK_PARSE_OVERFLOW : HAK_PARSE_OK;
}

hak_parse hak_parse_value(const char *text, size_t length, hak_unit unit, uint64_t *value)
{
    uint64_t number = 0;

    trim(&text, &length);
    if (length == 0)
        return HAK_PARSE_EMPTY;
    if (unit == HAK_UNIT_switch || unit == HAK_UNIT_choice) {
        int word = switch_word(text, length);
        if (word >= 0) {
            *value = (uint64_t)word;
            return HAK_PARSE_OK;
        }
    }
    hak_parse result = take_digits(&text, &length, 10, &number);
    if (result != HAK_PARSE_OK)
        return result;
    trim(&text, &length);
    uint64_t factor = suffix_factor(unit, text, length);
    if (factor == 0)
        return HAK_PARSE_BAD_SUFFIX;
    if (__builtin_mul_overflow(number, factor, &number))
        return HAK_PARSE_OVERFLOW;
    *value = number;
    return HAK_PARSE_OK;
}

hak_parse hak_parse_c_number(const char *text, size_t length, uint64_t *value)
{
    unsigned base = 10;
    uint64_t number = 0;

    trim(&text, &length);
    if (length == 0)
        return HAK_PARSE_EMPTY;
    bool negative = text[0] == '-';
    if (negative) {
        text++;
        length--;
    }
    if (length > 2 && text[0] == '0' && lower(text[1]) == 'x') {
        base = 16;
        text += 2;
        length -= 2;
    } else if (length > 1 && text[0] == '0') {
        base = 8;
    }
    hak_parse result = take_digits(&text, &length, base, &number);
    if (result != HAK_PARSE_OK)
        return result;
    if (length != 0)
        return HAK_PARSE_BAD_SUFFIX;
    *value = negative ? 0 - number : number;
    return HAK_PARSE_OK;
}

const char *hak_parse_text(hak_parse result)
{
    static const char *const texts[HAK_PARSE_COUNT] = {
        [HAK_PARSE_OK] = "is right",
        [HAK_PARSE_EMPTY] = "is empty",
        [HAK_PARSE_NOT_A_NUMBER] = "is no whole number",
        [HAK_PARSE_BAD_SUFFIX] = "has an unknown unit",
        [HAK_PARSE_OVERFLOW] = "is too large for 64 bits",
        [HAK_PARSE_OUT_OF_BOUNDS] = "is out of bounds",
        [HAK_PARSE_NOT_A_CHOICE] = "is none of the choices",
        [HAK_PARSE_TOO_LONG] = "is too long",
    };
    return texts[result];
}

const char *hak_unit_name(hak_unit unit)
{
    static const char *const names[HAK_UNIT_COUNT] = {
        [HAK_UNIT_bytes] = "bytes",     [HAK_UNIT_blocks] = "blocks", [HAK_UNIT_count] = "count",
        [HAK_UNIT_percent] = "percent", [HAK_UNIT_ms] = "ms",         [HAK_UNIT_switch] = "switch",
        [HAK_UNIT_choice] = "choice",
    };
    return names[unit];
}

const char *hak_unit_accepts(hak_unit unit)
{
    static const char *const texts[HAK_UNIT_COUNT] = {
        [HAK_UNIT_bytes] = "a whole number of bytes; k, m, g, t (KiB, MiB, ...) are powers of 1024",
        [HAK_UNIT_blocks] = "a whole number; k is 1024",
        [HAK_UNIT_count] = "a whole number; k is 1024",
        [HAK_UNIT_percent] = "a whole number, % may follow",
        [HAK_UNIT_ms] = "a whole number of milliseconds, or of seconds with s",
        [HAK_UNIT_switch] = "0 or 1, off or on, no or yes, false or true",
        [HAK_UNIT_choice] = "the number of the choice; off is 0, on is 1",
    };
    return texts[unit];
}

void hak_unit_put(hak_text *text, hak_unit unit, uint64_t value)
{
    if (unit == HAK_UNIT_bytes) {
        hak_text_bytes_exact(text, value);
        return;
    }
    bool seconds = unit == HAK_UNIT_ms && value >= 1000 && value % 1000 == 0;
    hak_text_unsigned(text, seconds ? value / 1000 : value);
    if (unit == HAK_UNIT_percent)
        hak_text_char(text, '%');
    else if (unit == HAK_UNIT_ms)
        hak_text_put(text, seconds ? " s" : " ms");
}

hak_config_kind hak_config_parse(const char *line, size_t length, hak_config_line *out)
{
    /* A # inside a value (a path may have one) is no comment. */
    for (size_t i = 0; i < length; i++) {
        if (line[i] == '#' && (i == 0 || is_blank(line[i - 1]))) {
            length = i;
            break;
        }
    }
    trim(&line, &length);
    if (length == 0)
        return HAK_CONFIG_BLANK;
    const char *equals = memchr(line, '=', length);
    if (equals == NULL)
        return HAK_CONFIG_MALFORMED;

    out->name = line;
    out->name_length = (size_t)(equals - line);
    out->value = equals + 1;
    out->value_length = length - out->name_length - 1;
    trim(&out->name, &out->name_length);
    trim(&out->value, &out->value_length);
    return out->name_length == 0 ? HAK_CONFIG_MALFORMED : HAK_CONFIG_SETTING;
}

static unsigned min_of(unsigned a, unsigned b)
{
    return a < b ? a : b;
}

unsigned hak_word_distance(const char *a, size_t a_length, const char *b, size_t b_length,
                           unsigned bound)
{
    /* Three rows of the table: this one, the one before, and the one before that for swaps. */
    unsigned rows[3][HAK_WORD_MAX + 1];

    if (a_length > HAK_WORD_MAX || b_length > HAK_WORD_MAX)
        return bound + 1;
    for (size_t j = 0; j <= b_length; j++)
        rows[0][j] = (unsigned)j;
    for (size_t i = 1; i <= a_length; i++) {
        unsigned *row = rows[i % 3];
        const unsigned *above = rows[(i + 2) % 3];
        const unsigned *above2 = rows[(i + 1) % 3];
        row[0] = (unsigned)i;
        for (size_t j = 1; j <= b_length; j++) {
            bool same = lower(a[i - 1]) == lower(b[j - 1]);
            row[j] = min_of(above[j - 1] + !same, min_of(above[j], row[j - 1]) + 1);
            if (i > 1 && j > 1 && lower(a[i - 1]) == lower(b[j - 2]) &&
                lower(a[i - 2]) == lower(b[j - 1]))
                row[j] = min_of(row[j], above2[j - 2] + 1);
        }
    }
    return min_of(rows[a_length % 3][b_length], bound + 1);
}

void hak_nearest_start(hak_nearest *nearest, const char *word, size_t length)
{
    /* A third of the word may be wrong; more than three letters is another word. */
    unsigned bound = length >= 9 ? 3 : (unsigned)(length / 3);
    *nearest = (hak_nearest){.word = word, .length = length, .bound = bound};
}

void hak_nearest_try(hak_nearest *nearest, const char *candidate)
{
    unsigned distance = hak_word_distance(nearest->word, nearest->length, candidate,
                                          strlen(candidate), nearest->bound);
    if (distance > nearest->bound || (distance == nearest->bound && nearest->best != NULL))
        return;
    nearest->bound = distance;
    nearest->best = candidate;
}
