/* process.h: processes of the fault tests: this program run anew, and what becomes of a child.
 *
 * Include after test.h. Nothing here allocates in the child before the exec.
 */
#ifndef HAK_TEST_PROCESS_H
#define HAK_TEST_PROCESS_H

#include <sys/wait.h>

/* Waits for a child and returns its exit status; 128 plus the signal where one ended it. */
static TEST_UNUSED int process_wait(pid_t child)
{
    int status = 0;
    while (waitpid(child, &status, 0) < 0)
        if (errno != EINTR)
            return -1;
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

/* This program run once more, with `word` as its only argument, after `prepare` (or NULL) has run in
 * the new process. Returns as process_wait; 126 where it could not be run. */
static TEST_UNUSED int process_again(const char *word, void (*prepare)(void))
{
    pid_t child = fork();
    if (child == 0) {
        if (prepare != NULL)
            prepare();
        execl("/proc/self/exe", "again", word, (char *)NULL);
        _exit(126);
    }
    return child < 0 ? -1 : process_wait(child);
}

#endif
