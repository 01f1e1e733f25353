/* options.h: how a policy comes to be what it is: presets, HAKMEM_* variables, the config file,
 * glibc's own malloc options, mallopt.
 *
 * Who wins, first to last: the environment, the config file, glibc's options (environment, then
 * mallopt), the preset. In secure mode (AT_SECURE: set-user-id programs and their like) nothing
 * from outside is read.
 *
 * hak_settings and the functions on it are what hak_policy_init is made of; they touch neither the
 * policy in force nor any state but the log level, so that tests can drive them. They say what they
 * ignore on stderr. Not for two threads at once (one buffer serves every config file).
 * Locks: hak_policy_init and hak_policy_mallopt take HAK_RANK_POLICY; the others take none.
 */
#ifndef HAK_POLICY_OPTIONS_H
#define HAK_POLICY_OPTIONS_H

#include "base/lock.h"
#include "base/log.h"
#include "base/options.h"
#include "policy/policy.h"

typedef enum hak_preset {
    HAK_PRESET_MINIMAL,
    HAK_PRESET_FAST,
    HAK_PRESET_BALANCED,
    HAK_PRESET_LEARNING,
    HAK_PRESET_RESEARCH,
    HAK_PRESET_COUNT
} hak_preset;

typedef struct hak_knob_info {
    const char *name;
    const char *variable; /* HAKMEM_ and the name in capitals */
    hak_unit unit;
    uint64_t fallback; /* of balanced, learning and research */
    uint64_t minimum;
    uint64_t maximum;
    uint64_t minimal;
    uint64_t fast;
    const char *text;
} hak_knob_info;

extern const hak_knob_info hak_knob_table[HAK_KNOB_COUNT];

uint64_t hak_preset_value(hak_preset preset, hak_knob knob);
const char *hak_preset_name(hak_preset preset);
/* HAK_PRESET_COUNT: no such preset. */
hak_preset hak_preset_find(const char *name, size_t length);

/* "1 KiB to 4 MiB" */
void hak_knob_put_bounds(hak_text *text, const hak_knob_info *info);

/* Puts words, a blank before each, in lines of at most HAK_LINE_COLUMNS; lines after the first
 * start with `indent`. */
#define HAK_LINE_COLUMNS 80u
void hak_put_wrapped(hak_text *text, const char *indent, const char *words);

/* Parsed and within the knob's bounds, or why not. */
hak_parse hak_knob_parse(hak_knob knob, const char *text, size_t length, uint64_t *value);

/* Serialises publications. The fork code holds it across a fork and resets it in the child. */
extern hak_lock hak_policy_lock;

/* Makes these values the policy in force. The caller holds hak_policy_lock; every value is within
 * bounds. */
void hak_policy_publish_locked(const uint64_t value[HAK_KNOB_COUNT]);

/* Options that are no knobs: they say how hakmem is set up, not how it allocates. */
typedef enum hak_option {
    HAK_OPTION_MODE,
    HAK_OPTION_CONF,
    HAK_OPTION_HELP,
    HAK_OPTION_LOG,
    HAK_OPTION_STATS_FILE,
    HAK_OPTION_COUNT
} hak_option;

typedef struct hak_option_info {
    const char *name;
    const char *variable;
    const char *fallback;
    const char *accepts;
    const char *text;
    bool in_file; /* false: taken from the environment alone */
} hak_option_info;

extern const hak_option_info hak_option_table[HAK_OPTION_COUNT];

/* Where a setting came from; a later one in this list wins. */
typedef enum hak_source {
    HAK_SOURCE_PRESET,
    HAK_SOURCE_GLIBC,
    HAK_SOURCE_FILE,
    HAK_SOURCE_ENVIRONMENT,
    HAK_SOURCE_COUNT
} hak_source;

typedef enum hak_help { HAK_HELP_NONE, HAK_HELP_TABLE, HAK_HELP_MARKDOWN } hak_help;

#define HAK_PATH_BYTES 1024
#define HAK_CONFIG_BYTES ((size_t)64 << 10)

typedef struct hak_settings {
    uint64_t value[HAK_KNOB_COUNT];
    uint8_t source[HAK_KNOB_COUNT]; /* hak_source */
    uint8_t option_source[HAK_OPTION_COUNT];
    hak_preset preset;
    hak_help help;
    hak_log_level log_level;
    unsigned problems; /* named so far: a file of garbage must not fill a log */
    /* Copies: hosts overwrite their environment (setproctitle). */
    char conf[HAK_PATH_BYTES];
    char stats_file[HAK_PATH_BYTES];
    char file[HAK_PATH_BYTES]; /* the config file that was read; "" for none */
} hak_settings;

/* The preset balanced and nothing else. */
void hak_settings_start(hak_settings *settings);

/* Takes HAKMEM_* from `variables`, "NAME=value" each, ended by NULL (or NULL itself). */
void hak_settings_environment(hak_settings *settings, char *const *variables);

/* Takes the lines of a config file; `path` is what messages call it. */
void hak_settings_text(hak_settings *settings, const char *path, const char *text, size_t length);

/* Reads a config file and returns whether it was taken. One that can't be opened is no file; that
 * is worth a warning where it was asked for by name. Refused with a warning is a file that is not
 * regular, is larger than HAK_CONFIG_BYTES, may be written by everybody, or belongs to somebody
 * other than this user or root: whoever may write it decides how this process runs. */
bool hak_settings_file(hak_settings *settings, const char *path, bool asked_for);

/* Takes glibc's options: MALLOC_* and GLIBC_TUNABLES. */
void hak_settings_glibc(hak_settings *settings, char *const *variables);

/* All of the above in their order, then fills what is left from the preset. `secure`: nothing from
 * outside. */
void hak_settings_load(hak_settings *settings, char *const *variables, bool secure);

/* What hak_policy_init found. Filled once, by it; not changed by later publications. */
extern hak_settings hak_settings_in_force;

/* Where HAKMEM_STATS=1 prints, as HAKMEM_STATS_FILE has it; NULL: stderr. Set by
 * hak_policy_init. */
extern const char *hak_stats_path;

/* One malloc option of glibc, in its up to three forms. */
typedef struct hak_glibc_option {
    const char *variable; /* NULL where there is none; likewise the next two */
    const char *tunable;
    const char *param_name;
    int param;
    int minimum; /* what mallopt takes */
    int maximum;
    unsigned knob; /* a hak_knob, or HAK_NO_KNOB: ignored */
    const char *text;
} hak_glibc_option;

#define HAK_NO_KNOB ((unsigned)HAK_KNOB_COUNT)

extern const hak_glibc_option hak_glibc_table[];
extern const size_t hak_glibc_count;

/* As mallopt(3): 1 where the parameter is mapped to a knob or knowingly ignored, 0 where it is
 * unknown or out of range. docs/options.md says which is which. A knob that the environment or the
 * config file sets stays as it is: who wrote HAKMEM_RETAIN_BYTES meant this allocator, who wrote
 * mallopt into a program meant glibc's. */
int hak_policy_mallopt(int param, int value);

#endif
