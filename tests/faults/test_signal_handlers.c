/* A signal handler that allocates and frees, a thousand times a second, in the thread that does so too.
 * Undefined in C, and here too what it allocates; but it must not deadlock. */
#include <sys/time.h>
#include <time.h>

#include "../test.h"

#include "process.h"

static volatile sig_atomic_t calls;
static void *mine[16];

static void on_signal(int number)
{
    (void)number;
    int saved = errno;
    size_t slot = (size_t)calls % TEST_COUNT_OF(mine);
    free(mine[slot]);
    mine[slot] = malloc(test_sizes[test_mix((uint64_t)calls) % TEST_COUNT_OF(test_sizes)]);
    calls = calls + 1;
    errno = saved;
}

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static void run(unsigned long microseconds)
{
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    struct itimerval often = {{0, (suseconds_t)microseconds}, {0, (suseconds_t)microseconds}};
    sigaction(SIGPROF, &action, NULL);
    setitimer(ITIMER_PROF, &often, NULL);
    static void *block[2000];
    uint64_t r = 0;
    double end = seconds() + 2;
    while (seconds() < end) {
        for (int i = 0; i < 1000; i++) {
            uint64_t draw = test_mix(++r);
            size_t slot = draw % TEST_COUNT_OF(block);
            free(block[slot]);
            block[slot] =
                malloc(draw % 64 == 0 ? test_sizes[(draw >> 20) % TEST_COUNT_OF(test_sizes)]
                                      : (draw >> 20) % 2000);
        }
    }
    setitimer(ITIMER_PROF, &(struct itimerval){{0, 0}, {0, 0}}, NULL);
}

int main(void)
{
    if (TEST_SANITIZED)
        return test_skip("a sanitizer forbids it");
    test_start(60);
    pid_t child = fork();
    if (child == 0) {
        alarm(10);
        run(1000);
        fprintf(stderr, "%d calls of the handler\n", (int)calls);
        _exit(calls > 100 ? 0 : 3);
    }
    int result = process_wait(child);
    CHECK(result != 128 + SIGALRM);
    /* A crash is no hang, but shows nothing of one either: not a pass. */
    if (result != 0 && result != 128 + SIGALRM) {
        fprintf(stderr, "the program ended with %d\n", result);
        return test_skip("the program crashed, which is undefined in C, before it could hang");
    }
    return test_result();
}
