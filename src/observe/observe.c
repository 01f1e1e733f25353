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
#include "policy/policy.h"

/* ---- stderr ---------------------------------------------------------------------------------- */

static struct {
    bool known; /* only where something was asked for at the start */
    bool open;
    dev_t device;
    ino_t inode;
} hak_stderr_was;

static bool hak_stderr_stat(struct stat *status)
{
    int saved = errno;
    bool open = fstat(STDERR_FILENO, status) == 0;
    errno = saved;
    return open;
}

static void hak_stderr_remember(void)
{
    struct stat status;
    hak_stderr_was.known = true;
    hak_stderr_was.open = hak_stderr_stat(&status);
    if (!hak_stderr_was.open)
        return;
    hak_stderr_was.device = status.st_dev;
    hak_stderr_was.inode = status.st_ino;
}

bool hak_observe_stderr(void)
{
    struct stat status;
    if (!hak_stderr_stat(&status))
        return false;
    if (!hak_stderr_was.known)
        return true;
    if (hak_stderr_was.open && status.st_dev == hak_stderr_was.device &&
        status.st_ino == hak_stderr_was.inode)
        return true;
    long flags = hak_syscall3(SYS_fcntl, STDERR_FILENO, F_GETFL, 0);
    return !hak_syscall_failed(flags) && (flags & O_APPEND) != 0;
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
    if (hak_observe_stderr())
        hak_ring_print(STDERR_FILENO);
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
    if (hak_observe_stderr()) {
        hak_line line;
        hak_line_start(&line);
        hak_text_put(&line.text, "signal ");
        hak_text_unsigned(&line.text, (uint64_t)number);
        hak_text_put(&line.text, " in thread ");
        hak_text_unsigned(&line.text, (uint64_t)hak_os_thread_id());
        hak_line_end(&line, HAK_LOG_ERROR);
        hak_ring_print(STDERR_FILENO);
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
        hak_stderr_remember();
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
