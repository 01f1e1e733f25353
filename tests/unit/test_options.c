/* Options: values, names, the environment, the config file, glibc's options, the printed tables.
 *
 * Run with an argument, the program is the host of a test: it prints what hak_policy_init made of
 * its own environment. */
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "policy/options.h"

static hak_settings settings;

/* ---- What is written to stderr */

static int real_stderr = -1;
static int diverted = -1;

static void divert_stderr(void)
{
    diverted = memfd_create("stderr", 0);
    assert_true(diverted >= 0);
    real_stderr = dup(STDERR_FILENO);
    dup2(diverted, STDERR_FILENO);
}

/* What was written since, as text that stands until the next call. */
static const char *said(void)
{
    static char text[64 << 10];
    ssize_t length = pread(diverted, text, sizeof(text) - 1, 0);
    text[length < 0 ? 0 : length] = '\0';
    assert_int_equal(ftruncate(diverted, 0), 0);
    lseek(diverted, 0, SEEK_SET);
    return text;
}

static char start_directory[1024];
static char directory[] = "/tmp/hakmem-options-XXXXXX";

/* Each test stands in an empty directory. */
static int setup(void **state)
{
    (void)state;
    hak_settings_start(&settings);
    divert_stderr();
    memcpy(directory + strlen(directory) - 6, "XXXXXX", 6);
    assert_non_null(getcwd(start_directory, sizeof(start_directory)));
    assert_non_null(mkdtemp(directory));
    return chdir(directory);
}

static int teardown(void **state)
{
    (void)state;
    unlink(".hakmemrc");
    unlink("other.conf");
    unlink("home/.hakmemrc");
    rmdir("home");
    if (chdir(start_directory) != 0 || rmdir(directory) != 0)
        return -1;
    dup2(real_stderr, STDERR_FILENO);
    close(real_stderr);
    close(diverted);
    hak_log_set_level(HAK_LOG_WARN);
    return 0;
}

static void write_file(const char *path, const char *text, size_t length)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, length), (ssize_t)length);
    close(fd);
}

static void write_config(const char *path, const char *text)
{
    write_file(path, text, strlen(text));
}

#define ENVIRONMENT(...) ((char *const[]){__VA_ARGS__, NULL})

static void load(char *const *variables)
{
    hak_settings_load(&settings, variables, false);
}

/* ---- Values */

static hak_parse parse(const char *text, hak_unit unit, uint64_t *value)
{
    return hak_parse_value(text, strlen(text), unit, value);
}

static void check_value(const char *text, hak_unit unit, uint64_t expected)
{
    uint64_t value = 77;
    if (parse(text, unit, &value) != HAK_PARSE_OK || value != expected)
        fail_msg("'%s' as %s gives %llu", text, hak_unit_name(unit), (unsigned long long)value);
}

static void check_refused(const char *text, hak_unit unit, hak_parse expected)
{
    uint64_t value = 77;
    hak_parse result = parse(text, unit, &value);
    if (result != expected || value != 77)
        fail_msg("'%s' as %s %s, value %llu", text, hak_unit_name(unit), hak_parse_text(result),
                 (unsigned long long)value);
}

static void a_suffix_is_misread(void **state)
{
    (void)state;
    check_value("0", HAK_UNIT_bytes, 0);
    check_value("512", HAK_UNIT_bytes, 512);
    check_value("512B", HAK_UNIT_bytes, 512);
    static const char *const kibi[] = {"3k", "3K", "3ki", "3KiB", "3kb", "3 KiB", " 3k\t"};
    for (size_t i = 0; i < sizeof(kibi) / sizeof(kibi[0]); i++)
        check_value(kibi[i], HAK_UNIT_bytes, 3 << 10);
    check_value("3m", HAK_UNIT_bytes, 3 << 20);
    check_value("3MiB", HAK_UNIT_bytes, 3 << 20);
    check_value("3g", HAK_UNIT_bytes, (uint64_t)3 << 30);
    check_value("3GiB", HAK_UNIT_bytes, (uint64_t)3 << 30);
    check_value("3t", HAK_UNIT_bytes, (uint64_t)3 << 40);
    check_value("4k", HAK_UNIT_blocks, 4096);
    check_value("4k", HAK_UNIT_count, 4096);
    check_value("25", HAK_UNIT_percent, 25);
    check_value("25%", HAK_UNIT_percent, 25);
    check_value("25 %", HAK_UNIT_percent, 25);
    check_value("500", HAK_UNIT_ms, 500);
    check_value("500ms", HAK_UNIT_ms, 500);
    check_value("2s", HAK_UNIT_ms, 2000);
    check_value("2S", HAK_UNIT_ms, 2000);
}

static void a_switch_knows_some_words_only(void **state)
{
    (void)state;
    static const char *const on[] = {"1", "on", "yes", "true", "ON", "True"};
    static const char *const off[] = {"0", "off", "no", "false", "Off", "NO"};
    for (size_t i = 0; i < sizeof(on) / sizeof(on[0]); i++) {
        check_value(on[i], HAK_UNIT_switch, 1);
        check_value(off[i], HAK_UNIT_switch, 0);
        check_value(off[i], HAK_UNIT_choice, 0);
    }
    check_value("2", HAK_UNIT_choice, 2);
    check_refused("onn", HAK_UNIT_switch, HAK_PARSE_NOT_A_NUMBER);
    check_refused("on", HAK_UNIT_bytes, HAK_PARSE_NOT_A_NUMBER);
}

static void a_malformed_value_is_taken(void **state)
{
    (void)state;
    check_refused("", HAK_UNIT_bytes, HAK_PARSE_EMPTY);
    check_refused(" \t", HAK_UNIT_bytes, HAK_PARSE_EMPTY);
    check_refused("k", HAK_UNIT_bytes, HAK_PARSE_NOT_A_NUMBER);
    check_refused("-1", HAK_UNIT_bytes, HAK_PARSE_NOT_A_NUMBER);
    check_refused("+1", HAK_UNIT_bytes, HAK_PARSE_NOT_A_NUMBER);
    check_refused("1.5m", HAK_UNIT_bytes, HAK_PARSE_BAD_SUFFIX);
    check_refused("64q", HAK_UNIT_bytes, HAK_PARSE_BAD_SUFFIX);
    check_refused("64ki b", HAK_UNIT_bytes, HAK_PARSE_BAD_SUFFIX);
    check_refused("64ib", HAK_UNIT_bytes, HAK_PARSE_BAD_SUFFIX);
    check_refused("64kk", HAK_UNIT_bytes, HAK_PARSE_BAD_SUFFIX);
    check_refused("0x10", HAK_UNIT_bytes, HAK_PARSE_BAD_SUFFIX);
    check_refused("64%", HAK_UNIT_bytes, HAK_PARSE_BAD_SUFFIX);
    check_refused("64k", HAK_UNIT_percent, HAK_PARSE_BAD_SUFFIX);
    check_refused("64kb", HAK_UNIT_blocks, HAK_PARSE_BAD_SUFFIX);
    check_refused("64k", HAK_UNIT_ms, HAK_PARSE_BAD_SUFFIX);
    check_refused("1ms", HAK_UNIT_switch, HAK_PARSE_BAD_SUFFIX);
}

static void an_overflow_wraps_to_a_small_value(void **state)
{
    (void)state;
    check_value("18446744073709551615", HAK_UNIT_bytes, UINT64_MAX);
    check_refused("18446744073709551616", HAK_UNIT_bytes, HAK_PARSE_OVERFLOW);
    check_refused("99999999999999999999999999", HAK_UNIT_bytes, HAK_PARSE_OVERFLOW);
    check_value("16777215t", HAK_UNIT_bytes, (uint64_t)16777215 << 40);
    check_refused("16777216t", HAK_UNIT_bytes, HAK_PARSE_OVERFLOW);
    check_refused("18446744073709552s", HAK_UNIT_ms, HAK_PARSE_OVERFLOW);
}

static void the_byte_behind_a_text_is_read(void **state)
{
    (void)state;
    uint64_t value = 0;
    assert_int_equal(hak_parse_value("64k9", 3, HAK_UNIT_bytes, &value), HAK_PARSE_OK);
    assert_int_equal(value, 64 << 10);
    assert_int_equal(hak_parse_value("649", 2, HAK_UNIT_bytes, &value), HAK_PARSE_OK);
    assert_int_equal(value, 64);
    assert_int_equal(hak_parse_value("64", 0, HAK_UNIT_bytes, &value), HAK_PARSE_EMPTY);
}

static void what_is_printed_can_not_be_read(void **state)
{
    (void)state;
    for (unsigned i = 0; i < HAK_KNOB_COUNT; i++) {
        const hak_knob_info *info = &hak_knob_table[i];
        const uint64_t values[] = {info->fallback, info->minimum, info->maximum};
        for (size_t j = 0; j < 3; j++) {
            char buffer[64];
            hak_text text;
            uint64_t back = 0;
            hak_text_init(&text, buffer, sizeof(buffer));
            hak_unit_put(&text, info->unit, values[j]);
            assert_int_equal(hak_knob_parse((hak_knob)i, buffer, text.length, &back), HAK_PARSE_OK);
            assert_true(back == values[j]);
        }
    }
}

/* ---- Names */

static unsigned distance(const char *a, const char *b, unsigned bound)
{
    return hak_word_distance(a, strlen(a), b, strlen(b), bound);
}

static void a_swap_counts_two_or_a_word_is_read_beyond(void **state)
{
    (void)state;
    assert_int_equal(distance("bin_bytes", "bin_bytes", 3), 0);
    assert_int_equal(distance("BIN_bytes", "bin_BYTES", 3), 0);
    assert_int_equal(distance("bin_byets", "bin_bytes", 3), 1);
    assert_int_equal(distance("bin_byte", "bin_bytes", 3), 1);
    assert_int_equal(distance("bin_bbytes", "bin_bytes", 3), 1);
    assert_int_equal(distance("bin_bites", "bin_bytes", 3), 1);
    assert_int_equal(distance("ca", "abc", 9), 3);
    assert_int_equal(distance("", "abc", 9), 3);
    assert_int_equal(distance("abcdef", "uvwxyz", 3), 4);
    char long_word[200];
    memset(long_word, 'a', sizeof(long_word));
    assert_int_equal(hak_word_distance(long_word, sizeof(long_word), "a", 1, 3), 4);
    assert_int_equal(hak_word_distance("a", 1, long_word, sizeof(long_word), 3), 4);
    assert_int_equal(hak_word_distance(long_word, HAK_WORD_MAX, long_word, HAK_WORD_MAX, 3), 0);
}

static void a_name_far_from_all_gets_a_suggestion(void **state)
{
    (void)state;
    hak_nearest nearest;
    hak_nearest_start(&nearest, "purge_dleay", 11);
    hak_nearest_try(&nearest, "purge_batch");
    hak_nearest_try(&nearest, "purge_delay");
    hak_nearest_try(&nearest, "purge_deley");
    assert_string_equal(nearest.best, "purge_delay");
    hak_nearest_start(&nearest, "xyz", 3);
    hak_nearest_try(&nearest, "thp");
    hak_nearest_try(&nearest, "log");
    assert_null(nearest.best);
}

/* ---- Lines of a config file */

static void a_config_line_is_cut_wrongly(void **state)
{
    (void)state;
    static const struct {
        const char *line;
        hak_config_kind kind;
        const char *name;
        const char *value;
    } cases[] = {
        {"", HAK_CONFIG_BLANK, NULL, NULL},
        {"  \t\r", HAK_CONFIG_BLANK, NULL, NULL},
        {"# a = b", HAK_CONFIG_BLANK, NULL, NULL},
        {"  # a = b", HAK_CONFIG_BLANK, NULL, NULL},
        {"a=b", HAK_CONFIG_SETTING, "a", "b"},
        {"\ta =  b c \r", HAK_CONFIG_SETTING, "a", "b c"},
        {"a = b # why", HAK_CONFIG_SETTING, "a", "b"},
        {"a = /tmp/x#1", HAK_CONFIG_SETTING, "a", "/tmp/x#1"},
        {"a = b=c", HAK_CONFIG_SETTING, "a", "b=c"},
        {"a =", HAK_CONFIG_SETTING, "a", ""},
        {"a", HAK_CONFIG_MALFORMED, NULL, NULL},
        {"= b", HAK_CONFIG_MALFORMED, NULL, NULL},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        hak_config_line line;
        assert_int_equal(hak_config_parse(cases[i].line, strlen(cases[i].line), &line),
                         cases[i].kind);
        if (cases[i].kind != HAK_CONFIG_SETTING)
            continue;
        assert_true(
            hak_same_word(line.name, line.name_length, cases[i].name, strlen(cases[i].name)));
        assert_int_equal(line.value_length, strlen(cases[i].value));
        assert_memory_equal(line.value, cases[i].value, line.value_length);
    }
}

/* ---- The environment */

static void a_variable_of_a_knob_is_not_read(void **state)
{
    (void)state;
    for (unsigned i = 0; i < HAK_KNOB_COUNT; i++) {
        char variable[128];
        const hak_knob_info *info = &hak_knob_table[i];
        uint64_t other = info->fallback == info->maximum ? info->minimum : info->maximum;
        snprintf(variable, sizeof(variable), "%s=%llu", info->variable, (unsigned long long)other);
        load(ENVIRONMENT(variable));
        assert_true(settings.value[i] == other);
        assert_int_equal(settings.source[i], HAK_SOURCE_ENVIRONMENT);
    }
    assert_string_equal(said(), "");
}

static void an_unknown_variable_is_not_named(void **state)
{
    (void)state;
    load(ENVIRONMENT("HAKMEM_BIN_BYTE=1k", "PATH=/bin", "XHAKMEM_Y=1", "HAKMEM_ZZZZZZZZ=1"));
    assert_string_equal(said(), "hakmem: unknown option 'HAKMEM_BIN_BYTE'; ignored. "
                                "Did you mean HAKMEM_BIN_BYTES?\n"
                                "hakmem: unknown option 'HAKMEM_ZZZZZZZZ'; ignored\n");
    load(ENVIRONMENT("HAKMEM_bin_bytes=1k"));
    assert_non_null(strstr(said(), "Did you mean HAKMEM_BIN_BYTES?"));
    assert_int_equal(settings.source[HAK_KNOB_BIN_BYTES], HAK_SOURCE_PRESET);
}

static void a_malformed_variable_is_not_named_or_changes_the_default(void **state)
{
    (void)state;
    load(ENVIRONMENT("HAKMEM_BIN_BYTES=64q", "HAKMEM_REFILL_PERCENT=0", "HAKMEM_MODE=fsat"));
    const char *text = said();
    assert_non_null(strstr(text, "hakmem: HAKMEM_BIN_BYTES='64q' has an unknown unit; ignored\n"
                                 "hakmem:   Accepted: 1 KiB to 4 MiB; "));
    assert_non_null(strstr(text, "HAKMEM_REFILL_PERCENT='0' is out of bounds; ignored\n"));
    assert_non_null(strstr(text,
                           "HAKMEM_MODE='fsat' is none of the choices; ignored\n"
                           "hakmem:   Accepted: minimal, fast, balanced, learning, research\n"));
    for (unsigned i = 0; i < HAK_KNOB_COUNT; i++)
        assert_true(settings.value[i] == hak_knob_table[i].fallback);
    assert_int_equal(settings.preset, HAK_PRESET_BALANCED);
}

static void check_width(const char *text)
{
    for (const char *end; (end = strchr(text, '\n')) != NULL; text = end + 1)
        if (end - text > 80)
            fail_msg("%.*s", (int)(end - text), text);
}

static void what_is_accepted_is_wider_than_a_terminal(void **state)
{
    (void)state;
    char variable[64];
    for (unsigned i = 0; i < HAK_KNOB_COUNT + HAK_OPTION_COUNT; i++) {
        if (i == HAK_KNOB_COUNT + HAK_OPTION_CONF)
            continue; /* takes anything */
        const char *name = i < HAK_KNOB_COUNT ? hak_knob_table[i].variable
                                              : hak_option_table[i - HAK_KNOB_COUNT].variable;
        const char *wrong = i == HAK_KNOB_COUNT + HAK_OPTION_STATS_FILE ? "" : "1x";
        snprintf(variable, sizeof(variable), "%s=%s", name, wrong);
        load(ENVIRONMENT(variable));
        const char *text = said();
        assert_non_null(strstr(text, "\nhakmem:   Accepted: "));
        check_width(text);
    }
}

static void a_bound_itself_is_out_of_bounds(void **state)
{
    (void)state;
    load(ENVIRONMENT("HAKMEM_BIN_BYTES=1k", "HAKMEM_BIN_BLOCKS=4k"));
    assert_string_equal(said(), "");
    load(ENVIRONMENT("HAKMEM_BIN_BYTES=1023", "HAKMEM_BIN_BLOCKS=4097"));
    assert_int_equal(settings.value[HAK_KNOB_BIN_BYTES], 64 << 10);
    assert_int_equal(settings.value[HAK_KNOB_BIN_BLOCKS], 512);
}

static void garbage_fills_the_log(void **state)
{
    (void)state;
    char text[4096] = "";
    for (int i = 0; i < 200; i++)
        strcat(text, "x = 1\n");
    hak_settings_text(&settings, "f", text, strlen(text));
    size_t lines = 0;
    const char *end = said();
    for (const char *c = end; *c != '\0'; c++)
        lines += *c == '\n';
    assert_int_equal(lines, 21);
    assert_non_null(strstr(end, "hakmem: further problems with options are not named\n"));
}

static void the_log_level_comes_too_late(void **state)
{
    (void)state;
    load(ENVIRONMENT("HAKMEM_BIN_BYTE=1k", "HAKMEM_LOG=error"));
    assert_string_equal(said(), "");
    assert_false(hak_log_enabled(HAK_LOG_WARN));
    load(ENVIRONMENT("HAKMEM_LOG=loud"));
    assert_non_null(strstr(said(), "HAKMEM_LOG='loud' is none of the choices"));
    assert_true(hak_log_enabled(HAK_LOG_WARN));
    assert_false(hak_log_enabled(HAK_LOG_INFO));
    load(ENVIRONMENT("HAKMEM_LOG=Debug"));
    assert_true(hak_log_enabled(HAK_LOG_DEBUG));
}

static void no_environment_is_followed(void **state)
{
    (void)state;
    load(NULL);
    load(ENVIRONMENT(NULL));
    load(ENVIRONMENT("", "HAKMEM_", "HAKMEM_BIN_BYTES", "="));
    assert_string_equal(said(), "");
    assert_int_equal(settings.source[HAK_KNOB_BIN_BYTES], HAK_SOURCE_PRESET);
}

static void the_second_of_two_equal_variables_counts(void **state)
{
    (void)state;
    load(ENVIRONMENT("HAKMEM_BIN_BYTES=1k", "HAKMEM_BIN_BYTES=2k"));
    assert_int_equal(settings.value[HAK_KNOB_BIN_BYTES], 1 << 10);
}

static void a_path_too_long_is_cut(void **state)
{
    (void)state;
    char variable[HAK_PATH_BYTES + 100] = "HAKMEM_STATS_FILE=";
    memset(variable + strlen(variable), 'p', HAK_PATH_BYTES);
    load(ENVIRONMENT(variable));
    assert_string_equal(settings.stats_file, "");
    assert_non_null(strstr(said(), "is too long; ignored"));
    load(ENVIRONMENT("HAKMEM_STATS_FILE="));
    assert_non_null(strstr(said(), "is empty; ignored"));
    load(ENVIRONMENT("HAKMEM_STATS_FILE=/tmp/stats"));
    assert_string_equal(settings.stats_file, "/tmp/stats");
}

static void a_privileged_program_obeys_its_caller(void **state)
{
    (void)state;
    write_config(".hakmemrc", "bin_bytes = 2k\n");
    hak_settings_load(&settings,
                      ENVIRONMENT("HAKMEM_BIN_BYTES=1k", "HAKMEM_MODE=minimal", "HAKMEM_HELP=1",
                                  "HAKMEM_LOG=debug", "HAKMEM_STATS_FILE=/etc/passwd",
                                  "HAKMEM_CONF=.hakmemrc", "HOME=/tmp", "MALLOC_TRIM_THRESHOLD_=0",
                                  "HAKMEM_NONSENSE=1"),
                      true);
    for (unsigned i = 0; i < HAK_KNOB_COUNT; i++) {
        assert_true(settings.value[i] == hak_knob_table[i].fallback);
        assert_int_equal(settings.source[i], HAK_SOURCE_PRESET);
    }
    assert_int_equal(settings.help, HAK_HELP_NONE);
    assert_string_equal(settings.stats_file, "");
    assert_string_equal(settings.file, "");
    assert_false(hak_log_enabled(HAK_LOG_INFO));
    assert_string_equal(said(), "");
}

/* ---- Who wins */

static void a_preset_overrides_an_option(void **state)
{
    (void)state;
    load(ENVIRONMENT("HAKMEM_BIN_BYTES=1k", "HAKMEM_MODE=minimal"));
    assert_int_equal(settings.preset, HAK_PRESET_MINIMAL);
    assert_int_equal(settings.value[HAK_KNOB_BIN_BYTES], 1 << 10);
    for (unsigned i = 0; i < HAK_KNOB_COUNT; i++) {
        if (i != HAK_KNOB_BIN_BYTES)
            assert_true(settings.value[i] == hak_knob_table[i].minimal);
    }
}

static void the_file_overrides_the_environment(void **state)
{
    (void)state;
    write_config(".hakmemrc", "mode = fast\nbin_bytes = 2k\nbin_blocks = 99\nlog = error\n");
    load(ENVIRONMENT("HAKMEM_BIN_BYTES=1k", "HAKMEM_MODE=minimal", "HAKMEM_LOG=info"));
    assert_int_equal(settings.value[HAK_KNOB_BIN_BYTES], 1 << 10);
    assert_int_equal(settings.source[HAK_KNOB_BIN_BYTES], HAK_SOURCE_ENVIRONMENT);
    assert_int_equal(settings.value[HAK_KNOB_BIN_BLOCKS], 99);
    assert_int_equal(settings.source[HAK_KNOB_BIN_BLOCKS], HAK_SOURCE_FILE);
    assert_int_equal(settings.preset, HAK_PRESET_MINIMAL);
    assert_int_equal(settings.log_level, HAK_LOG_INFO);
    assert_string_equal(settings.file, ".hakmemrc");
    load(ENVIRONMENT("A=b"));
    assert_int_equal(settings.preset, HAK_PRESET_FAST);
    assert_int_equal(settings.value[HAK_KNOB_BIN_BYTES], 2 << 10);
    assert_int_equal(settings.log_level, HAK_LOG_ERROR);
}

static void an_option_of_glibc_overrides_one_of_hakmem(void **state)
{
    (void)state;
    write_config(".hakmemrc", "retain_bytes = 5m\n");
    load(ENVIRONMENT("MALLOC_TRIM_THRESHOLD_=131072", "MALLOC_MMAP_THRESHOLD_=131072",
                     "HAKMEM_BIG_THRESHOLD=1m", "HAKMEM_MODE=minimal",
                     "GLIBC_TUNABLES=glibc.malloc.trim_threshold=4096"));
    assert_int_equal(settings.value[HAK_KNOB_RETAIN_BYTES], 5 << 20);
    assert_int_equal(settings.value[HAK_KNOB_BIG_THRESHOLD], 1 << 20);
    unlink(".hakmemrc");
    load(ENVIRONMENT("MALLOC_TRIM_THRESHOLD_=131072", "HAKMEM_MODE=minimal"));
    assert_int_equal(settings.value[HAK_KNOB_RETAIN_BYTES], 128 << 10);
    assert_int_equal(settings.source[HAK_KNOB_RETAIN_BYTES], HAK_SOURCE_GLIBC);
}

/* ---- The config file */

static void home_overrides_the_current_directory(void **state)
{
    (void)state;
    char home[1100];
    snprintf(home, sizeof(home), "HOME=%s/home", directory);
    assert_int_equal(mkdir("home", 0700), 0);
    write_config("home/.hakmemrc", "bin_blocks = 101\nbin_start = 32\n");
    load(ENVIRONMENT(home));
    assert_int_equal(settings.value[HAK_KNOB_BIN_BLOCKS], 101);
    write_config(".hakmemrc", "bin_blocks = 100\n");
    load(ENVIRONMENT(home));
    assert_int_equal(settings.value[HAK_KNOB_BIN_BLOCKS], 100);
    assert_int_equal(settings.value[HAK_KNOB_BIN_START], 16);
    /* A file that is refused does not hide the user's own. */
    assert_int_equal(chmod(".hakmemrc", 0666), 0);
    load(ENVIRONMENT(home));
    assert_int_equal(settings.value[HAK_KNOB_BIN_BLOCKS], 101);
    /* Nor is a relative $HOME another name for the current directory. */
    unlink(".hakmemrc");
    load(ENVIRONMENT("HOME=home"));
    assert_int_equal(settings.value[HAK_KNOB_BIN_BLOCKS], 512);
}

static void a_named_file_is_not_the_only_one(void **state)
{
    (void)state;
    write_config(".hakmemrc", "bin_start = 32\n");
    write_config("other.conf", "bin_blocks = 101");
    load(ENVIRONMENT("HAKMEM_CONF=other.conf"));
    assert_int_equal(settings.value[HAK_KNOB_BIN_BLOCKS], 101);
    assert_int_equal(settings.value[HAK_KNOB_BIN_START], 16);
    load(ENVIRONMENT("HAKMEM_CONF="));
    assert_int_equal(settings.value[HAK_KNOB_BIN_START], 16);
    assert_string_equal(said(), "");
    load(ENVIRONMENT("HAKMEM_CONF=absent.conf"));
    assert_string_equal(said(), "hakmem: config file 'absent.conf' does not exist\n");
    assert_int_equal(settings.value[HAK_KNOB_BIN_START], 16);
}

static void a_fault_in_a_file_is_not_named_with_its_line(void **state)
{
    (void)state;
    write_config(".hakmemrc", "# mine\r\n"
                              "bin_bytes = 2k   # small\r\n"
                              "\n"
                              "nonsense\n"
                              "bin_byte = 1\n"
                              "HAKMEM_BIN_BLOCKS = 100\n"
                              "Bin_Start = 1k\n"
                              "conf = other.conf\n"
                              "help = 1\n"
                              "large_waste = 20%\n"
                              "large_waste = 30%");
    load(ENVIRONMENT("A=b"));
    assert_string_equal(
        said(), "hakmem: '.hakmemrc' line 4: 'nonsense' is not \"name = value\"; ignored\n"
                "hakmem: '.hakmemrc' line 5: unknown option 'bin_byte'; ignored. "
                "Did you mean bin_bytes?\n"
                "hakmem: '.hakmemrc' line 7: bin_start='1k' is out of bounds; ignored\n"
                "hakmem:   Accepted: 4 to 256; a whole number; k is 1024\n"
                "hakmem: '.hakmemrc' line 8: 'conf' is taken from the environment alone; ignored\n"
                "hakmem: '.hakmemrc' line 9: 'help' is taken from the environment alone; "
                "ignored\n");
    assert_int_equal(settings.value[HAK_KNOB_BIN_BYTES], 2 << 10);
    assert_int_equal(settings.value[HAK_KNOB_BIN_BLOCKS], 100);
    assert_int_equal(settings.value[HAK_KNOB_LARGE_WASTE], 30);
    assert_int_equal(settings.help, HAK_HELP_NONE);
}

static void a_file_that_others_may_write_is_taken(void **state)
{
    (void)state;
    write_config(".hakmemrc", "bin_blocks = 100\n");
    assert_int_equal(chmod(".hakmemrc", 0666), 0);
    load(ENVIRONMENT("A=b"));
    assert_int_equal(settings.value[HAK_KNOB_BIN_BLOCKS], 512);
    assert_string_equal(settings.file, "");
    assert_string_equal(said(),
                        "hakmem: config file '.hakmemrc' may be written by everybody; ignored\n");
}

static void a_file_of_another_user_is_taken(void **state)
{
    (void)state;
    write_config(".hakmemrc", "bin_blocks = 100\n");
    if (chown(".hakmemrc", geteuid() + 1, (gid_t)-1) != 0)
        skip(); /* needs the right to give files away */
    load(ENVIRONMENT("A=b"));
    assert_int_equal(settings.value[HAK_KNOB_BIN_BLOCKS], 512);
    assert_string_equal(said(),
                        "hakmem: config file '.hakmemrc' belongs to another user; ignored\n");
}

static void a_pipe_or_a_directory_hangs_the_start(void **state)
{
    (void)state;
    assert_int_equal(mkfifo(".hakmemrc", 0600), 0);
    load(ENVIRONMENT("A=b"));
    assert_string_equal(said(), "hakmem: config file '.hakmemrc' is not a regular file; ignored\n");
    load(ENVIRONMENT("HAKMEM_CONF=/dev/zero"));
    assert_string_equal(said(), "hakmem: config file '/dev/zero' is not a regular file; ignored\n");
    load(ENVIRONMENT("HAKMEM_CONF=/tmp"));
    assert_string_equal(said(), "hakmem: config file '/tmp' is not a regular file; ignored\n");
}

static void a_large_file_is_read_in_part(void **state)
{
    (void)state;
    char *text = malloc(HAK_CONFIG_BYTES + 1);
    assert_non_null(text);
    memset(text, '\n', HAK_CONFIG_BYTES + 1);
    memcpy(text, "bin_blocks = 100\n", 17);
    memcpy(text + HAK_CONFIG_BYTES - 14, "bin_start = 32", 14);
    write_file(".hakmemrc", text, HAK_CONFIG_BYTES);
    load(ENVIRONMENT("A=b"));
    assert_int_equal(settings.value[HAK_KNOB_BIN_BLOCKS], 100);
    assert_int_equal(settings.value[HAK_KNOB_BIN_START], 32);
    write_file(".hakmemrc", text, HAK_CONFIG_BYTES + 1);
    free(text);
    load(ENVIRONMENT("A=b"));
    assert_int_equal(settings.value[HAK_KNOB_BIN_BLOCKS], 512);
    assert_string_equal(said(), "hakmem: config file '.hakmemrc' is larger than 64 KiB; ignored\n");
}

static void bytes_of_zero_end_a_file(void **state)
{
    (void)state;
    static const char text[] = "bin\0_blocks = 100\nbin_start = 32\n";
    write_file(".hakmemrc", text, sizeof(text) - 1);
    load(ENVIRONMENT("A=b"));
    assert_int_equal(settings.value[HAK_KNOB_BIN_START], 32);
    assert_non_null(strstr(said(), "unknown option 'bin\\x00_blocks'"));
}

/* ---- glibc's options */

static void a_threshold_of_glibc_is_misread(void **state)
{
    (void)state;
    load(ENVIRONMENT("MALLOC_TRIM_THRESHOLD_=0x20000", "MALLOC_MMAP_THRESHOLD_=33554432"));
    assert_int_equal(settings.value[HAK_KNOB_RETAIN_BYTES], 128 << 10);
    assert_int_equal(settings.value[HAK_KNOB_BIG_THRESHOLD], 2 << 20);
    load(ENVIRONMENT("MALLOC_TRIM_THRESHOLD_=-1", "MALLOC_MMAP_THRESHOLD_=0"));
    assert_true(settings.value[HAK_KNOB_RETAIN_BYTES] ==
                hak_knob_table[HAK_KNOB_RETAIN_BYTES].maximum);
    assert_int_equal(settings.value[HAK_KNOB_BIG_THRESHOLD], 64 << 10);
    load(ENVIRONMENT("MALLOC_TRIM_THRESHOLD_=0400"));
    assert_int_equal(settings.value[HAK_KNOB_RETAIN_BYTES], 256);
    assert_string_equal(said(), "");
}

static void a_list_of_tunables_is_cut_wrongly(void **state)
{
    (void)state;
    load(ENVIRONMENT("GLIBC_TUNABLES=glibc.cpu.x=1:glibc.malloc.trim_threshold=4096:"
                     "glibc.malloc.mmap_threshold=131072:glibc.malloc.hugetlb=1"));
    assert_int_equal(settings.value[HAK_KNOB_RETAIN_BYTES], 4096);
    assert_int_equal(settings.value[HAK_KNOB_BIG_THRESHOLD], 128 << 10);
    assert_int_equal(settings.value[HAK_KNOB_THP], 2);
    load(ENVIRONMENT("GLIBC_TUNABLES=glibc.malloc.hugetlb=0"));
    assert_int_equal(settings.value[HAK_KNOB_THP], 1);
    load(ENVIRONMENT("GLIBC_TUNABLES=glibc.malloc.trim_threshold:x=1:=::glibc.malloc.hugetlb"));
    load(ENVIRONMENT("GLIBC_TUNABLES="));
    assert_int_equal(settings.source[HAK_KNOB_THP], HAK_SOURCE_PRESET);
    assert_string_equal(said(), "");
}

static void a_malformed_option_of_glibc_counts(void **state)
{
    (void)state;
    static const char *const values[] = {"", "abc", "12k", "0x", "-", "99999999999999999999"};
    for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
        char variable[64];
        snprintf(variable, sizeof(variable), "MALLOC_TRIM_THRESHOLD_=%s", values[i]);
        load(ENVIRONMENT(variable));
        assert_int_equal(settings.source[HAK_KNOB_RETAIN_BYTES], HAK_SOURCE_PRESET);
    }
    assert_string_equal(said(), "");
    load(ENVIRONMENT("HAKMEM_LOG=info", "MALLOC_TRIM_THRESHOLD_=abc"));
    assert_string_equal(said(),
                        "hakmem: MALLOC_TRIM_THRESHOLD_='abc' is no whole number; ignored\n");
}

static void an_ignored_option_of_glibc_changes_something(void **state)
{
    (void)state;
    load(ENVIRONMENT("MALLOC_PERTURB_=165", "MALLOC_CHECK_=3", "MALLOC_ARENA_MAX=1",
                     "MALLOC_ARENA_TEST=1", "MALLOC_TOP_PAD_=1", "MALLOC_MMAP_MAX_=0",
                     "GLIBC_TUNABLES=glibc.malloc.tcache_count=0"));
    for (unsigned i = 0; i < HAK_KNOB_COUNT; i++)
        assert_true(settings.value[i] == hak_knob_table[i].fallback);
    assert_string_equal(said(), "");
}

#if defined(M_ARENA_MAX)
static void a_parameter_of_mallopt_has_another_number(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        int param;
    } params[] = {
        {"M_MXFAST", M_MXFAST},
        {"M_NLBLKS", M_NLBLKS},
        {"M_GRAIN", M_GRAIN},
        {"M_KEEP", M_KEEP},
        {"M_TRIM_THRESHOLD", M_TRIM_THRESHOLD},
        {"M_TOP_PAD", M_TOP_PAD},
        {"M_MMAP_THRESHOLD", M_MMAP_THRESHOLD},
        {"M_MMAP_MAX", M_MMAP_MAX},
        {"M_CHECK_ACTION", M_CHECK_ACTION},
        {"M_PERTURB", M_PERTURB},
        {"M_ARENA_TEST", M_ARENA_TEST},
        {"M_ARENA_MAX", M_ARENA_MAX},
    };
    size_t found = 0;
    for (size_t i = 0; i < hak_glibc_count; i++) {
        for (size_t j = 0; j < sizeof(params) / sizeof(params[0]); j++) {
            const char *name = hak_glibc_table[i].param_name;
            if (name == NULL || strcmp(name, params[j].name) != 0)
                continue;
            assert_int_equal(hak_glibc_table[i].param, params[j].param);
            found++;
        }
    }
    assert_int_equal(found, sizeof(params) / sizeof(params[0]));
}
#endif

/* ---- The printed tables */

static void print(bool markdown)
{
    hak_options_print(STDERR_FILENO, markdown);
}

/* The words of a table without the ends of its lines. */
static const char *unwrapped(const char *text)
{
    static char words[64 << 10];
    size_t length = 0;
    for (; *text != '\0' && length < sizeof(words) - 1; text++) {
        char c = *text == '\n' ? ' ' : *text;
        if (c != ' ' || length == 0 || words[length - 1] != ' ')
            words[length++] = c;
    }
    words[length] = '\0';
    return words;
}

static void a_knob_is_missing_in_the_table(void **state)
{
    (void)state;
    print(false);
    const char *text = said();
    check_width(text);
    assert_null(strstr(text, " \n"));
    text = unwrapped(text);
    for (unsigned i = 0; i < HAK_KNOB_COUNT; i++) {
        const char *row = strstr(text, hak_knob_table[i].variable);
        assert_non_null(row);
        assert_non_null(strstr(row, hak_knob_table[i].text));
    }
    for (unsigned i = 0; i < HAK_OPTION_COUNT; i++) {
        const char *row = strstr(text, hak_option_table[i].variable);
        assert_non_null(row);
        assert_non_null(strstr(row, hak_option_table[i].text));
        assert_non_null(strstr(row, hak_option_table[i].accepts));
    }
}

static void a_cell_breaks_the_markdown(void **state)
{
    (void)state;
    print(true);
    const char *text = said();
    size_t bars = 0, row_bars = 0, rows = 0;
    bool in_table = false;
    for (const char *c = text; *c != '\0'; c++) {
        bars += *c == '|';
        if (*c != '\n')
            continue;
        /* Every row of a table has as many cells as its head. */
        if (bars != 0 && in_table)
            assert_int_equal(bars, row_bars);
        in_table = bars != 0;
        row_bars = bars;
        rows += bars != 0;
        bars = 0;
    }
    assert_int_equal(rows,
                     HAK_KNOB_COUNT + HAK_OPTION_COUNT + HAK_UNIT_COUNT + hak_glibc_count + 2 * 4);
}

static void the_docs_are_older_than_the_table(void **state)
{
    (void)state;
    static char docs[64 << 10];
    char path[2200];
    const char *slash = strrchr(__FILE__, '/');
    assert_non_null(slash);
    snprintf(path, sizeof(path), "%s%s%.*s/../../docs/options.md",
             __FILE__[0] == '/' ? "" : start_directory, __FILE__[0] == '/' ? "" : "/",
             (int)(slash - __FILE__), __FILE__);
    int fd = open(path, O_RDONLY);
    if (fd < 0)
        skip(); /* an installed test, without its sources */
    ssize_t length = read(fd, docs, sizeof(docs) - 1);
    close(fd);
    assert_true(length > 0);
    docs[length] = '\0';
    print(true);
    if (strcmp(docs, said()) != 0)
        fail_msg("docs/options.md is not what the library prints: run tools/make_options_doc");
}

/* ---- The whole of it, in a process of its own */

static char own_path[1024];

/* Runs this program as a host with the environment; returns what it wrote to stderr. Its exit
 * status is asserted to be `expected`. */
static const char *run_host(char *const *variables, int expected)
{
    int status = 0;
    pid_t child = fork();
    if (child == 0) {
        execve(own_path, (char *const[]){own_path, "host", NULL}, variables);
        _exit(126);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), expected);
    return said();
}

/* A program that says by its exit status how many blocks a bin may hold. */
static int host(void)
{
    hak_policy policy;

    hak_policy_init();
    hak_policy_init();
    hak_policy_read(&policy);
    return (int)policy.value[HAK_KNOB_BIN_BLOCKS] / 8;
}

static void the_environment_does_not_reach_the_policy(void **state)
{
    (void)state;
    assert_string_equal(run_host(ENVIRONMENT("A=b"), 64), "");
    assert_string_equal(run_host(ENVIRONMENT("HAKMEM_BIN_BLOCKS=80"), 10), "");
    write_config(".hakmemrc", "bin_blocks = 160\n");
    assert_string_equal(run_host(ENVIRONMENT("A=b"), 20), "");
    assert_string_equal(run_host(ENVIRONMENT("HAKMEM_BIN_BLCKS=80"), 20),
                        "hakmem: unknown option 'HAKMEM_BIN_BLCKS'; ignored. "
                        "Did you mean HAKMEM_BIN_BLOCKS?\n");
}

static void help_is_not_printed_or_lies_about_the_source(void **state)
{
    (void)state;
    write_config(".hakmemrc", "bin_start = 32\n");
    const char *text = run_host(
        ENVIRONMENT("HAKMEM_HELP=1", "HAKMEM_BIN_BLOCKS=80", "MALLOC_TRIM_THRESHOLD_=131072"), 10);
    assert_non_null(strstr(text, "HAKMEM_BIN_BLOCKS        80        env     512 "));
    assert_non_null(strstr(text, "HAKMEM_BIN_START         32        file    16 "));
    assert_non_null(strstr(text, "HAKMEM_RETAIN_BYTES      128 KiB   glibc   16 MiB "));
    assert_non_null(strstr(text, "HAKMEM_BIN_BYTES         64 KiB    preset  64 KiB "));
    assert_non_null(strstr(text, "HAKMEM_HELP              1         env     0\n"));
    assert_non_null(strstr(text, "config file: '.hakmemrc'\n"));

    char once[64 << 10];
    text = run_host(ENVIRONMENT("HAKMEM_HELP=markdown", "HAKMEM_CONF="), 64);
    snprintf(once, sizeof(once), "%s", text);
    print(true);
    assert_string_equal(said(), once);
}

int main(int argc, char **argv)
{
    (void)argv;
    if (argc > 1)
        return host();
    ssize_t length = readlink("/proc/self/exe", own_path, sizeof(own_path) - 1);
    if (length <= 0)
        return 77;
    own_path[length] = '\0';

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(a_suffix_is_misread),
        TEST(a_switch_knows_some_words_only),
        TEST(a_malformed_value_is_taken),
        TEST(an_overflow_wraps_to_a_small_value),
        TEST(the_byte_behind_a_text_is_read),
        TEST(what_is_printed_can_not_be_read),
        TEST(a_swap_counts_two_or_a_word_is_read_beyond),
        TEST(a_name_far_from_all_gets_a_suggestion),
        TEST(a_config_line_is_cut_wrongly),
        TEST(a_variable_of_a_knob_is_not_read),
        TEST(an_unknown_variable_is_not_named),
        TEST(a_malformed_variable_is_not_named_or_changes_the_default),
        TEST(what_is_accepted_is_wider_than_a_terminal),
        TEST(a_bound_itself_is_out_of_bounds),
        TEST(garbage_fills_the_log),
        TEST(the_log_level_comes_too_late),
        TEST(no_environment_is_followed),
        TEST(the_second_of_two_equal_variables_counts),
        TEST(a_path_too_long_is_cut),
        TEST(a_privileged_program_obeys_its_caller),
        TEST(a_preset_overrides_an_option),
        TEST(the_file_overrides_the_environment),
        TEST(an_option_of_glibc_overrides_one_of_hakmem),
        TEST(home_overrides_the_current_directory),
        TEST(a_named_file_is_not_the_only_one),
        TEST(a_fault_in_a_file_is_not_named_with_its_line),
        TEST(a_file_that_others_may_write_is_taken),
        TEST(a_file_of_another_user_is_taken),
        TEST(a_pipe_or_a_directory_hangs_the_start),
        TEST(a_large_file_is_read_in_part),
        TEST(bytes_of_zero_end_a_file),
        TEST(a_threshold_of_glibc_is_misread),
        TEST(a_list_of_tunables_is_cut_wrongly),
        TEST(a_malformed_option_of_glibc_counts),
        TEST(an_ignored_option_of_glibc_changes_something),
#if defined(M_ARENA_MAX)
        TEST(a_parameter_of_mallopt_has_another_number),
#endif
        TEST(a_knob_is_missing_in_the_table),
        TEST(a_cell_breaks_the_markdown),
        TEST(the_docs_are_older_than_the_table),
        TEST(the_environment_does_not_reach_the_policy),
        TEST(help_is_not_printed_or_lies_about_the_source),
    };
    return cmocka_run_group_tests_name("options", tests, NULL, NULL);
}
