/* micro.c: the command that runs one micro workload and prints one line of JSON.
 *
 *     micro list                        names, one per line, with "threads" behind those that take
 *                                       a count
 *     micro NAME [THREADS] [--seed N] [--repeats N]
 *     micro threadcost                  memory of a thread that allocates little (start.py runs it)
 *
 * A workload is set up, run once to warm up, and then repeated (15 times, fewer where that would
 * take more than a second). The line holds the best and the median of the repeats, the peak of
 * resident memory, the page faults, and the proof of which allocator served: the object file that
 * malloc, free, calloc and realloc lie in, and, for hakmem, by how much its own meter of served
 * bytes moved. A figure without a matching proof is worth nothing; run.py refuses it.
 */
#define _GNU_SOURCE
#include "micro.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "../../include/hakmem/hakmem.h"

enum { MAX_REPEATS = 1000, LEAST_REPEATS = 5 };
#define TIME_CAP_NS UINT64_C(1000000000)

uint64_t micro_seed = 1;
int micro_threads = 1;

uint64_t micro_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

void *micro_map(size_t bytes)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        micro_fail("no memory for the tables of the workload");
    return memory;
}

_Noreturn void micro_fail(const char *what)
{
    /* Not stdio: the heap may be the very thing that is broken. */
    ssize_t ignored = write(2, what, strlen(what));
    ignored = write(2, "\n", 1);
    (void)ignored;
    _exit(3);
}

void micro_check_blocks(char *const *blocks, size_t count, size_t least, size_t most)
{
    size_t i;
    for (i = 0; i < count; i++) {
        uint64_t mark;
        size_t size;
        if (blocks[i] == NULL)
            continue;
        mark = *(uint64_t *)(void *)blocks[i];
        size = (size_t)(mark & 0xffffffff);
        if (mark >> 32 != i || size < least || size > most)
            micro_fail("self-check: a live block lost its mark");
        /* A block of eight bytes is all mark. */
        if (size > sizeof mark)
            blocks[i][size - 1] = (char)(i * 31 + 7);
    }
    for (i = 0; i < count; i++) {
        uint64_t mark;
        size_t size;
        if (blocks[i] == NULL)
            continue;
        mark = *(uint64_t *)(void *)blocks[i];
        size = (size_t)(mark & 0xffffffff);
        if (mark >> 32 != i || size < least || size > most)
            micro_fail("self-check: writing a block's last byte changed another's first");
        if (size > sizeof mark && blocks[i][size - 1] != (char)(i * 31 + 7))
            micro_fail("self-check: a block lost its last byte");
    }
}

#ifndef HAK_BENCH_LAB /* the lab has a main of its own and takes the workloads alone */

/* ---- Proof ----------------------------------------------------------------------------------- */

/* The file that the function called `name` lies in, as the dynamic linker resolves it. */
static const char *object_of(const char *name)
{
    Dl_info info;
    void *symbol = dlsym(RTLD_DEFAULT, name);
    if (symbol == NULL || dladdr(symbol, &info) == 0 || info.dli_fname == NULL)
        return "";
    return info.dli_fname;
}

/* hakmem's meter of bytes served, or -1 where the allocator is not hakmem. A hak_stats that lies in
 * another object than malloc proves nothing. */
static int64_t served_bytes(void)
{
    static hak_stats_data stats;
    int (*read_stats)(hak_stats_data *, size_t);
    void *symbol = dlsym(RTLD_DEFAULT, "hak_stats");
    if (symbol == NULL || strcmp(object_of("hak_stats"), object_of("malloc")) != 0)
        return -1;
    memcpy(&read_stats, &symbol, sizeof read_stats);
    if (read_stats(&stats, sizeof stats) != 0)
        return -1;
    return (int64_t)stats.served_bytes;
}

/* ---- Figures --------------------------------------------------------------------------------- */

/* Peak of resident memory in KiB. Read without stdio, which would allocate first. */
static long peak_resident_kib(void)
{
    static char text[8192];
    const char *line;
    ssize_t got;
    int fd = open("/proc/self/status", O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return -1;
    got = read(fd, text, sizeof text - 1);
    close(fd);
    if (got <= 0)
        return -1;
    text[got] = '\0';
    line = strstr(text, "VmHWM:");
    return line == NULL ? -1 : strtol(line + 6, NULL, 10);
}

static double ms(struct timeval t)
{
    return (double)t.tv_sec * 1e3 + (double)t.tv_usec / 1e3;
}

static int compare_ns(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a;
    uint64_t y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static void print_string(const char *key, const char *text)
{
    printf(", \"%s\": \"", key);
    for (; *text != '\0'; text++) {
        if (*text == '"' || *text == '\\')
            putchar('\\');
        putchar(*text);
    }
    putchar('"');
}

static void print_proof(uint64_t asked_bytes_least, int64_t served_start, int64_t served_end)
{
    print_string("malloc_object", object_of("malloc"));
    print_string("free_object", object_of("free"));
    print_string("calloc_object", object_of("calloc"));
    print_string("realloc_object", object_of("realloc"));
    printf(", \"asked_bytes_least\": %llu", (unsigned long long)asked_bytes_least);
    if (served_end >= 0 && served_start >= 0)
        printf(", \"hak_served_bytes\": %lld", (long long)(served_end - served_start));
    else
        printf(", \"hak_served_bytes\": null");
}

static void measure(const micro_workload *workload, size_t wanted)
{
    static uint64_t ns[MAX_REPEATS];
    struct rusage usage;
    size_t repeats = 0;
    uint64_t total = 0;
    int64_t served;
    int64_t served_start = served_bytes();
    long peak;
    double ops = (double)workload->ops;

    workload->setup();
    workload->run();
    while (repeats < wanted && (repeats < LEAST_REPEATS || total < TIME_CAP_NS)) {
        ns[repeats] = workload->run();
        total += ns[repeats++];
    }
    workload->check();
    if (workload->finish != NULL)
        workload->finish();
    served = served_bytes();
    peak = peak_resident_kib();
    getrusage(RUSAGE_SELF, &usage);
    qsort(ns, repeats, sizeof ns[0], compare_ns);

    printf("{\"workload\": \"%s\", \"threads\": %d, \"seed\": %llu, \"ops\": %zu, \"repeats\": %zu",
           workload->name, micro_threads, (unsigned long long)micro_seed, workload->ops, repeats);
    printf(", \"ns_best\": %.4f, \"ns_median\": %.4f", (double)ns[0] / ops,
           (double)(ns[(repeats - 1) / 2] + ns[repeats / 2]) / 2 / ops);
    printf(", \"rss_kib\": %ld, \"faults\": %ld, \"user_ms\": %.1f, \"sys_ms\": %.1f", peak,
           usage.ru_minflt, ms(usage.ru_utime), ms(usage.ru_stime));
    print_proof((repeats + 1) * workload->ops * workload->smallest, served_start, served);
    printf("}\n");
}

static void thread_cost(void)
{
    int64_t served_start = served_bytes();
    double kib = micro_thread_cost_kib();
    int64_t served = served_bytes();
    printf("{\"workload\": \"threadcost\", \"kib_per_thread\": %.2f", kib);
    print_proof(1, served_start, served);
    printf("}\n");
}

static const micro_workload *find(const char *name)
{
    const micro_workload *w;
    for (w = micro_single; w->name != NULL; w++)
        if (strcmp(w->name, name) == 0)
            return w;
    for (w = micro_threaded; w->name != NULL; w++)
        if (strcmp(w->name, name) == 0)
            return w;
    return NULL;
}

static int usage(void)
{
    fprintf(stderr, "usage: micro list | micro NAME [THREADS] [--seed N] [--repeats N]\n");
    return 2;
}

/* A number between two bounds, or -1. */
static long number(const char *text, long least, long most)
{
    char *end;
    long value = strtol(text, &end, 10);
    return *text == '\0' || *end != '\0' || value < least || value > most ? -1 : value;
}

int main(int argc, char **argv)
{
    const micro_workload *workload;
    long value;
    size_t repeats = 15;
    int i;

    if (argc < 2)
        return usage();
    if (strcmp(argv[1], "list") == 0) {
        for (workload = micro_single; workload->name != NULL; workload++)
            printf("%s\n", workload->name);
        for (workload = micro_threaded; workload->name != NULL; workload++)
            printf("%s threads\n", workload->name);
        return 0;
    }
    if (strcmp(argv[1], "threadcost") == 0 && argc == 2) {
        thread_cost();
        return 0;
    }
    workload = find(argv[1]);
    if (workload == NULL) {
        fprintf(stderr, "micro: no workload called %s; see: micro list\n", argv[1]);
        return 2;
    }
    if (workload->threaded)
        micro_threads = 2;
    for (i = 2; i < argc; i++) {
        if (strcmp(argv[i], "--seed") == 0 && i + 1 < argc) {
            value = number(argv[++i], 0, 1L << 30);
            if (value < 0)
                return usage();
            micro_seed = (uint64_t)value;
        } else if (strcmp(argv[i], "--repeats") == 0 && i + 1 < argc) {
            value = number(argv[++i], 1, MAX_REPEATS);
            if (value < 0)
                return usage();
            repeats = (size_t)value;
        } else if (workload->threaded) {
            value = number(argv[i], 2, MICRO_MAX_THREADS);
            if (value != 2 && value != 4 && value != 8)
                return usage();
            micro_threads = (int)value;
        } else {
            return usage();
        }
    }
    measure(workload, repeats);
    return 0;
}

#endif
