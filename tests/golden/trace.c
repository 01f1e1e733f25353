/* trace.c: which instructions a hot entry point really executes. x86-64 only.
 *
 *   trace libhakmem.so      prints a line for each of several warm calls of each entry point: its
 *                           name, then the address of each instruction from the first to the
 *                           return, in hexadecimal, relative to the library
 *
 * The parent single-steps a child that has the library preloaded. The child says where to begin with
 * a breakpoint in front of the call. Exit status 77: this machine permits no tracing.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#define STATUS_SKIP 77
#define RUNS 8
#define WARM_UP 200
#define BYTES 64u
/* No hot path comes near, and a slow one that never returns ends. */
#define STEPS_MAX 100000

typedef enum form {
    FORM_ALLOC,      /* f(size) */
    FORM_ALLOC_WITH, /* f(size, &a byte), which is how a reference to std::nothrow_t is passed */
    FORM_CALLOC,     /* f(1, size) */
    FORM_FREE,       /* f(block), f(block, size): a second argument that isn't taken does no harm */
} form;

static const struct {
    const char *name;
    form form;
} entries[] = {
    {"malloc", FORM_ALLOC},
    {"free", FORM_FREE},
    {"calloc", FORM_CALLOC},
    {"free_sized", FORM_FREE},
    {"_Znwm", FORM_ALLOC},
    {"_Znam", FORM_ALLOC},
    {"_ZnwmRKSt9nothrow_t", FORM_ALLOC_WITH},
    {"_ZnamRKSt9nothrow_t", FORM_ALLOC_WITH},
    {"_ZdlPv", FORM_FREE},
    {"_ZdlPvm", FORM_FREE},
    {"_ZdaPv", FORM_FREE},
    {"_ZdaPvm", FORM_FREE},
};
#define ENTRIES (sizeof(entries) / sizeof(entries[0]))

/* ---- The child ------------------------------------------------------------------------------- */

typedef uintptr_t call(uintptr_t function, uintptr_t first, uintptr_t second, uintptr_t base,
                       uintptr_t entry);

/* Both call the function with two arguments. At the breakpoint the parent finds the function in rax,
 * the library's base in rcx and the number of the entry in r8. */
call plain_call;
call traced_call;
__asm__(".text\n"
        ".globl plain_call, traced_call\n"
        ".type plain_call, @function\n"
        ".type traced_call, @function\n"
        "plain_call:\n\t"
        "subq $8, %rsp\n\t"
        "movq %rdi, %rax\n\tmovq %rsi, %rdi\n\tmovq %rdx, %rsi\n\t"
        "call *%rax\n\t"
        "addq $8, %rsp\n\tret\n"
        "traced_call:\n\t"
        "subq $8, %rsp\n\t"
        "movq %rdi, %rax\n\tmovq %rsi, %rdi\n\tmovq %rdx, %rsi\n\t"
        "int3\n\t"
        "call *%rax\n\t"
        "addq $8, %rsp\n\tret\n");

static char second_byte;

static void once(call *how, size_t entry, uintptr_t function, uintptr_t base)
{
    switch (entries[entry].form) {
    case FORM_ALLOC:
        free((void *)how(function, BYTES, 0, base, entry));
        break;
    case FORM_ALLOC_WITH:
        free((void *)how(function, BYTES, (uintptr_t)&second_byte, base, entry));
        break;
    case FORM_CALLOC:
        free((void *)how(function, 1, BYTES, base, entry));
        break;
    case FORM_FREE:
        how(function, (uintptr_t)malloc(BYTES), BYTES, base, entry);
        break;
    }
}

static int child(const char *library)
{
    for (size_t entry = 0; entry < ENTRIES; entry++) {
        void *function = dlsym(RTLD_DEFAULT, entries[entry].name);
        Dl_info where;
        if (function == NULL || dladdr(function, &where) == 0) {
            fprintf(stderr, "trace: there is no %s\n", entries[entry].name);
            return 1;
        }
        char *served_by = realpath(where.dli_fname, NULL);
        if (served_by == NULL || strcmp(served_by, library) != 0) {
            fprintf(stderr, "trace: %s is %s's\n", entries[entry].name, where.dli_fname);
            return 1;
        }
        free(served_by);
        uintptr_t base = (uintptr_t)where.dli_fbase;
        for (int i = 0; i < WARM_UP; i++)
            once(plain_call, entry, (uintptr_t)function, base);
        for (int i = 0; i < RUNS; i++)
            once(traced_call, entry, (uintptr_t)function, base);
    }
    return 0;
}

static void child_begin(char *program, char *library)
{
    if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) != 0) {
        perror("trace: ptrace");
        _exit(STATUS_SKIP);
    }
    setenv("LD_PRELOAD", library, 1);
    execl("/proc/self/exe", program, "--child", library, (char *)NULL);
    perror("trace: exec");
    _exit(1);
}

/* ---- The parent ------------------------------------------------------------------------------ */

_Noreturn static void fail(pid_t pid, const char *what)
{
    fprintf(stderr, "trace: %s: %s\n", what, strerror(errno));
    kill(pid, SIGKILL);
    exit(1);
}

static void registers(pid_t pid, struct user_regs_struct *regs)
{
    if (ptrace(PTRACE_GETREGS, pid, NULL, regs) != 0)
        fail(pid, "registers");
}

static void step(pid_t pid, struct user_regs_struct *regs)
{
    int status = 0;
    if (ptrace(PTRACE_SINGLESTEP, pid, NULL, NULL) != 0 || waitpid(pid, &status, 0) != pid)
        fail(pid, "step");
    errno = 0;
    if (!WIFSTOPPED(status) || WSTOPSIG(status) != SIGTRAP)
        fail(pid, "the step ended otherwise");
    registers(pid, regs);
}

/* The child stands at its breakpoint. */
static void follow(pid_t pid)
{
    struct user_regs_struct regs;
    registers(pid, &regs);
    uint64_t function = regs.rax;
    uint64_t base = regs.rcx;
    uint64_t entry = regs.r8;
    errno = 0;
    if (entry >= ENTRIES)
        fail(pid, "a breakpoint of somebody else's");
    uint64_t stack = regs.rsp;
    step(pid, &regs);
    if (regs.rip != function)
        fail(pid, "the call went elsewhere");

    printf("%s", entries[entry].name);
    /* Returned: the stack is as it was before the call. */
    for (int steps = 0; regs.rsp != stack; steps++) {
        if (steps == STEPS_MAX)
            fail(pid, "no return");
        printf(" %lx", (unsigned long)(regs.rip - base));
        step(pid, &regs);
    }
    printf("\n");
}

static int parent(pid_t pid)
{
    int status;
    int started = 0;
    for (;;) {
        if (waitpid(pid, &status, 0) != pid)
            fail(pid, "wait");
        if (WIFEXITED(status))
            return WEXITSTATUS(status);
        if (WIFSIGNALED(status)) {
            fprintf(stderr, "trace: the child died of signal %d\n", WTERMSIG(status));
            return 1;
        }
        int sig = WSTOPSIG(status);
        if (sig == SIGTRAP) {
            /* The first stop is exec's. */
            if (started)
                follow(pid);
            else if (ptrace(PTRACE_SETOPTIONS, pid, NULL, (void *)PTRACE_O_EXITKILL) != 0)
                fail(pid, "options");
            started = 1;
            sig = 0;
        }
        if (ptrace(PTRACE_CONT, pid, NULL, (void *)(intptr_t)sig) != 0)
            fail(pid, "continue");
    }
}

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "--child") == 0)
        return child(argv[2]);
    if (argc != 2) {
        fprintf(stderr, "usage: trace libhakmem.so\n");
        return 2;
    }
    char *library = realpath(argv[1], NULL);
    if (library == NULL) {
        perror(argv[1]);
        return 2;
    }
    pid_t pid = fork();
    if (pid < 0) {
        perror("trace: fork");
        return 1;
    }
    if (pid == 0)
        child_begin(argv[0], library);
    return parent(pid);
}
