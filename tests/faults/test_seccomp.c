/* A sandbox that kills on any system call outside a closed list: what src/ calls where no option
 * asks for more, and what libc needs to start a thread and to end. */
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include "../test.h"

#include "process.h"

#if defined(__x86_64__)
#define THIS_ARCHITECTURE AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define THIS_ARCHITECTURE AUDIT_ARCH_AARCH64
#endif

static const int allowed[] = {
    /* hakmem's own */
    SYS_mmap, SYS_munmap, SYS_mremap, SYS_mprotect, SYS_madvise, SYS_futex, SYS_prlimit64,
    SYS_getrusage, SYS_openat, SYS_read, SYS_write, SYS_close, SYS_gettid,
    /* its clock where there is no vDSO, and getpid for reports */
    SYS_clock_gettime, SYS_getpid,
    /* of libc: a thread, and the end of one and of all */
    SYS_clone3, SYS_clone, SYS_rseq, SYS_set_robust_list, SYS_rt_sigprocmask, SYS_rt_sigaction,
    SYS_exit, SYS_exit_group};

static bool confine(void)
{
    enum { first = 4, count = TEST_COUNT_OF(allowed) };
    struct sock_filter code[first + count + 2] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, arch)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, THIS_ARCHITECTURE, 1, 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
    };
    for (unsigned i = 0; i < count; i++)
        code[first + i] = (struct sock_filter)BPF_JUMP(
            BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)allowed[i], (uint8_t)(count - i), 0);
    code[first + count] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS);
    code[first + count + 1] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    struct sock_fprog program = {.len = first + count + 2, .filter = code};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

static void *work(void *unused)
{
    static void *block[TEST_COUNT_OF(test_sizes) * 20];
    for (size_t i = 0; i < TEST_COUNT_OF(block); i++) {
        size_t size = test_sizes[i % TEST_COUNT_OF(test_sizes)];
        block[i] = i % 2 ? malloc(size) : aligned_alloc((size_t)4096 << i % 11, size);
        if (block[i] == NULL)
            _exit(3);
        memset(block[i], 1, size < 100 ? size : 100);
    }
    for (size_t i = 0; i < TEST_COUNT_OF(block); i++) {
        if (i % 5 == 0) {
            void *moved = realloc(block[i], test_sizes[i % TEST_COUNT_OF(test_sizes)] * 3);
            if (moved == NULL)
                _exit(4);
            block[i] = moved;
        }
        free(block[i]);
    }
    hak_stats_data stats;
    if (hak_stats(&stats, sizeof stats) != 0)
        _exit(5);
    hak_purge();
    return unused;
}

int main(void)
{
    if (TEST_SANITIZED)
        return test_skip("a sanitizer makes calls of its own");
#if defined(HAK_TEST_COVERAGE)
    return test_skip("a program that counts its lines writes them down at exit");
#endif
    test_start(30);
    for (int probe = 0; probe < 2; probe++) {
        pid_t child = fork();
        REQUIRE(child >= 0);
        if (child == 0) {
            pthread_t thread;
            if (!confine())
                _exit(77);
            /* The filter does kill: this test tests something. */
            if (probe == 0)
                _exit((int)syscall(SYS_getppid) == 0);
            work(NULL);
            if (pthread_create(&thread, NULL, work, NULL) != 0 || pthread_join(thread, NULL) != 0)
                _exit(6);
            hak_stats_print(STDOUT_FILENO);
            exit(0);
        }
        int result = process_wait(child);
        if (result == 77)
            return test_skip("no system call filter can be had here");
        CHECK_EQ(result, probe == 0 ? 128 + SIGSYS : 0);
    }
    return test_result();
}
