/* launch.c: how long a command takes from start to end, and its peak of resident memory, with each
 * of several libraries preloaded.
 *
 *     launch ROUNDS COMMAND LIBRARY...      "-" stands for no library
 *
 * Prints one line per library and round: index of the library, microseconds, KiB. Rounds are
 * interleaved. It is a small program of its own, and forks, because the system counts the peak of
 * the process that calls exec into that of the command: vfork would show the launcher's peak
 * wherever the command's is less.
 */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

int main(int argc, char **argv)
{
    long rounds = argc > 3 ? strtol(argv[1], NULL, 10) : 0;
    int libraries = argc - 3;
    long round;
    int i;
    if (rounds < 1) {
        fprintf(stderr, "usage: launch ROUNDS COMMAND LIBRARY...\n");
        return 2;
    }
    for (round = 0; round < rounds; round++) {
        for (i = 0; i < libraries; i++) {
            static char preload[4096];
            int which = (int)((round + i) % libraries);
            const char *library = argv[3 + which];
            char *environment[] = {preload, NULL};
            char *command[] = {argv[2], NULL};
            struct rusage usage;
            uint64_t start;
            int status;
            pid_t child;
            if (strcmp(library, "-") == 0)
                environment[0] = NULL;
            else
                snprintf(preload, sizeof preload, "LD_PRELOAD=%s", library);
            start = now_ns();
            child = fork();
            if (child == 0) {
                execve(command[0], command, environment);
                _exit(127);
            }
            if (child < 0 || wait4(child, &status, 0, &usage) != child) {
                perror("launch");
                return 1;
            }
            start = now_ns() - start;
            if (status != 0) {
                fprintf(stderr, "launch: %s with %s: wait status %d\n", argv[2], library, status);
                return 1;
            }
            printf("%d %.1f %ld\n", which, (double)start / 1e3, usage.ru_maxrss);
        }
    }
    return 0;
}
