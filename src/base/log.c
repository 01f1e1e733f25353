#include "base/log.h"

#include <string.h>
#include <unistd.h>

static _Atomic int log_level = HAK_LOG_WARN;

static const char cut_end[] = "...\n";
static const char line_end[] = "\n";

/* Relaxed here and below: the level is a value by itself and orders nothing. */
void hak_log_set_level(hak_log_level level)
{
    atomic_store_explicit(&log_level, (int)level, memory_order_relaxed);
}

bool hak_log_enabled(hak_log_level level)
{
    return (int)level <= atomic_load_explicit(&log_level, memory_order_relaxed);
}

const char *hak_log_level_name(hak_log_level level)
{
    static const char *const names[HAK_LOG_LEVEL_COUNT] = {"error", "warn", "info", "debug"};
    return names[level];
}

void hak_line_start(hak_line *line)
{
    /* The end's bytes are kept back, so that there is room for it however long the line is. */
    hak_text_init(&line->text, line->buffer, sizeof(line->buffer) - sizeof(cut_end));
    hak_text_put(&line->text, "hakmem: ");
}

void hak_line_end(hak_line *line, hak_log_level level)
{
    if (!hak_log_enabled(level))
        return;
    const char *end = line->text.truncated ? cut_end : line_end;
    size_t end_bytes = strlen(end);
    memcpy(line->buffer + line->text.length, end, end_bytes);
    hak_write_all(STDERR_FILENO, line->buffer, line->text.length + end_bytes);
}

void hak_log(hak_log_level level, const char *message)
{
    hak_line line;

    if (!hak_log_enabled(level))
        return;
    hak_line_start(&line);
    hak_text_put(&line.text, message);
    hak_line_end(&line, level);
}

bool hak_log_first(hak_log_key *key)
{
    /* Relaxed: the exchange alone decides who is first; nothing else is handed over. */
    return !atomic_exchange_explicit(&key->seen, true, memory_order_relaxed);
}

void hak_log_once(hak_log_key *key, hak_log_level level, const char *message)
{
    if (hak_log_enabled(level) && hak_log_first(key))
        hak_log(level, message);
}
