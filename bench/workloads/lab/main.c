/* main.c: the command that runs one workload and prints one line of JSON.
 *
 *     hakbench list [--json]
 *     hakbench NAME [--help] [--threads N] [--seed N] [--repeats N] [--seconds S] [--aged[=F]]
 *                   [options of the workload]
 *
 * Options may be written `--name value` or `--name=value`. A workload is set up, run once to warm
 * up, and repeated: as often as --repeats says; without it, as often as the workload's own number,
 * or until --seconds (1) are over. The line holds the best and the median of the repeats, memory,
 * faults, latencies where single calls are timed, and the proof of which allocator served: see
 * micro.c, whose workloads are served here too. Status 0: fine; 2: bad options; 3: a self-check
 * failed, and said so on stderr. */
#define _GNU_SOURCE
#include "lab.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

enum { MOST_REPEATS = 1000, LEAST_REPEATS = 3, STANDARD_THREADS = 2 };
#define STANDARD_SECONDS 1.0
#define MOST_SECONDS 3600.0
#define STANDARD_AGED 0.95

const lab_workload *const lab_workloads[] = {
    &lab_json,
    &lab_mir,
    &lab_vm,
    &lab_mixed,
    &lab_patterns,
    &lab_tiny,
    &lab_randommixed,
    &lab_reallocgrowth,
    &lab_larson_burst,
    &lab_larson_loop,
    &lab_midmt,
    &lab_midlargemt,
    &lab_prodcons,
    &lab_threadchurn,
    &lab_fragmentation,
    &lab_largeset,
    &lab_burstidle,
    &lab_latency,
    NULL,
};

/* ---- The micro workloads --------------------------------------------------------------------- */

static const struct {
    const char *name, *about;
    size_t most; /* largest size, for littering */
    size_t holds;
} micro_abouts[] = {
    {"pair", "A block of 64 bytes allocated and freed at once, over and over.", 64, 64},
    {"lifo16", "100 blocks of 16 bytes, freed last first.", 16, 1600},
    {"fifo16", "100 blocks of 16 bytes, freed first first.", 16, 1600},
    {"random16", "100 blocks of 16 bytes, freed in random order.", 16, 1600},
    {"batch500", "500 blocks of 16 to 256 bytes, then all freed in order: one request of a server.",
     256, 68 << 10},
    {"fifo100k", "100,000 blocks of 16 to 128 bytes, then all freed in order: a document dropped.",
     128, 7 << 20},
    {"bulkrandom100k", "100,000 blocks of 16 to 128 bytes, then all freed in random order.", 128,
     7 << 20},
    {"churn1k", "1,024 live blocks of 16 to 1,024 bytes, replaced at random.", 1024, 520 << 10},
    {"churn64k", "65,536 live blocks of 16 to 1,024 bytes, replaced at random.", 1024, 33 << 20},
    {"churn256k", "262,144 live blocks of 16 to 1,024 bytes, replaced at random.", 1024, 130 << 20},
    {"churn1m", "A million live blocks of 16 to 1,024 bytes, replaced at random.", 1024, 520 << 20},
    {"mid", "512 live blocks of 8 to 32 KiB, replaced at random.", 32 << 10, 10 << 20},
    {"large", "64 live blocks of 64 KiB to 1 MiB, little of each written.", 1 << 20, 34 << 20},
    {"big", "8 live blocks of 2 to 8 MiB, every page written.", 8 << 20, 40 << 20},
    {"growhalf", "Buffers grow side by side to 1 MiB, by half each time.", 1 << 20, 16 << 20},
    {"growstep", "Buffers grow side by side to 1 MiB, by 8 KiB each time.", 1 << 20, 4 << 20},
    {"ownchurn", "Each thread replaces blocks of 16 to 1,024 bytes at random in a set of its own.",
     1024, 10 << 20},
    {"prodcons", "Pairs of threads: one allocates blocks of 64 bytes, the other frees them.", 64,
     256 << 10},
    {"larsonburst", "Larson's server with new threads all the time, a fixed amount of work.", 1024,
     1 << 20},
    {"larsonloop", "Larson's server with threads that live on, a fixed amount of work.", 1024,
     2 << 20},
};

static size_t micro_most, micro_least, micro_held;

static size_t micro_age_size(uint64_t x)
{
    return micro_size(x, micro_least, micro_most - micro_least + 1);
}

static size_t micro_age_holds(void)
{
    return micro_held;
}

/* A micro workload as one of the lab's. */
static const lab_workload *adapt(const micro_workload *micro)
{
    static lab_workload adapted;
    size_t i;
    memset(&adapted, 0, sizeof adapted);
    adapted.name = micro->name;
    adapted.suite = micro->threaded ? "threads" : "micro";
    adapted.about = "";
    adapted.micro = micro;
    adapted.flags = micro->threaded ? LAB_THREADED : 0;
    adapted.repeats = 15;
    adapted.size = micro_age_size;
    adapted.holds = micro_age_holds;
    micro_least = micro_most = micro->smallest;
    for (i = 0; i < sizeof micro_abouts / sizeof micro_abouts[0]; i++) {
        if (strcmp(micro_abouts[i].name, micro->name) != 0)
            continue;
        adapted.about = micro_abouts[i].about;
        micro_most = micro_abouts[i].most;
        micro_held = micro_abouts[i].holds;
    }
    return &adapted;
}

/* Calls `each` with all workloads in turn until it returns false. */
static void for_all(bool (*each)(const lab_workload *, void *), void *with)
{
    const micro_workload *tables[] = {micro_single, micro_threaded};
    const micro_workload *micro;
    size_t i;
    for (i = 0; lab_workloads[i] != NULL; i++)
        if (!each(lab_workloads[i], with))
            return;
    for (i = 0; i < 2; i++)
        for (micro = tables[i]; micro->name != NULL; micro++)
            if (!each(adapt(micro), with))
                return;
}

/* ---- list ------------------------------------------------------------------------------------ */

static bool list_row(const lab_workload *workload, void *with)
{
    (void)with;
    printf("%-16s %-10s %s\n", workload->name, workload->suite, workload->about);
    return true;
}

static void print_standard(const lab_option *option)
{
    if (option->words != NULL)
        lab_print_string(option->words[option->standard]);
    else
        printf("%lld", (long long)option->standard);
}

static void print_options(const lab_workload *workload)
{
    const lab_option *option;
    const char *comma = "";
    size_t i;
    for (option = workload->options; option != NULL && option->name != NULL; option++) {
        printf("%s{\"name\": \"%s\", \"default\": ", comma, option->name);
        print_standard(option);
        printf(", \"meaning\": ");
        lab_print_string(option->meaning);
        if (option->words != NULL) {
            printf(", \"words\": [");
            for (i = 0; option->words[i] != NULL; i++)
                printf("%s\"%s\"", i == 0 ? "" : ", ", option->words[i]);
            printf("]");
        } else {
            printf(", \"least\": %lld, \"most\": %lld", (long long)option->least,
                   (long long)option->most);
        }
        printf("}");
        comma = ", ";
    }
}

static bool list_json(const lab_workload *workload, void *with)
{
    const char **comma = with;
    size_t i;
    printf("%s\n{\"name\": \"%s\", \"suite\": \"%s\", \"about\": ", *comma, workload->name,
           workload->suite);
    lab_print_string(workload->about);
    printf(", \"threads\": %s, \"lasting\": %s, \"options\": [",
           workload->flags & LAB_THREADED ? "true" : "false",
           workload->flags & LAB_LASTING ? "true" : "false");
    print_options(workload);
    printf("], \"params\": [");
    for (i = 0; workload->params != NULL && workload->params[i] != NULL; i++)
        printf("%s\"%s\"", i == 0 ? "" : ", ", workload->params[i]);
    printf("]}");
    *comma = ",";
    return true;
}

static int list(bool json)
{
    const char *comma = "";
    if (!json) {
        for_all(list_row, NULL);
        return 0;
    }
    printf("[");
    for_all(list_json, &comma);
    printf("\n]\n");
    return 0;
}

/* ---- Options --------------------------------------------------------------------------------- */

static const char usage[] =
    "usage: hakbench list [--json]\n"
    "       hakbench NAME [--threads N] [--seed N] [--repeats N] [--seconds S] [--aged[=F]]\n"
    "                     [options of the workload: hakbench NAME --help]\n";

typedef struct settings {
    int64_t threads, seed, repeats;
    bool threads_given, repeats_given, seconds_given;
    double seconds, aged; /* aged: the part that is freed; 0: not aged */
} settings;

static const lab_workload *the_workload;

static _Noreturn void refuse(const char *format, ...) __attribute__((format(printf, 1, 2)));

static _Noreturn void refuse(const char *format, ...)
{
    va_list arguments;
    fprintf(stderr, "hakbench %s: ", the_workload->name);
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fprintf(stderr, "\n");
    exit(2);
}

static int64_t whole(const char *name, const char *text, int64_t least, int64_t most)
{
    char *end;
    long long value = strtoll(text, &end, 10);
    if (*text == '\0' || *end != '\0' || value < least || value > most)
        refuse("--%s takes a whole number from %lld to %lld, not '%s'", name, (long long)least,
               (long long)most, text);
    return value;
}

static double real(const char *name, const char *text, double least, double most)
{
    char *end;
    double value = strtod(text, &end);
    if (*text == '\0' || *end != '\0' || !(value >= least && value <= most))
        refuse("--%s takes a number from %g to %g, not '%s'", name, least, most, text);
    return value;
}

static int64_t word(const lab_option *option, const char *text)
{
    char all[256] = "";
    int64_t i;
    for (i = 0; option->words[i] != NULL; i++) {
        size_t used = strlen(all);
        if (strcmp(option->words[i], text) == 0)
            return i;
        snprintf(all + used, sizeof all - used, " %s", option->words[i]);
    }
    refuse("--%s takes one of:%s, not '%s'", option->name, all, text);
}

/* The long name behind a letter that all workloads know. */
static const char *common_name(char letter)
{
    switch (letter) {
    case 'd':
        return "seconds";
    case 't':
        return "threads";
    case 's':
        return "seed";
    default:
        return NULL;
    }
}

static lab_option *own_option(const char *name, size_t length, char letter)
{
    lab_option *option;
    for (option = the_workload->options; option != NULL && option->name != NULL; option++)
        if (letter != 0
                ? option->letter == letter
                : strlen(option->name) == length && strncmp(option->name, name, length) == 0)
            return option;
    return NULL;
}

/* ---- Help ------------------------------------------------------------------------------------ */

static int help(void)
{
    const lab_option *option;
    printf("%s: %s\n", the_workload->name, the_workload->about);
    for (option = the_workload->options; option != NULL && option->name != NULL; option++) {
        size_t i;
        printf("  --%-9s %s (", option->name, option->meaning);
        for (i = 0; option->words != NULL && option->words[i] != NULL; i++)
            printf("%s%s", i == 0 ? "" : ", ", option->words[i]);
        if (option->words == NULL)
            printf("%lld to %lld", (long long)option->least, (long long)option->most);
        printf("; default ");
        if (option->words != NULL)
            printf("%s)\n", option->words[option->standard]);
        else
            printf("%lld)\n", (long long)option->standard);
    }
    if (the_workload->flags & LAB_THREADED)
        printf("  --threads   threads (default %d)\n", STANDARD_THREADS);
    printf("  --seed      of everything random (default 1)\n"
           "  --repeats   how often it is run (default %zu)\n",
           the_workload->repeats);
    if (the_workload->flags & LAB_LASTING)
        printf("  --seconds   how long it lasts in all (default %g)\n", the_workload->seconds);
    else
        printf("  --seconds   no more repeats after that long (default %g; none with --repeats)\n",
               STANDARD_SECONDS);
    printf("  --aged=F    litter the heap first, F of the litter freed (default %g)\n",
           STANDARD_AGED);
    return 0;
}

static bool is(const char *text, size_t length, const char *name)
{
    return strlen(name) == length && strncmp(text, name, length) == 0;
}

static void take_threads(settings *s, const char *value)
{
    bool micro = the_workload->micro != NULL;
    if ((the_workload->flags & LAB_THREADED) == 0) {
        /* So that a caller may say 1 to all. */
        if (whole("threads", value, 1, LAB_MAX_THREADS) != 1)
            refuse("runs in one thread; leave --threads out");
        return;
    }
    s->threads =
        whole("threads", value, micro ? 2 : 1, micro ? MICRO_MAX_THREADS : LAB_MAX_THREADS);
    if (micro && s->threads != 2 && s->threads != 4 && s->threads != 8)
        refuse("--threads must be 2, 4 or 8");
    s->threads_given = true;
}

/* One option with its value. Returns false for one that nobody knows. */
static bool take(settings *s, const char *name, size_t length, char letter, const char *value)
{
    lab_option *own = own_option(name, length, letter);
    if (own != NULL) {
        own->given = true;
        own->value =
            own->words != NULL ? word(own, value) : whole(own->name, value, own->least, own->most);
        return true;
    }
    if (letter != 0) {
        name = common_name(letter);
        if (name == NULL)
            return false;
        length = strlen(name);
    }
    if (is(name, length, "threads")) {
        take_threads(s, value);
    } else if (is(name, length, "seed")) {
        s->seed = whole("seed", value, 0, INT64_C(1) << 30);
    } else if (is(name, length, "repeats")) {
        s->repeats = whole("repeats", value, 1, MOST_REPEATS);
        s->repeats_given = true;
    } else if (is(name, length, "seconds")) {
        s->seconds = real("seconds", value, 0.01, MOST_SECONDS);
        s->seconds_given = true;
    } else {
        return false;
    }
    return true;
}

/* Options without a value of their own behind them. */
static bool take_flag(settings *s, const char *text)
{
    if (strcmp(text, "--aged") == 0) {
        s->aged = STANDARD_AGED;
    } else if (strncmp(text, "--aged=", 7) == 0) {
        s->aged = real("aged", text + 7, 0.01, 0.999);
    } else if (strcmp(text, "--plant-corruption") == 0) {
        if (the_workload->micro != NULL)
            refuse("takes no --plant-corruption");
        lab_plant = true;
    } else {
        return strcmp(text, "--json") == 0; /* which is what is printed anyway */
    }
    return true;
}

static void parse(settings *s, int argc, char **argv)
{
    int i;
    for (i = 2; i < argc; i++) {
        const char *text = argv[i];
        bool dashes = strncmp(text, "--", 2) == 0;
        const char *name = text + 2;
        size_t length = dashes ? strcspn(name, "=") : 0;
        const char *value = dashes && name[length] == '=' ? name + length + 1 : NULL;
        bool is_option = dashes || (text[0] == '-' && text[1] != '\0' && text[2] == '\0');
        if (strcmp(text, "--help") == 0)
            exit(help());
        if (take_flag(s, text))
            continue;
        if (!is_option)
            refuse("'%s' is no option; see: hakbench %s --help", text, the_workload->name);
        if (value == NULL && i + 1 < argc)
            value = argv[++i];
        if (!take(s, name, length, dashes ? 0 : text[1], value == NULL ? "" : value))
            refuse("no option %s; see: hakbench %s --help", text, the_workload->name);
    }
}

static void prepare(settings *s)
{
    lab_option *option;
    for (option = the_workload->options; option != NULL && option->name != NULL; option++)
        option->value = option->standard;
    memset(s, 0, sizeof *s);
    s->seed = 1;
    s->threads = the_workload->flags & LAB_THREADED ? STANDARD_THREADS : 1;
    s->repeats = (int64_t)the_workload->repeats;
    s->seconds = the_workload->flags & LAB_LASTING ? the_workload->seconds : STANDARD_SECONDS;
}

/* ---- Measuring ------------------------------------------------------------------------------- */

typedef struct figures {
    size_t repeats;
    double ns_per_op[MOST_REPEATS];
    lab_done all; /* of the repeats; asked: with warm-up and littering */
    int64_t resident_before, resident_after;
    long faults_run;
} figures;

static figures the_figures;

static lab_done run_once(void)
{
    const micro_workload *micro = the_workload->micro;
    lab_done done;
    if (micro == NULL)
        return the_workload->run();
    done.ns = micro->run();
    done.ops = micro->ops;
    done.asked = micro->ops * micro->smallest;
    return done;
}

static long minor_faults(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_minflt;
}

static void repeat(const settings *s)
{
    figures *f = &the_figures;
    /* A lasting workload ends by itself; asked for a number of repeats and no time, so does the
     * loop. */
    bool endless = (the_workload->flags & LAB_LASTING) || (s->repeats_given && !s->seconds_given);
    uint64_t limit = endless ? UINT64_MAX : (uint64_t)(s->seconds * 1e9);
    uint64_t start = micro_now_ns();
    size_t least = s->repeats < LEAST_REPEATS ? (size_t)s->repeats : LEAST_REPEATS;
    while (f->repeats < (size_t)s->repeats &&
           (f->repeats < least || micro_now_ns() - start < limit)) {
        lab_done done = run_once();
        f->all.ns += done.ns;
        f->all.ops += done.ops;
        f->all.asked += done.asked;
        if (done.ops > 0)
            f->ns_per_op[f->repeats++] = (double)done.ns / (double)done.ops;
        else
            break; /* every batch was dropped: nothing to divide by */
    }
}

static void measure(const settings *s)
{
    figures *f = &the_figures;
    long faults;
    if (s->aged > 0)
        f->all.asked += lab_age(the_workload, s->aged);
    if (the_workload->micro != NULL)
        the_workload->micro->setup();
    else
        the_workload->setup();
    /* Growth is what the first run and all repeats add to what has been set up. */
    f->resident_before = lab_resident_kib();
    if ((the_workload->flags & LAB_COLD) == 0)
        f->all.asked += run_once().asked;
    faults = minor_faults();
    repeat(s);
    f->faults_run = minor_faults() - faults;
    f->resident_after = lab_resident_kib();
    if (the_workload->after != NULL)
        the_workload->after();
    if (lab_resident_after_kib >= 0)
        f->resident_after = lab_resident_after_kib;
}

static void check_and_finish(const settings *s)
{
    const micro_workload *micro = the_workload->micro;
    if (micro != NULL)
        micro->check();
    else if (the_workload->check != NULL)
        the_workload->check();
    if (s->aged > 0)
        lab_age_check();
    if (micro != NULL && micro->finish != NULL)
        micro->finish();
    if (the_workload->finish != NULL)
        the_workload->finish();
}

/* ---- Printing -------------------------------------------------------------------------------- */

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a;
    double y = *(const double *)b;
    return (x > y) - (x < y);
}

/* What the user chose, in a fixed order: the name of this run of the workload. */
static void print_params(const settings *s)
{
    char text[512] = "";
    const lab_option *option;
    size_t used = 0;
    if (s->threads_given)
        used += (size_t)snprintf(text, sizeof text, " threads=%lld", (long long)s->threads);
    for (option = the_workload->options; option != NULL && option->name != NULL; option++) {
        if (!option->given)
            continue;
        if (option->words != NULL)
            used += (size_t)snprintf(text + used, sizeof text - used, " %s=%s", option->name,
                                     option->words[option->value]);
        else
            used += (size_t)snprintf(text + used, sizeof text - used, " %s=%lld", option->name,
                                     (long long)option->value);
    }
    if (s->seconds_given && (the_workload->flags & LAB_LASTING))
        used += (size_t)snprintf(text + used, sizeof text - used, " seconds=%g", s->seconds);
    if (s->aged > 0)
        snprintf(text + used, sizeof text - used, " aged=%g", s->aged);
    printf(", \"params\": ");
    lab_print_string(text[0] == ' ' ? text + 1 : text);
}

static void print_settings(const settings *s)
{
    const lab_option *option;
    printf(", \"settings\": {\"seconds\": %g, \"aged\": %g", s->seconds, s->aged);
    for (option = the_workload->options; option != NULL && option->name != NULL; option++) {
        printf(", \"%s\": ", option->name);
        if (option->words != NULL)
            lab_print_string(option->words[option->value]);
        else
            printf("%lld", (long long)option->value);
    }
    printf("}");
}

static void print_times(void)
{
    figures *f = &the_figures;
    size_t repeats = f->repeats;
    printf(", \"ops\": %llu, \"repeats\": %zu", (unsigned long long)f->all.ops, repeats);
    if (repeats == 0)
        return;
    qsort(f->ns_per_op, repeats, sizeof f->ns_per_op[0], compare_doubles);
    printf(", \"ns_best\": %.4f, \"ns_median\": %.4f, \"ops_per_second\": %.0f", f->ns_per_op[0],
           (f->ns_per_op[(repeats - 1) / 2] + f->ns_per_op[repeats / 2]) / 2,
           (double)f->all.ops * 1e9 / (double)(f->all.ns > 0 ? f->all.ns : 1));
}

static double ms(struct timeval t)
{
    return (double)t.tv_sec * 1e3 + (double)t.tv_usec / 1e3;
}

static void print_memory(int64_t peak, const struct rusage *used)
{
    const figures *f = &the_figures;
    printf(", \"rss_kib\": %lld, \"faults\": %ld, \"faults_run\": %ld", (long long)peak,
           used->ru_minflt, f->faults_run);
    printf(", \"user_ms\": %.1f, \"sys_ms\": %.1f", ms(used->ru_utime), ms(used->ru_stime));
    if (lab_live_bytes >= 0)
        printf(", \"live_kib\": %lld", (long long)(lab_live_bytes >> 10));
    printf(", \"resident_after_kib\": %lld, \"growth_kib\": %lld, \"tables_kib\": %lld",
           (long long)f->resident_after, (long long)(f->resident_after - f->resident_before),
           (long long)lab_tables_kib());
}

static void print_latencies(void)
{
    if (lab_latencies.total == 0)
        return;
    lab_timer_print();
    lab_histogram_print(&lab_latencies, "");
    lab_histogram_print_raw(&lab_latencies);
}

static int run(const settings *s)
{
    struct rusage used;
    int64_t served_start = lab_served_bytes();
    int64_t served_end, peak;
    measure(s);
    check_and_finish(s);
    served_end = lab_served_bytes();
    peak = lab_peak_resident_kib();
    getrusage(RUSAGE_SELF, &used);

    printf("{\"workload\": \"%s\", \"suite\": \"%s\"", the_workload->name, the_workload->suite);
    print_params(s);
    print_settings(s);
    printf(", \"threads\": %lld, \"seed\": %lld", (long long)s->threads, (long long)s->seed);
    print_times();
    print_memory(peak, &used);
    print_latencies();
    if (the_workload->print != NULL)
        the_workload->print();
    lab_print_proof(the_figures.all.asked, served_start, served_end);
    printf("}\n");
    return 0;
}

static bool is_wanted(const lab_workload *workload, void *name)
{
    if (strcmp(workload->name, name) != 0)
        return true;
    the_workload = workload;
    return false;
}

int main(int argc, char **argv)
{
    settings s;
    const char *problem = NULL;
    if (argc < 2) {
        fputs(usage, stderr);
        return 2;
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) {
        fputs(usage, stdout);
        return 0;
    }
    if (strcmp(argv[1], "list") == 0) {
        if (argc == 2 || (argc == 3 && strcmp(argv[2], "--json") == 0))
            return list(argc == 3);
        fputs(usage, stderr);
        return 2;
    }
    for_all(is_wanted, argv[1]);
    if (the_workload == NULL) {
        fprintf(stderr, "hakbench: no workload called '%s'; see: hakbench list\n", argv[1]);
        return 2;
    }
    prepare(&s);
    parse(&s, argc, argv);
    micro_seed = (uint64_t)s.seed;
    micro_threads = lab_threads = (int)s.threads;
    lab_seconds = s.seconds;
    lab_repeats = (int)s.repeats;
    if (the_workload->problem != NULL)
        problem = the_workload->problem();
    if (problem != NULL)
        refuse("%s", problem);
    return run(&s);
}
