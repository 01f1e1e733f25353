/* thread_cost.c: resident memory of threads that allocate little.
 *
 *     thread_cost THREADS BLOCKS
 *
 * starts THREADS threads, each of which allocates BLOCKS small blocks, writes to them, and waits.
 * With BLOCKS 0 it is the control: the same threads, the same stacks, no allocation of theirs.
 * Prints the process's resident KiB before the threads start, while all wait, and when they ended.
 */
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { STACK_BYTES = 256 << 10, MOST_BLOCKS = 1000 };

static pthread_barrier_t ready, leave;
static size_t blocks;

static void *thread_main(void *unused)
{
    /* 16 to 512 bytes over ten size classes: a name, a buffer, a few nodes */
    static const size_t sizes[] = {16, 24, 40, 64, 80, 100, 144, 200, 320, 512};
    void *held[MOST_BLOCKS];

    memset(held, 0, sizeof held); /* the control touches as much stack */
    for (size_t i = 0; i < blocks; i++) {
        size_t size = sizes[i % (sizeof sizes / sizeof *sizes)];

        held[i] = malloc(size);
        if (held[i] == NULL) {
            abort();
        }
        memset(held[i], (int)i + 1, size);
    }
    pthread_barrier_wait(&ready);
    pthread_barrier_wait(&leave);
    for (size_t i = 0; i < blocks; i++) {
        if (*(unsigned char *)held[i] != (unsigned char)(i + 1)) {
            abort();
        }
        free(held[i]);
    }
    return unused;
}

/* From smaps_rollup, which counts the page tables themselves: the figure in statm lags behind by
 * some pages for every CPU. */
static long resident_kib(void)
{
    static char text[4096];
    int file = open("/proc/self/smaps_rollup", O_RDONLY | O_CLOEXEC);

    if (file < 0) {
        return -1;
    }
    ssize_t length = read(file, text, sizeof text - 1);

    close(file);
    if (length <= 0) {
        return -1;
    }
    text[length] = '\0';
    const char *line = strstr(text, "\nRss:");

    return line == NULL ? -1 : atol(line + strlen("\nRss:"));
}

int main(int argc, char **argv)
{
    size_t threads = argc == 3 ? (size_t)atol(argv[1]) : 0;
    pthread_attr_t attributes;

    blocks = argc == 3 ? (size_t)atol(argv[2]) : 0;
    if (threads == 0 || threads > 100000 || blocks > MOST_BLOCKS) {
        fprintf(stderr, "usage: thread_cost THREADS BLOCKS\n");
        return 2;
    }
    pthread_t *handles = malloc(threads * sizeof *handles);

    if (handles == NULL || pthread_barrier_init(&ready, NULL, (unsigned)threads + 1) != 0 ||
        pthread_barrier_init(&leave, NULL, (unsigned)threads + 1) != 0 ||
        pthread_attr_init(&attributes) != 0 ||
        pthread_attr_setstacksize(&attributes, STACK_BYTES) != 0) {
        return 2;
    }
    memset(handles, 0, threads * sizeof *handles);
    long before = resident_kib();

    for (size_t i = 0; i < threads; i++) {
        if (pthread_create(&handles[i], &attributes, thread_main, NULL) != 0) {
            fprintf(stderr, "pthread_create failed at thread %zu\n", i);
            return 1;
        }
    }
    pthread_barrier_wait(&ready);
    long during = resident_kib();

    pthread_barrier_wait(&leave);
    for (size_t i = 0; i < threads; i++) {
        pthread_join(handles[i], NULL);
    }
    printf("%ld %ld %ld\n", before, during, resident_kib());
    return 0;
}
