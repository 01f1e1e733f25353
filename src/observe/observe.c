/* What the constructor turns on, and the dumps on signals. */
#include "observe/observe.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/log.h"
#include "base/syscall.h"
#include "observe/ring.h"
#include "policy/options.h"

/* ---- stderr ---------------------------------------------------------------------------------- */

static struct {
    bool known; /* only where something was asked for at the start */
    bool open;
    int copy; /* -1: none */
    dev_t device;
    ino_t inode;
} hak_stderr_was = {.copy = -1};

/* The copy's number is above those that programs count on, and where none is that high (a low limit
 * of open files), there is no copy. */
#define HAK_STDERR_COPY_LEAST 200

static bool hak_observe_stat(int fd, struct stat *status)
{
    int saved = errno;
    bool open = fstat(fd, status) == 0;
    errno = saved;
    return open;
}

static bool hak_stderr_is(int fd)
{
    struct stat status;
    return hak_stderr_was.open && hak_observe_stat(fd, &status) &&
           status.st_dev == hak_stderr_was.device && status.st_ino == hak_stderr_was.inode;
}

static void hak_stderr_remember(bool copy)
{
    struct stat status;
    hak_stderr_was.known = true;
    hak_stderr_was.open = hak_observe_stat(STDERR_FILENO, &status);
    if (!hak_stderr_was.open)
        return;
    hak_stderr_was.device = status.st_dev;
    hak_stderr_was.inode = status.st_ino;
    if (!copy)
        return;
    long fd = hak_syscall3(SYS_fcntl, STDERR_FILENO, F_DUPFD_CLOEXEC, HAK_STDERR_COPY_LEAST);
    hak_stderr_was.copy = hak_syscall_failed(fd) ? -1 : (int)fd;
}

/* Whether file descriptor 2 is one that reports may go to. */
static bool hak_stderr_may(void)
{
    struct stat status;
    if (!hak_observe_stat(STDERR_FILENO, &status))
        return false;
    if (!hak_stderr_was.known || hak_stderr_is(STDERR_FILENO))
        return true;
    long flags = hak_syscall3(SYS_fcntl, STDERR_FILENO, F_GETFL, 0);
    return !hak_syscall_failed(flags) && (flags & O_APPEND) != 0;
}

int hak_observe_fd(void)
{
    if (hak_stderr_was.copy >= 0 && hak_stderr_is(hak_stderr_was.copy))
        return hak_stderr_was.copy;
    return hak_stderr_may() ? STDERR_FILENO : -1;
}

/* ---- Signals --------------------------------------------------------------------------------- */

static const int hak_crash_signals[] = {SIGSEGV, SIGBUS, SIGABRT, SIGILL, SIGFPE};

static struct sigaction hak_crash_before[HAK_COUNT_OF(hak_crash_signals)];

/* A stack overflow leaves no other stack to stand on. The kernel's frame alone may take several KiB. */
#define HAK_ALT_STACK_BYTES ((size_t)64 << 10)

static void hak_on_dump(int number)
{
    (void)number;
    int saved = errno;
    int fd = hak_observe_fd();
    if (fd >= 0)
        hak_ring_print(fd);
    errno = saved;
}

/* The signal again, with all that the kernel said about it, now that the handler before ours stands
 * in its place: it is delivered when this one returns, in the same context. So exit status, core and
 * the program's own handler are as without us. */
static void hak_crash_again(int number, siginfo_t *info)
{
    long pid = hak_syscall3(SYS_getpid, 0, 0, 0);
    long thread = hak_syscall3(SYS_gettid, 0, 0, 0);
    long result = hak_syscall4(SYS_rt_tgsigqueueinfo, pid, thread, number, (long)info);
    if (hak_syscall_failed(result))
        hak_syscall3(SYS_tgkill, pid, thread, number);
}

static void hak_on_crash(int number, siginfo_t *info, void *context)
{
    (void)context;
    int saved = errno;
    int fd = hak_observe_fd();
    if (fd >= 0) {
        char buffer[80];
        hak_text text;
        hak_text_init(&text, buffer, sizeof buffer);
        hak_text_put(&text, "hakmem: signal ");
        hak_text_unsigned(&text, (uint64_t)number);
        hak_text_put(&text, " in thread ");
        hak_text_unsigned(&text, (uint64_t)hak_os_thread_id());
        hak_text_char(&text, '\n');
        hak_text_write(&text, fd);
        hak_ring_print(fd);
    }
    for (size_t i = 0; i < HAK_COUNT_OF(hak_crash_signals); i++)
        if (hak_crash_signals[i] == number)
            sigaction(number, &hak_crash_before[i], NULL);
    hak_crash_again(number, info);
    errno = saved;
}

static void hak_watch_dump(void)
{
    struct sigaction before;
    if (sigaction(SIGUSR2, NULL, &before) != 0 || before.sa_handler != SIG_DFL)
        return;
    struct sigaction action = {.sa_handler = hak_on_dump, .sa_flags = SA_RESTART | SA_ONSTACK};
    sigfillset(&action.sa_mask);
    sigaction(SIGUSR2, &action, NULL);
}

static void hak_watch_crashes(void)
{
    stack_t stack;
    if (sigaltstack(NULL, &stack) == 0 && (stack.ss_flags & SS_DISABLE) != 0) {
        stack = (stack_t){.ss_sp = hak_os_map(HAK_ALT_STACK_BYTES, hak_os_page_bytes),
                          .ss_size = HAK_ALT_STACK_BYTES};
        if (stack.ss_sp != NULL)
            sigaltstack(&stack, NULL);
    }
    struct sigaction action = {.sa_sigaction = hak_on_crash, .sa_flags = SA_SIGINFO | SA_ONSTACK};
    sigfillset(&action.sa_mask);
    for (size_t i = 0; i < HAK_COUNT_OF(hak_crash_signals); i++) {
        struct sigaction *before = &hak_crash_before[i];
        if (sigaction(hak_crash_signals[i], NULL, before) != 0)
            continue;
        /* Whoever ignores it does not end of it. */
        if (before->sa_handler == SIG_IGN)
            continue;
        sigaction(hak_crash_signals[i], &action, NULL);
    }
}

/* ---- Start ----------------------------------------------------------------------------------- */

void hak_observe_init(void)
{
    bool dumps = hak_knob_get(HAK_KNOB_TRACE_SIGNAL) != 0;
    hak_prof_on = hak_knob_get(HAK_KNOB_PROF) != 0;
    if (hak_prof_on || dumps || hak_knob_get(HAK_KNOB_STATS) != 0)
        hak_stderr_remember(dumps || hak_stats_path == NULL);
    uint64_t entries = hak_knob_get(HAK_KNOB_TRACE_RING);
    if (entries != 0 && !hak_ring_start(entries))
        hak_log(HAK_LOG_WARN, "no memory for the event ring");
    if (!dumps)
        return;
    if (hak_ring_capacity() == 0) {
        hak_log(HAK_LOG_WARN, "HAKMEM_TRACE_SIGNAL does nothing without HAKMEM_TRACE_RING");
        return;
    }
    hak_watch_dump();
    hak_watch_crashes();
}
