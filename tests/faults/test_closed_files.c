/* Standard input, output and error closed at the start: reports go nowhere, and above all not into a file
 * of the program's that was given the number of one of them. */
#include <sys/stat.h>

#include "../test.h"

#include "process.h"

static char path[] = "/tmp/hakmem-closed-XXXXXX";

static void close_all(void)
{
    setenv("HAKMEM_STATS", "1", 1);
    setenv("HAKMEM_PROF", "1", 1);
    setenv("HAKMEM_NO_SUCH_OPTION", "1", 1);
    setenv("CLOSED_TEST_FILE", path, 1);
    for (int i = 0; i < 3; i++)
        close(i);
}

static int as_closed(void)
{
    for (int i = 0; i < 3; i++)
        if (fcntl(i, F_GETFD) >= 0)
            return 2;
    for (int i = 0; i < 3; i++)
        if (open(getenv("CLOSED_TEST_FILE"), O_WRONLY) != i)
            return 3;
    for (size_t i = 0; i < TEST_COUNT_OF(test_sizes); i++) {
        void *block = malloc(test_sizes[i]);
        if (block == NULL)
            return 4;
        free(block);
    }
    free((void *)(uintptr_t)64); /* foreign: nothing is said of it either */
    return 0;
}

int main(int argc, char **argv)
{
    (void)argv;
    alarm(TEST_SANITIZED ? 200 : 20);
    if (argc > 1)
        return as_closed();
    test_start(20);
    int file = mkstemp(path);
    REQUIRE(file >= 0);
    CHECK_EQ(process_again("closed", close_all), 0);
    struct stat status;
    CHECK_EQ(fstat(file, &status), 0);
    CHECK_EQ(status.st_size, 0);
    unlink(path);
    return test_result();
}
