/* No /proc, as in a chroot or a bare container: nothing that hakmem does may depend on it. */
#include <sched.h>
#include <sys/mount.h>

#include "../test.h"

#include "process.h"

int main(int argc, char **argv)
{
    if (TEST_SANITIZED)
        return test_skip("sanitizers read /proc");
    test_start(30);
    if (argc == 1) {
        if (unshare(CLONE_NEWNS) != 0)
            return test_skip("no mount namespace can be had here");
        if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
            mount("none", "/proc", "tmpfs", 0, NULL) != 0)
            return test_skip("nothing can be mounted here");
        execl(argv[0], argv[0], "hidden", (char *)NULL);
        return test_skip("this program does not find itself");
    }
    REQUIRE(access("/proc/self/statm", F_OK) != 0);
    for (size_t i = 0; i < TEST_COUNT_OF(test_sizes); i++) {
        void *block = malloc(test_sizes[i]);
        REQUIRE(block != NULL);
        test_fill(block, test_sizes[i], i);
        CHECK_EQ(test_intact(block, test_sizes[i], i), test_sizes[i]);
        free(block);
    }
    hak_stats_data stats;
    CHECK_EQ(hak_stats(&stats, sizeof stats), 0);
    CHECK_EQ(stats.resident_bytes, 0);
    CHECK(stats.minor_faults > 0);
    hak_purge();
    hak_stats_print(STDERR_FILENO);
    pid_t child = fork();
    if (child == 0) {
        free(malloc(100000));
        _exit(0);
    }
    CHECK_EQ(process_wait(child), 0);
    return test_result();
}
