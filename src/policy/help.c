/* The table of options, printed for users (HAKMEM_HELP=1) and as docs/options.md. */
#include <string.h>

#include "policy/options.h"

/* A row is built, then written: rows of two processes don't mix. */
typedef struct row {
    hak_text text;
    size_t cell;
    int fd;
    char buffer[1024];
} row;

static void row_start(row *r, int fd)
{
    r->fd = fd;
    r->cell = 0;
    hak_text_init(&r->text, r->buffer, sizeof(r->buffer));
}

static void row_end(row *r)
{
    hak_text_char(&r->text, '\n');
    hak_text_write(&r->text, r->fd);
}

/* Ends the cell that was put last, in the table for terminals. */
static void cell_end(row *r, size_t width)
{
    hak_text_left(&r->text, r->cell, width);
    hak_text_char(&r->text, ' ');
    r->cell = r->text.length;
}

static void put_prose(int fd, const char *text)
{
    hak_write_all(fd, text, strlen(text));
}

/* Quoted: a path may hold anything. */
static void put_path(hak_text *text, const char *path)
{
    if (path[0] != '\0')
        hak_text_quoted(text, path, strlen(path));
}

static void put_option_value(hak_text *text, hak_option option)
{
    static const char *const help_names[] = {"0", "1", "markdown"};

    switch (option) {
    case HAK_OPTION_MODE:
        hak_text_put(text, hak_preset_name(hak_settings_in_force.preset));
        break;
    case HAK_OPTION_CONF:
        put_path(text, hak_settings_in_force.conf);
        break;
    case HAK_OPTION_HELP:
        hak_text_put(text, help_names[hak_settings_in_force.help]);
        break;
    case HAK_OPTION_LOG:
        hak_text_put(text, hak_log_level_name(hak_settings_in_force.log_level));
        break;
    case HAK_OPTION_STATS_FILE:
        put_path(text, hak_settings_in_force.stats_file);
        break;
    default:
        break;
    }
}

static const char *const source_names[HAK_SOURCE_COUNT] = {"preset", "glibc", "file", "env"};

enum { NAME_WIDTH = 24, VALUE_WIDTH = 9, SOURCE_WIDTH = 7, UNIT_WIDTH = 7 };

/* The meaning, below the row: beside it, it would leave the terminal. */
static void put_meaning(row *r, const char *meaning)
{
    static const char indent[] = "   ";

    hak_text_char(&r->text, '\n');
    hak_text_put(&r->text, indent);
    hak_put_wrapped(&r->text, indent, meaning);
}

static void print_option_row(int fd, hak_option option)
{
    const hak_option_info *info = &hak_option_table[option];
    row r;

    row_start(&r, fd);
    hak_text_put(&r.text, info->variable);
    cell_end(&r, NAME_WIDTH);
    put_option_value(&r.text, option);
    cell_end(&r, VALUE_WIDTH);
    uint8_t source = hak_settings_in_force.option_source[option];
    hak_text_put(&r.text, source == HAK_SOURCE_PRESET ? "default" : source_names[source]);
    cell_end(&r, SOURCE_WIDTH);
    /* No cell: nothing follows on this line, and "" would leave blanks at its end. */
    hak_text_put(&r.text, info->fallback[0] != '\0' ? info->fallback : "-");
    put_meaning(&r, info->text);
    hak_put_wrapped(&r.text, "   ", "(accepted:");
    hak_put_wrapped(&r.text, "   ", info->accepts);
    hak_text_char(&r.text, ')');
    row_end(&r);
}

static void print_knob_row(int fd, hak_knob knob)
{
    const hak_knob_info *info = &hak_knob_table[knob];
    const uint64_t value = hak_knob_get(knob);
    row r;

    row_start(&r, fd);
    hak_text_put(&r.text, info->variable);
    cell_end(&r, NAME_WIDTH);
    hak_unit_put(&r.text, info->unit, value);
    cell_end(&r, VALUE_WIDTH);
    /* Published since: by mallopt or hak_policy_publish. */
    hak_text_put(&r.text, value != hak_settings_in_force.value[knob]
                              ? "program"
                              : source_names[hak_settings_in_force.source[knob]]);
    cell_end(&r, SOURCE_WIDTH);
    hak_unit_put(&r.text, info->unit, info->fallback);
    cell_end(&r, VALUE_WIDTH);
    hak_text_put(&r.text, hak_unit_name(info->unit));
    cell_end(&r, UNIT_WIDTH);
    hak_knob_put_bounds(&r.text, info);
    put_meaning(&r, info->text);
    row_end(&r);
}

static void print_head(int fd, const char *const *heads, const size_t *widths, size_t count)
{
    row r;

    row_start(&r, fd);
    for (size_t i = 0; i < count; i++) {
        hak_text_put(&r.text, heads[i]);
        if (i + 1 < count)
            cell_end(&r, widths[i]);
    }
    row_end(&r);
}

static void print_table(int fd)
{
    static const char *const option_heads[] = {"option", "value", "set by", "default"};
    static const char *const knob_heads[] = {"knob",    "value", "set by",
                                             "default", "unit",  "bounds"};
    static const size_t widths[] = {NAME_WIDTH, VALUE_WIDTH, SOURCE_WIDTH, VALUE_WIDTH, UNIT_WIDTH};
    row r;

    print_head(fd, option_heads, widths, HAK_COUNT_OF(option_heads));
    for (unsigned i = 0; i < HAK_OPTION_COUNT; i++)
        print_option_row(fd, (hak_option)i);
    put_prose(fd, "\n");
    print_head(fd, knob_heads, widths, HAK_COUNT_OF(knob_heads));
    for (unsigned i = 0; i < HAK_KNOB_COUNT; i++)
        print_knob_row(fd, (hak_knob)i);
    put_prose(fd, "\n");
    row_start(&r, fd);
    hak_text_put(&r.text, "config file: ");
    if (hak_settings_in_force.file[0] != '\0')
        put_path(&r.text, hak_settings_in_force.file);
    else
        hak_text_put(&r.text, "none");
    row_end(&r);
}

/* ---- The same as Markdown -------------------------------------------------------------------- */

static void markdown_cell(row *r, const char *value)
{
    hak_text_put(&r->text, " | ");
    hak_text_put(&r->text, value);
}

static void markdown_code(row *r, const char *value)
{
    hak_text_put(&r->text, " | ");
    if (value == NULL || value[0] == '\0')
        return;
    hak_text_char(&r->text, '`');
    hak_text_put(&r->text, value);
    hak_text_char(&r->text, '`');
}

static void markdown_value(row *r, hak_unit unit, uint64_t value)
{
    hak_text_put(&r->text, " | ");
    hak_unit_put(&r->text, unit, value);
}

static void markdown_end(row *r)
{
    hak_text_put(&r->text, " |");
    row_end(r);
}

static void markdown_options(int fd)
{
    row r;

    put_prose(fd, "\n"
                  "## General options\n"
                  "\n"
                  "| variable | default | accepted | meaning |\n"
                  "| --- | --- | --- | --- |\n");
    for (unsigned i = 0; i < HAK_OPTION_COUNT; i++) {
        const hak_option_info *info = &hak_option_table[i];
        row_start(&r, fd);
        hak_text_put(&r.text, "| `");
        hak_text_put(&r.text, info->variable);
        hak_text_char(&r.text, '`');
        markdown_code(&r, info->fallback);
        markdown_cell(&r, info->accepts);
        markdown_cell(&r, info->text);
        if (!info->in_file)
            hak_text_put(&r.text, " (environment alone)");
        markdown_end(&r);
    }
}

static void markdown_knobs(int fd)
{
    row r;

    put_prose(fd, "\n"
                  "## Knobs\n"
                  "\n"
                  "What the allocator itself reads. The default is that of the presets\n"
                  "balanced, learning and research.\n"
                  "\n"
                  "| variable | unit | default | minimal | fast | bounds | meaning |\n"
                  "| --- | --- | --- | --- | --- | --- | --- |\n");
    for (unsigned i = 0; i < HAK_KNOB_COUNT; i++) {
        const hak_knob_info *info = &hak_knob_table[i];
        row_start(&r, fd);
        hak_text_put(&r.text, "| `");
        hak_text_put(&r.text, info->variable);
        hak_text_char(&r.text, '`');
        markdown_cell(&r, hak_unit_name(info->unit));
        markdown_value(&r, info->unit, info->fallback);
        markdown_value(&r, info->unit, info->minimal);
        markdown_value(&r, info->unit, info->fast);
        hak_text_put(&r.text, " | ");
        hak_knob_put_bounds(&r.text, info);
        markdown_cell(&r, info->text);
        markdown_end(&r);
    }
}

static void markdown_units(int fd)
{
    row r;

    put_prose(fd, "\n"
                  "## Units\n"
                  "\n"
                  "| unit | accepted |\n"
                  "| --- | --- |\n");
    for (unsigned i = 0; i < HAK_UNIT_COUNT; i++) {
        row_start(&r, fd);
        hak_text_put(&r.text, "| ");
        hak_text_put(&r.text, hak_unit_name((hak_unit)i));
        markdown_cell(&r, hak_unit_accepts((hak_unit)i));
        markdown_end(&r);
    }
}

static void markdown_glibc(int fd)
{
    row r;

    put_prose(fd, "\n"
                  "## Options of glibc's malloc\n"
                  "\n"
                  "Where a program or its user sets them, hakmem maps those that have a\n"
                  "counterpart and ignores the others. `mallopt` returns 1 for both, and 0 for a\n"
                  "parameter that it does not know or a value out of range. A knob that a\n"
                  "`HAKMEM_*` variable or the config file sets is not changed by any of them.\n"
                  "\n"
                  "| variable | in `GLIBC_TUNABLES` | `mallopt` | here | how, or why not |\n"
                  "| --- | --- | --- | --- | --- |\n");
    for (size_t i = 0; i < hak_glibc_count; i++) {
        const hak_glibc_option *option = &hak_glibc_table[i];
        row_start(&r, fd);
        hak_text_char(&r.text, '|');
        if (option->variable != NULL) {
            hak_text_put(&r.text, " `");
            hak_text_put(&r.text, option->variable);
            hak_text_char(&r.text, '`');
        }
        markdown_code(&r, option->tunable);
        markdown_code(&r, option->param_name);
        markdown_cell(&r, option->knob == HAK_NO_KNOB ? "ignored" : "mapped");
        markdown_cell(&r, option->text);
        markdown_end(&r);
    }
}

static const char markdown_intro[] =
    "# Options\n"
    "\n"
    "<!-- Printed by the library (HAKMEM_HELP=markdown), kept by tools/make_options_doc.\n"
    "     To change it, change src/policy. -->\n"
    "\n"
    "Options are environment variables (`HAKMEM_BIN_BYTES=128k program`) or lines of a\n"
    "config file (`bin_bytes = 128k`). The first of these that sets an option wins:\n"
    "\n"
    "1. the environment,\n"
    "2. the config file,\n"
    "3. options of glibc's malloc that have a counterpart here (last section),\n"
    "4. the preset, `HAKMEM_MODE`.\n"
    "\n"
    "A program may read and publish the policy itself (`hak_policy_publish` in\n"
    "`hakmem/hakmem.h`); what it publishes replaces all of these.\n"
    "\n"
    "Names that are unknown and values that are malformed or out of bounds are named on\n"
    "stderr and ignored. `HAKMEM_HELP=1` prints every option with the value in force and\n"
    "where it came from.\n"
    "\n"
    "In set-user-id programs, and others that the kernel starts in secure mode, nothing of\n"
    "this is read: the preset balanced is in force.\n"
    "\n"
    "## The config file\n"
    "\n"
    "The file that `HAKMEM_CONF` names. Where that is not set: `.hakmemrc` in the current\n"
    "directory, or else in `$HOME`. It is read once, at start. A line is `name = value`,\n"
    "the name being the variable's without `HAKMEM_`; capitals make no difference. `#` at\n"
    "the start of a line or after a blank begins a comment. Of two lines for one name the\n"
    "last counts.\n"
    "\n"
    "A file is refused, with a warning, where it is not a regular file, is larger than\n"
    "64 KiB, may be written by everybody, or belongs to somebody other than the user of the\n"
    "process or root.\n";

void hak_options_print(int fd, bool markdown)
{
    hak_policy_init();
    if (!markdown) {
        print_table(fd);
        return;
    }
    put_prose(fd, markdown_intro);
    markdown_options(fd);
    markdown_knobs(fd);
    markdown_units(fd);
    markdown_glibc(fd);
}
