/* figures.c: what a run measures besides its time, and the proof of which allocator served.
 *
 * Nothing here allocates until figures are printed: files are read into static memory. */
#define _GNU_SOURCE
#include "lab.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "../../../include/hakmem/hakmem.h"

/* ---- Memory ---------------------------------------------------------------------------------- */

/* The start of a file; empty where it can't be read. */
static const char *text_of(const char *path)
{
    static char text[8192];
    ssize_t got = -1;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd >= 0) {
        got = read(fd, text, sizeof text - 1);
        close(fd);
    }
    text[got > 0 ? got : 0] = '\0';
    return text;
}

static int64_t number_after(const char *text, const char *key)
{
    const char *line = strstr(text, key);
    return line == NULL ? -1 : strtol(line + strlen(key), NULL, 10);
}

int64_t lab_resident_kib(void)
{
    int64_t kib = number_after(text_of("/proc/self/smaps_rollup"), "Rss:");
    return kib >= 0 ? kib : lab_resident_quick_kib();
}

int64_t lab_resident_quick_kib(void)
{
    /* Second number of the file, in pages. */
    int64_t pages = number_after(text_of("/proc/self/statm"), " ");
    return pages < 0 ? -1 : pages * (sysconf(_SC_PAGESIZE) >> 10);
}

int64_t lab_peak_resident_kib(void)
{
    return number_after(text_of("/proc/self/status"), "VmHWM:");
}

/* ---- Proof ----------------------------------------------------------------------------------- */

/* Linked statically against hakmem, the program has its meter without the dynamic linker. */
extern int hak_stats(hak_stats_data *out, size_t bytes) __attribute__((weak));

typedef void any_fn(void);

/* The function that `name` means to the dynamic linker; without one, `own`. */
static void *resolve(const char *name, any_fn *own)
{
    void *symbol = dlsym(RTLD_DEFAULT, name);
    if (symbol == NULL)
        memcpy(&symbol, &own, sizeof symbol);
    return symbol;
}

/* The file that a function lies in: a shared object, or this executable. Empty for no function. */
static const char *object_of(void *symbol)
{
    static char executable[4096];
    Dl_info info;
    ssize_t got;
    if (symbol == NULL)
        return "";
    if (dladdr(symbol, &info) != 0 && info.dli_fname != NULL && strchr(info.dli_fname, '/') != NULL)
        return info.dli_fname;
    got = readlink("/proc/self/exe", executable, sizeof executable - 1);
    executable[got > 0 ? got : 0] = '\0';
    return executable;
}

int64_t lab_served_bytes(void)
{
    static hak_stats_data stats;
    int (*read_stats)(hak_stats_data *, size_t);
    void *symbol = resolve("hak_stats", (any_fn *)hak_stats);
    /* A meter in another object than malloc proves nothing. */
    if (symbol == NULL ||
        strcmp(object_of(symbol), object_of(resolve("malloc", (any_fn *)malloc))) != 0)
        return -1;
    memcpy(&read_stats, &symbol, sizeof read_stats);
    if (read_stats(&stats, sizeof stats) != 0)
        return -1;
    return (int64_t)stats.served_bytes;
}

/* ---- Printing -------------------------------------------------------------------------------- */

void lab_print_string(const char *text)
{
    putchar('"');
    for (; *text != '\0'; text++) {
        if ((unsigned char)*text < ' ') {
            printf("\\u%04x", (unsigned)(unsigned char)*text);
            continue;
        }
        if (*text == '"' || *text == '\\')
            putchar('\\');
        putchar(*text);
    }
    putchar('"');
}

void lab_print_proof(uint64_t asked, int64_t served_start, int64_t served_end)
{
    static const struct {
        const char *name;
        any_fn *own;
    } functions[] = {
        {"malloc", (any_fn *)malloc},
        {"free", (any_fn *)free},
        {"calloc", (any_fn *)calloc},
        {"realloc", (any_fn *)realloc},
    };
    size_t i;
    for (i = 0; i < sizeof functions / sizeof functions[0]; i++) {
        printf(", \"%s_object\": ", functions[i].name);
        lab_print_string(object_of(resolve(functions[i].name, functions[i].own)));
    }
    printf(", \"asked_bytes_least\": %llu", (unsigned long long)asked);
    if (served_end >= 0 && served_start >= 0)
        printf(", \"hak_served_bytes\": %lld", (long long)(served_end - served_start));
    else
        printf(", \"hak_served_bytes\": null");
}
