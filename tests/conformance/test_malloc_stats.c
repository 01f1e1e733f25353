/* malloc_stats: glibc. Writes something readable on stderr. */
#include "blocks.h"

#if defined(HAK_NO_INTERPOSE)
int main(void)
{
    return test_skip("malloc_stats is the C library's in this build");
}
#else

static void (*volatile stats_function)(void) = malloc_stats;

int main(void)
{
    test_start(60);
    char path[] = "/tmp/hak_test_stats_XXXXXX";
    int file = mkstemp(path);
    REQUIRE(file >= 0);
    unlink(path);
    int saved = dup(2);
    REQUIRE(saved >= 0 && dup2(file, 2) == 2);
    void *block = malloc(5000);
    CHECK_KEEPS_ERRNO(stats_function());
    fflush(stderr);
    dup2(saved, 2);
    free(block);

    static char text[65536];
    ssize_t length = pread(file, text, sizeof(text) - 1, 0);
    CHECK(length > 20);
    for (ssize_t i = 0; i < length; i++) {
        CHECK(text[i] == '\n' || text[i] == '\t' || (unsigned char)text[i] >= ' ');
    }
    CHECK(length > 0 && text[length - 1] == '\n');
    close(file);
    return test_result();
}
#endif
