/* The environment and the config file: found, read, and what is wrong with them said. */
#include "policy/options.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/syscall.h"

#define PREFIX "HAKMEM_"
#define PREFIX_LENGTH (sizeof(PREFIX) - 1)
#define CONFIG_NAME ".hakmemrc"

enum { PROBLEMS_MAX = 20 };

const char *hak_stats_path;

hak_settings hak_settings_in_force;
static _Atomic bool ready;

const hak_option_info hak_option_table[HAK_OPTION_COUNT] = {
    [HAK_OPTION_MODE] = {"mode", "HAKMEM_MODE", "balanced",
                         "minimal, fast, balanced, learning, research",
                         "Preset: the setting of every knob that nothing else sets", true},
    [HAK_OPTION_CONF] = {"conf", "HAKMEM_CONF", "", "a path; empty: no config file",
                         "Config file to read in place of " CONFIG_NAME, false},
    [HAK_OPTION_HELP] = {"help", "HAKMEM_HELP", "0", "0, 1, markdown",
                         "Print this table on stderr at start", false},
    [HAK_OPTION_LOG] = {"log", "HAKMEM_LOG", "warn", "error, warn, info, debug",
                        "How much hakmem says on stderr", true},
    [HAK_OPTION_STATS_FILE] = {"stats_file", "HAKMEM_STATS_FILE", "", "a path",
                               "File to which HAKMEM_STATS=1 appends instead of stderr", true},
};

/* ---- Problems, named ------------------------------------------------------------------------- */

typedef struct place {
    const char *path; /* NULL: the environment */
    unsigned line;
} place;

/* Starts a line about a problem; false where enough were named. */
static bool problem_start(hak_settings *settings, const place *where, hak_line *line)
{
    hak_line_start(line);
    settings->problems++;
    if (settings->problems > PROBLEMS_MAX) {
        if (settings->problems == PROBLEMS_MAX + 1) {
            hak_text_put(&line->text, "further problems with options are not named");
            hak_line_end(line, HAK_LOG_WARN);
        }
        return false;
    }
    if (where->path != NULL) {
        hak_text_quoted(&line->text, where->path, strlen(where->path));
        hak_text_put(&line->text, " line ");
        hak_text_unsigned(&line->text, where->line);
        hak_text_put(&line->text, ": ");
    }
    return true;
}

void hak_knob_put_bounds(hak_text *text, const hak_knob_info *info)
{
    hak_unit_put(text, info->unit, info->minimum);
    hak_text_put(text, " to ");
    hak_unit_put(text, info->unit, info->maximum);
}

static size_t column_of(const hak_text *text)
{
    size_t start = text->length;
    while (start > 0 && text->buffer[start - 1] != '\n')
        start--;
    return text->length - start;
}

void hak_put_wrapped(hak_text *text, const char *indent, const char *words)
{
    while (*words != '\0') {
        size_t length = strcspn(words, " ");
        if (column_of(text) + 1 + length > HAK_LINE_COLUMNS) {
            hak_text_char(text, '\n');
            hak_text_put(text, indent);
        }
        hak_text_char(text, ' ');
        hak_text_put_n(text, words, length);
        words += length;
        words += strspn(words, " ");
    }
}

/* Settings are numbered through: the knobs, then the options that are none. */
enum { SETTING_COUNT = HAK_KNOB_COUNT + HAK_OPTION_COUNT };

static const char *setting_variable(unsigned setting)
{
    return setting < HAK_KNOB_COUNT ? hak_knob_table[setting].variable
                                    : hak_option_table[setting - HAK_KNOB_COUNT].variable;
}

static const char *setting_name(unsigned setting)
{
    return setting < HAK_KNOB_COUNT ? hak_knob_table[setting].name
                                    : hak_option_table[setting - HAK_KNOB_COUNT].name;
}

static void report_unknown(hak_settings *settings, const place *where, const char *name,
                           size_t length)
{
    const bool from_file = where->path != NULL;
    hak_line line;
    hak_nearest nearest;

    if (!problem_start(settings, where, &line))
        return;
    hak_text_put(&line.text, "unknown option ");
    hak_text_quoted(&line.text, name, length);
    hak_text_put(&line.text, "; ignored");

    /* Compared without the prefix, which would make any two names alike. */
    if (!from_file) {
        name += PREFIX_LENGTH;
        length -= PREFIX_LENGTH;
    }
    hak_nearest_start(&nearest, name, length);
    for (unsigned i = 0; i < SETTING_COUNT; i++)
        hak_nearest_try(&nearest,
                        from_file ? setting_name(i) : setting_variable(i) + PREFIX_LENGTH);
    if (nearest.best != NULL) {
        hak_text_put(&line.text, ". Did you mean ");
        if (!from_file)
            hak_text_put(&line.text, PREFIX);
        hak_text_put(&line.text, nearest.best);
        hak_text_char(&line.text, '?');
    }
    hak_line_end(&line, HAK_LOG_WARN);
}

/* On lines of their own, in the same write. */
static void put_accepted(hak_text *text, unsigned setting)
{
    char buffer[160];
    hak_text accepted;

    hak_text_init(&accepted, buffer, sizeof(buffer));
    if (setting < HAK_KNOB_COUNT) {
        const hak_knob_info *info = &hak_knob_table[setting];
        hak_knob_put_bounds(&accepted, info);
        hak_text_put(&accepted, "; ");
        hak_text_put(&accepted, hak_unit_accepts(info->unit));
    } else {
        hak_text_put(&accepted, hak_option_table[setting - HAK_KNOB_COUNT].accepts);
    }
    hak_text_put(text, "\nhakmem:   Accepted:");
    hak_put_wrapped(text, "hakmem:  ", buffer);
}

static void report_malformed(hak_settings *settings, const place *where, unsigned setting,
                             const char *value, size_t length, hak_parse why)
{
    hak_line line;

    if (!problem_start(settings, where, &line))
        return;
    hak_text_put(&line.text,
                 where->path != NULL ? setting_name(setting) : setting_variable(setting));
    hak_text_char(&line.text, '=');
    hak_text_quoted(&line.text, value, length);
    hak_text_char(&line.text, ' ');
    hak_text_put(&line.text, hak_parse_text(why));
    hak_text_put(&line.text, "; ignored");
    put_accepted(&line.text, setting);
    hak_line_end(&line, HAK_LOG_WARN);
}

static void report_line(hak_settings *settings, const place *where, const char *what,
                        const char *text, size_t length)
{
    hak_line line;

    if (!problem_start(settings, where, &line))
        return;
    hak_text_quoted(&line.text, text, length);
    hak_text_char(&line.text, ' ');
    hak_text_put(&line.text, what);
    hak_line_end(&line, HAK_LOG_WARN);
}

/* ---- One setting ----------------------------------------------------------------------------- */

static hak_parse take_path(char *out, const char *value, size_t length)
{
    if (length >= HAK_PATH_BYTES)
        return HAK_PARSE_TOO_LONG;
    memcpy(out, value, length);
    out[length] = '\0';
    return HAK_PARSE_OK;
}

static hak_parse take_help(hak_settings *settings, const char *value, size_t length)
{
    uint64_t on = 0;

    if (hak_same_word(value, length, "markdown", strlen("markdown"))) {
        settings->help = HAK_HELP_MARKDOWN;
        return HAK_PARSE_OK;
    }
    if (hak_parse_value(value, length, HAK_UNIT_switch, &on) != HAK_PARSE_OK || on > 1)
        return HAK_PARSE_NOT_A_CHOICE;
    settings->help = on ? HAK_HELP_TABLE : HAK_HELP_NONE;
    return HAK_PARSE_OK;
}

static hak_parse take_log(hak_settings *settings, const char *value, size_t length)
{
    for (unsigned i = 0; i < HAK_LOG_LEVEL_COUNT; i++) {
        const char *name = hak_log_level_name((hak_log_level)i);
        if (hak_same_word(value, length, name, strlen(name))) {
            settings->log_level = (hak_log_level)i;
            /* At once, not when all is read: it also governs what is said of the other options. */
            hak_log_set_level(settings->log_level);
            return HAK_PARSE_OK;
        }
    }
    return HAK_PARSE_NOT_A_CHOICE;
}

static hak_parse take_option(hak_settings *settings, hak_option option, const char *value,
                             size_t length)
{
    switch (option) {
    case HAK_OPTION_MODE: {
        hak_preset preset = hak_preset_find(value, length);
        if (preset == HAK_PRESET_COUNT)
            return HAK_PARSE_NOT_A_CHOICE;
        settings->preset = preset;
        return HAK_PARSE_OK;
    }
    case HAK_OPTION_CONF:
        return take_path(settings->conf, value, length);
    case HAK_OPTION_HELP:
        return take_help(settings, value, length);
    case HAK_OPTION_LOG:
        return take_log(settings, value, length);
    case HAK_OPTION_STATS_FILE:
        return length == 0 ? HAK_PARSE_EMPTY : take_path(settings->stats_file, value, length);
    default:
        return HAK_PARSE_NOT_A_CHOICE;
    }
}

static void take_setting(hak_settings *settings, const place *where, unsigned setting,
                         const char *value, size_t length)
{
    const hak_source source = where->path != NULL ? HAK_SOURCE_FILE : HAK_SOURCE_ENVIRONMENT;
    uint8_t *known = setting < HAK_KNOB_COUNT ? &settings->source[setting]
                                              : &settings->option_source[setting - HAK_KNOB_COUNT];
    hak_parse result;

    /* The environment wins over the file, and of two equal variables the first counts, as with
     * getenv. Of two lines in a file it is the last. */
    if (*known == HAK_SOURCE_ENVIRONMENT)
        return;
    if (setting < HAK_KNOB_COUNT)
        result = hak_knob_parse((hak_knob)setting, value, length, &settings->value[setting]);
    else
        result = take_option(settings, (hak_option)(setting - HAK_KNOB_COUNT), value, length);
    if (result == HAK_PARSE_OK)
        *known = (uint8_t)source;
    else
        report_malformed(settings, where, setting, value, length, result);
}

/* ---- Sources --------------------------------------------------------------------------------- */

void hak_settings_start(hak_settings *settings)
{
    *settings = (hak_settings){.preset = HAK_PRESET_BALANCED, .log_level = HAK_LOG_WARN};
    hak_log_set_level(HAK_LOG_WARN);
    for (unsigned i = 0; i < HAK_KNOB_COUNT; i++)
        settings->value[i] = hak_preset_value(HAK_PRESET_BALANCED, (hak_knob)i);
}

static void take_variable(hak_settings *settings, const char *variable)
{
    static const place environment = {NULL, 0};
    size_t length = strcspn(variable, "=");

    if (variable[length] != '=')
        return;
    for (unsigned i = 0; i < SETTING_COUNT; i++) {
        const char *value = hak_after_name(variable, setting_variable(i));
        if (value != NULL) {
            take_setting(settings, &environment, i, value, strlen(value));
            return;
        }
    }
    report_unknown(settings, &environment, variable, length);
}

void hak_settings_environment(hak_settings *settings, char *const *variables)
{
    if (variables == NULL)
        return;
    /* The log level first: it decides whether the rest is worth a line. */
    for (char *const *variable = variables; *variable != NULL; variable++) {
        if (hak_after_name(*variable, hak_option_table[HAK_OPTION_LOG].variable) != NULL)
            take_variable(settings, *variable);
    }
    for (char *const *variable = variables; *variable != NULL; variable++) {
        if (strncmp(*variable, PREFIX, PREFIX_LENGTH) == 0 &&
            hak_after_name(*variable, hak_option_table[HAK_OPTION_LOG].variable) == NULL)
            take_variable(settings, *variable);
    }
}

static void take_config_line(hak_settings *settings, const place *where, const char *line,
                             size_t length)
{
    hak_config_line parsed;

    switch (hak_config_parse(line, length, &parsed)) {
    case HAK_CONFIG_BLANK:
        return;
    case HAK_CONFIG_MALFORMED:
        report_line(settings, where, "is not \"name = value\"; ignored", line, length);
        return;
    case HAK_CONFIG_SETTING:
        break;
    }
    /* Lines are often copied from a shell. */
    if (parsed.name_length > PREFIX_LENGTH &&
        hak_same_word(parsed.name, PREFIX_LENGTH, PREFIX, PREFIX_LENGTH)) {
        parsed.name += PREFIX_LENGTH;
        parsed.name_length -= PREFIX_LENGTH;
    }
    for (unsigned i = 0; i < SETTING_COUNT; i++) {
        const char *name = setting_name(i);
        if (!hak_same_word(parsed.name, parsed.name_length, name, strlen(name)))
            continue;
        if (i >= HAK_KNOB_COUNT && !hak_option_table[i - HAK_KNOB_COUNT].in_file)
            report_line(settings, where, "is taken from the environment alone; ignored", name,
                        strlen(name));
        else
            take_setting(settings, where, i, parsed.value, parsed.value_length);
        return;
    }
    report_unknown(settings, where, parsed.name, parsed.name_length);
}

void hak_settings_text(hak_settings *settings, const char *path, const char *text, size_t length)
{
    place where = {path, 0};

    while (length != 0) {
        const char *newline = memchr(text, '\n', length);
        size_t line = newline != NULL ? (size_t)(newline - text) : length;
        where.line++;
        take_config_line(settings, &where, text, line);
        line += newline != NULL;
        text += line;
        length -= line;
    }
}

static void report_file(const char *path, const char *what, hak_log_level level)
{
    hak_line line;

    hak_line_start(&line);
    hak_text_put(&line.text, "config file ");
    hak_text_quoted(&line.text, path, strlen(path));
    hak_text_char(&line.text, ' ');
    hak_text_put(&line.text, what);
    hak_line_end(&line, level);
}

/* Why a file is refused, or NULL. */
static const char *config_fault(const struct stat *about)
{
    if (!S_ISREG(about->st_mode))
        return "is not a regular file; ignored";
    if (about->st_uid != geteuid() && about->st_uid != 0)
        return "belongs to another user; ignored";
    if (about->st_mode & S_IWOTH)
        return "may be written by everybody; ignored";
    return NULL;
}

/* Reads up to `bytes`; a negative result is -errno. */
static long read_all(int fd, char *out, size_t bytes)
{
    size_t done = 0;

    while (done < bytes) {
        long got = hak_syscall3(SYS_read, fd, (long)(out + done), (long)(bytes - done));
        if (got == -EINTR)
            continue;
        if (got < 0)
            return got;
        if (got == 0)
            break;
        done += (size_t)got;
    }
    return (long)done;
}

bool hak_settings_file(hak_settings *settings, const char *path, bool asked_for)
{
    /* One byte more than is taken, to see that a file is too large. Not touched, and so no memory,
     * where there is no config file. */
    static char buffer[HAK_CONFIG_BYTES + 1];
    struct stat about;

    /* Not blocking: the name may be a pipe's. */
    long fd = hak_syscall4(SYS_openat, AT_FDCWD, (long)path,
                           O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, 0);
    if (hak_syscall_failed(fd)) {
        bool absent = fd == -ENOENT || fd == -ENOTDIR;
        if (asked_for || !absent)
            report_file(path, absent ? "does not exist" : "can't be opened",
                        asked_for ? HAK_LOG_WARN : HAK_LOG_INFO);
        return false;
    }

    long length = 0;
    const char *fault = "can't be read; ignored";
    if (hak_syscall3(SYS_fstat, fd, (long)&about, 0) == 0) {
        fault = config_fault(&about);
        if (fault == NULL)
            length = read_all((int)fd, buffer, sizeof(buffer));
        if (length < 0)
            fault = "can't be read; ignored";
        else if ((size_t)length > HAK_CONFIG_BYTES)
            fault = "is larger than 64 KiB; ignored";
    }
    hak_syscall3(SYS_close, fd, 0, 0);
    if (fault != NULL) {
        report_file(path, fault, HAK_LOG_WARN);
        return false;
    }

    take_path(settings->file, path, strlen(path));
    report_file(path, "is read", HAK_LOG_INFO);
    hak_settings_text(settings, path, buffer, (size_t)length);
    return true;
}

static void find_file(hak_settings *settings, char *const *variables)
{
    char path[HAK_PATH_BYTES];
    hak_text text;

    if (settings->option_source[HAK_OPTION_CONF] != HAK_SOURCE_PRESET) {
        if (settings->conf[0] != '\0')
            hak_settings_file(settings, settings->conf, true);
        return;
    }
    /* One that is refused does not keep the user's own from being found. */
    if (hak_settings_file(settings, CONFIG_NAME, false))
        return;
    for (; variables != NULL && *variables != NULL; variables++) {
        const char *home = hak_after_name(*variables, "HOME");
        if (home == NULL)
            continue;
        hak_text_init(&text, path, sizeof(path));
        hak_text_put(&text, home);
        hak_text_put(&text, "/" CONFIG_NAME);
        if (home[0] == '/' && !text.truncated)
            hak_settings_file(settings, path, false);
        return;
    }
}

void hak_settings_load(hak_settings *settings, char *const *variables, bool secure)
{
    hak_settings_start(settings);
    if (!secure) {
        hak_settings_environment(settings, variables);
        find_file(settings, variables);
        hak_settings_glibc(settings, variables);
    }
    for (unsigned i = 0; i < HAK_KNOB_COUNT; i++) {
        if (settings->source[i] == HAK_SOURCE_PRESET)
            settings->value[i] = hak_preset_value(settings->preset, (hak_knob)i);
    }
}

/* ---- In force -------------------------------------------------------------------------------- */

void hak_policy_init(void)
{
    /* Pairs with the release store below: who sees it sees `hak_settings_in_force` filled. */
    if (atomic_load_explicit(&ready, memory_order_acquire))
        return;
    hak_lock_take(&hak_policy_lock);
    /* Relaxed: the lock orders it. */
    bool first = !atomic_load_explicit(&ready, memory_order_relaxed);
    if (first) {
        /* AT_SECURE is what secure_getenv asks as well. Asked once, because the environment is not
         * looked up by name but walked, so that unknown names are found. */
        hak_settings_load(&hak_settings_in_force, environ, getauxval(AT_SECURE) != 0);
        if (hak_settings_in_force.stats_file[0] != '\0')
            hak_stats_path = hak_settings_in_force.stats_file;
        hak_policy_publish_locked(hak_settings_in_force.value);
        atomic_store_explicit(&ready, true, memory_order_release);
    }
    hak_lock_drop(&hak_policy_lock);
    if (first && hak_settings_in_force.help != HAK_HELP_NONE)
        hak_options_print(STDERR_FILENO, hak_settings_in_force.help == HAK_HELP_MARKDOWN);
}
