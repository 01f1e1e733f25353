/* probe.c: is the library named in the first argument the one that serves malloc and free?
 *
 * build.sh runs it with each library preloaded. It ends with 0 where that is so, and with 1 and a
 * line on stderr where another library serves.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int served_by(const char *function, const char *library)
{
    Dl_info info;
    void *symbol = dlsym(RTLD_DEFAULT, function);
    if (symbol == NULL || dladdr(symbol, &info) == 0 || info.dli_fname == NULL) {
        fprintf(stderr, "%s: no object found\n", function);
        return 0;
    }
    if (strcmp(info.dli_fname, library) != 0) {
        fprintf(stderr, "%s is served by %s\n", function, info.dli_fname);
        return 0;
    }
    return 1;
}

int main(int argc, char **argv)
{
    static const char *const functions[] = {"malloc", "calloc", "realloc", "free",
                                            "posix_memalign"};
    size_t i;
    char *block;
    if (argc != 2) {
        fprintf(stderr, "usage: probe LIBRARY\n");
        return 2;
    }
    for (i = 0; i < sizeof functions / sizeof functions[0]; i++)
        if (!served_by(functions[i], argv[1]))
            return 1;
    block = malloc(100);
    if (block == NULL)
        return 1;
    memset(block, 1, 100);
    block = realloc(block, 100000);
    if (block == NULL || block[99] != 1)
        return 1;
    free(block);
    return 0;
}
