/* log.h: what hakmem says on stderr. A line starts with "hakmem: " and is one write, so that lines
 * of several threads and processes don't mix.
 *
 * May be called from anywhere, signal handlers and the inside of malloc included: takes no lock,
 * allocates nothing, keeps errno.
 *
 *     hak_line line;
 *     hak_line_start(&line);
 *     hak_text_put(&line.text, "no memory: ");
 *     hak_text_bytes(&line.text, bytes);
 *     hak_line_end(&line, HAK_LOG_ERROR);
 */
#ifndef HAK_BASE_LOG_H
#define HAK_BASE_LOG_H

#include <stdatomic.h>
#include <stdbool.h>

#include "base/format.h"

typedef enum hak_log_level {
    HAK_LOG_ERROR, /* something the host asked for can't be done, or the host is broken */
    HAK_LOG_WARN,  /* something was ignored or is worse than it should be; the level at start */
    HAK_LOG_INFO,
    HAK_LOG_DEBUG,
    HAK_LOG_LEVEL_COUNT
} hak_log_level;

/* Lines above `level` are not written. */
void hak_log_set_level(hak_log_level level);
bool hak_log_enabled(hak_log_level level);

/* "error", "warn", "info", "debug". */
const char *hak_log_level_name(hak_log_level level);

void hak_log(hak_log_level level, const char *message);

/* One place that may have something to say many times and says it once. Zero-initialised. */
typedef struct hak_log_key {
    _Atomic bool seen;
} hak_log_key;

/* True for the first caller with this key, whichever thread that is. */
bool hak_log_first(hak_log_key *key);

void hak_log_once(hak_log_key *key, hak_log_level level, const char *message);

typedef struct hak_line {
    hak_text text;
    char buffer[512];
} hak_line;

void hak_line_start(hak_line *line);

/* Writes the line; one that was cut ends in "...". */
void hak_line_end(hak_line *line, hak_log_level level);

#endif
