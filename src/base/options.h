/* options.h: reading options from text. Pure: no environment, no file, no output, no allocation;
 * texts are given with their length and need no NUL. */
#ifndef HAK_BASE_OPTIONS_H
#define HAK_BASE_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/format.h"

/* Named in small letters after the units in the table of knobs, which pastes them. */
typedef enum hak_unit {
    HAK_UNIT_bytes,
    HAK_UNIT_blocks,
    HAK_UNIT_count, /* of something else, which the knob's text names */
    HAK_UNIT_percent,
    HAK_UNIT_ms,
    HAK_UNIT_switch,
    HAK_UNIT_choice,
    HAK_UNIT_COUNT
} hak_unit;

typedef enum hak_parse {
    HAK_PARSE_OK,
    HAK_PARSE_EMPTY,
    HAK_PARSE_NOT_A_NUMBER,
    HAK_PARSE_BAD_SUFFIX,
    HAK_PARSE_OVERFLOW, /* of 64 bits */
    HAK_PARSE_OUT_OF_BOUNDS,
    HAK_PARSE_NOT_A_CHOICE,
    HAK_PARSE_TOO_LONG,
    HAK_PARSE_COUNT
} hak_parse;

/* Reads a value of the unit. `value` is written where the result is HAK_PARSE_OK. Blanks around the
 * number are allowed; signs and fractions are not. Bounds are the caller's. */
hak_parse hak_parse_value(const char *text, size_t length, hak_unit unit, uint64_t *value);

/* Reads a number as glibc's options are written: decimal, 0x or 0 for octal, and -1 for "no limit"
 * (any negative number wraps, as it does there). */
hak_parse hak_parse_c_number(const char *text, size_t length, uint64_t *value);

/* What went wrong, as the middle of a sentence: "is no whole number". */
const char *hak_parse_text(hak_parse result);

const char *hak_unit_name(hak_unit unit);
/* What is accepted, for messages and documentation. */
const char *hak_unit_accepts(hak_unit unit);
/* Writes a value so that hak_parse_value reads the same one. */
void hak_unit_put(hak_text *text, hak_unit unit, uint64_t value);

/* One line of a config file: "name = value", "# comment" or blank. The comment may follow a value
 * after a blank. */
typedef enum hak_config_kind {
    HAK_CONFIG_BLANK,
    HAK_CONFIG_SETTING,
    HAK_CONFIG_MALFORMED
} hak_config_kind;

typedef struct hak_config_line {
    const char *name;
    size_t name_length;
    const char *value;
    size_t value_length;
} hak_config_line;

hak_config_kind hak_config_parse(const char *line, size_t length, hak_config_line *out);

/* ASCII only: options are the same in every locale. */
bool hak_same_word(const char *a, size_t a_length, const char *b, size_t b_length);

/* What follows "name=" at the start of `text`, or NULL. Both end in NUL. */
const char *hak_after_name(const char *text, const char *name);

/* Damerau-Levenshtein distance (optimal string alignment: a swap of neighbours counts one), capital
 * letters being equal to small ones. Above `bound`, or for words of more than HAK_WORD_MAX bytes,
 * the result is bound + 1. */
#define HAK_WORD_MAX 63
unsigned hak_word_distance(const char *a, size_t a_length, const char *b, size_t b_length,
                           unsigned bound);

/* The best of the candidates shown to it, where one is near enough to be meant. */
typedef struct hak_nearest {
    const char *word;
    size_t length;
    unsigned bound; /* the distance that a candidate has to reach */
    const char *best;
} hak_nearest;

void hak_nearest_start(hak_nearest *nearest, const char *word, size_t length);
void hak_nearest_try(hak_nearest *nearest, const char *candidate);

#endif
