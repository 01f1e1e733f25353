/* A program that runs with more rights than its caller (AT_SECURE) takes no option from the caller's
 * environment: HAKMEM_STATS_FILE could name a file that only the program may write. */
#include <sys/auxv.h>
#include <sys/stat.h>

#include "../test.h"

#include "process.h"

static char directory[] = "/tmp/hakmem-secure-XXXXXX";
static char program[64];
static char report[64];
enum { somebody = 65534 };

static int as_secure(void)
{
    if (getauxval(AT_SECURE) == 0)
        return 77;
    hak_policy policy;
    if (hak_policy_read(&policy) != 0)
        return 2;
    hak_policy balanced;
    if (hak_policy_preset(&balanced, "balanced") != 0)
        return 3;
    return memcmp(policy.value, balanced.value, sizeof policy.value) == 0 ? 0 : 4;
}

static bool copy_program(void)
{
    static char buffer[65536];
    int from = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    int to = open(program, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0755);
    ssize_t got = -1;
    while (from >= 0 && to >= 0 && (got = read(from, buffer, sizeof buffer)) > 0)
        if (write(to, buffer, (size_t)got) != got)
            break;
    /* The owner first: a change of it takes the set-user-ID bit away. */
    bool done = got == 0 && fchown(to, 0, 0) == 0 && fchmod(to, 04755) == 0;
    close(from);
    close(to);
    return done;
}

int main(int argc, char **argv)
{
    (void)argv;
    alarm(TEST_SANITIZED ? 200 : 20);
    if (argc > 1)
        return as_secure();
    if (TEST_SANITIZED)
        return test_skip("a sanitizer's runtime is not made for secure mode");
    if (geteuid() != 0)
        return test_skip("only root can make a program set-user-ID root");
    test_start(20);
    REQUIRE(mkdtemp(directory) != NULL);
    REQUIRE(chmod(directory, 0755) == 0);
    snprintf(program, sizeof program, "%s/program", directory);
    snprintf(report, sizeof report, "%s/report", directory);
    REQUIRE(copy_program());
    int result = 0;
    for (int secure = 0; secure < 2; secure++) {
        pid_t child = fork();
        REQUIRE(child >= 0);
        if (child == 0) {
            setenv("HAKMEM_BIN_BYTES", "4k", 1);
            setenv("HAKMEM_MODE", "minimal", 1);
            setenv("HAKMEM_STATS", "1", 1);
            setenv("HAKMEM_STATS_FILE", report, 1);
            if (secure != 0 && setresuid(somebody, 0, 0) != 0)
                _exit(77);
            execl(program, "again", "secure", (char *)NULL);
            _exit(126);
        }
        result = process_wait(child);
        /* Without the change of user the options do work: this test tests something. */
        if (secure == 0) {
            CHECK_EQ(result, 77);
            CHECK_EQ(access(report, F_OK), 0);
            unlink(report);
        } else if (result != 77) {
            CHECK_EQ(result, 0);
            CHECK(access(report, F_OK) != 0);
        }
    }
    unlink(report);
    unlink(program);
    rmdir(directory);
    if (result == 77)
        return test_skip("set-user-ID has no effect here");
    return test_result();
}
