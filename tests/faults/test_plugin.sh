#!/usr/bin/env bash
# A plug-in that allocates when it is loaded, frees when it is unloaded, and keeps a thread meanwhile, in a
# program that hakmem serves; and hakmem itself, opened and closed by a program that it does not serve.
set -euo pipefail

: "${HAK_TEST_LIB:?}" "${CC:=cc}"
# Programs below would take them for options of hakmem.
export -n HAK_TEST_LIB HAK_TEST_BUILD HAK_TEST_SOURCE
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

cat >"$dir/plugin.c" <<'C'
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define COUNT 500
static void *block[COUNT];
static pthread_t thread;
static pthread_key_t key;
static int stopping;

static size_t size_of(size_t i)
{
    return i % 50 == 0 ? 300000 : i * 37 % 3000 + 1;
}

static void destroy(void *value)
{
    free(value);
    free(malloc(100));
}

static void *run(void *unused)
{
    pthread_setspecific(key, malloc(1000));
    while (!__atomic_load_n(&stopping, __ATOMIC_ACQUIRE)) {
        for (size_t i = 0; i < 100; i++) free(malloc(size_of(i)));
    }
    return unused;
}

__attribute__((constructor)) static void loaded(void)
{
    __atomic_store_n(&stopping, 0, __ATOMIC_RELEASE);
    for (size_t i = 0; i < COUNT; i++) {
        block[i] = malloc(size_of(i));
        if (block[i] == NULL) abort();
        memset(block[i], (int)i, size_of(i));
    }
    if (pthread_key_create(&key, destroy) != 0) abort();
    if (pthread_create(&thread, NULL, run, NULL) != 0) abort();
}

__attribute__((destructor)) static void unloaded(void)
{
    __atomic_store_n(&stopping, 1, __ATOMIC_RELEASE);
    pthread_join(thread, NULL);
    pthread_key_delete(key);
    for (size_t i = 0; i < COUNT; i++) {
        if (*(unsigned char *)block[i] != (unsigned char)i) abort();
        free(block[i]);
    }
}
C
cat >"$dir/host.c" <<'C'
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    alarm(60);
    int times = argc > 2 ? atoi(argv[2]) : 1;
    for (int i = 0; i < times; i++) {
        void *plugin = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
        if (plugin == NULL) {
            fprintf(stderr, "%s\n", dlerror());
            return 1;
        }
        /* Of a library that does not serve this program: blocks of its own, freed after the close. */
        void *(*take)(size_t) = (void *(*)(size_t))dlsym(plugin, "hak_malloc");
        void (*give)(void *) = (void (*)(void *))dlsym(plugin, "hak_free");
        void *blocks[100];
        for (int j = 0; take != NULL && j < 100; j++) blocks[j] = take((size_t)(j * 1000 + 1));
        free(malloc(5000));
        if (dlclose(plugin) != 0) return 2;
        for (int j = 0; take != NULL && j < 100; j++) give(blocks[j]);
    }
    return 0;
}
C
"$CC" -O1 -shared -fPIC -o "$dir/plugin.so" "$dir/plugin.c" -pthread
"$CC" -O1 -o "$dir/host" "$dir/host.c" -ldl
LD_PRELOAD=$HAK_TEST_LIB "$dir/host" "$dir/plugin.so" 50
"$dir/host" "$HAK_TEST_LIB" 20
