/* startup_probe.c: starts a program many times, with and without a library preloaded in turn, and
 * prints for each start: preloaded?, wall nanoseconds, CPU microseconds, peak resident KiB, minor
 * faults.
 *
 * It is a program of its own, linked statically, because a child's peak counts what its parent had
 * resident at the time of the start: the parent has to be smaller than what it measures.
 *
 *     startup_probe LIBRARY ROUNDS PROGRAM [ARGUMENT...]
 */
#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static long long now_ns(void)
{
    struct timespec time;

    clock_gettime(CLOCK_MONOTONIC, &time);
    return (long long)time.tv_sec * 1000000000 + time.tv_nsec;
}

static int start(char **argv, char **env, int preloaded)
{
    struct rusage usage;
    pid_t pid;
    int status;
    long long begin = now_ns();
    int error = posix_spawn(&pid, argv[0], NULL, NULL, argv, env);

    if (error != 0) {
        fprintf(stderr, "%s: %s\n", argv[0], strerror(error));
        return 0;
    }
    while (wait4(pid, &status, 0, &usage) < 0) {
        if (errno != EINTR) {
            return 0;
        }
    }
    long long wall = now_ns() - begin;

    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
        fprintf(stderr, "%s ended with status %#x\n", argv[0], (unsigned)status);
        return 0;
    }
    long long cpu = (usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1000000LL +
                    usage.ru_utime.tv_usec + usage.ru_stime.tv_usec;

    printf("%d %lld %lld %ld %ld\n", preloaded, wall, cpu, usage.ru_maxrss, usage.ru_minflt);
    return 1;
}

int main(int argc, char **argv)
{
    static char preload[4096];
    char *plain[] = {"LC_ALL=C", NULL};
    char *served[] = {"LC_ALL=C", preload, NULL};
    int rounds;

    if (argc < 4 || (rounds = atoi(argv[2])) <= 0 ||
        snprintf(preload, sizeof preload, "LD_PRELOAD=%s", argv[1]) >= (int)sizeof preload) {
        fprintf(stderr, "usage: startup_probe LIBRARY ROUNDS PROGRAM [ARGUMENT...]\n");
        return 2;
    }
    for (int round = 0; round < rounds; round++) {
        /* who goes first changes, so that neither always finds the other's warm caches */
        int first = round & 1;

        if (!start(argv + 3, first ? served : plain, first) ||
            !start(argv + 3, first ? plain : served, !first)) {
            return 1;
        }
    }
    return 0;
}
