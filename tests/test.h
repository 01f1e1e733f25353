/* test.h: what the plain-program tests share.
 *
 * A test is a program: main calls test_start, checks, and returns test_result(). Exit status 0:
 * passed; 1: a check failed; 77: skipped, with the reason on stderr.
 *
 * Built as it is, a test is linked with hakmem and calls malloc and its kin, and test_start proves
 * that hakmem serves them. With HAK_NO_INTERPOSE (sanitizer builds, where malloc is the sanitizer's)
 * the same names mean hak_malloc and its kin. With HAK_TEST_GLIBC the test is linked with libc alone:
 * that is how the tests themselves are tested.
 *
 * Every allocation goes through a volatile pointer, so that no compiler removes a call, merges two,
 * or concludes from attributes what a result must be. Include this header last: it defines the names
 * of libc's functions as macros.
 */
#ifndef HAK_TEST_H
#define HAK_TEST_H

#if !defined(_GNU_SOURCE)
#error "tests are built with -D_GNU_SOURCE"
#endif

#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#if !defined(HAK_TEST_GLIBC)
#include <hakmem/hakmem.h>
#endif

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
#define TEST_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer) || __has_feature(address_sanitizer)
#define TEST_SANITIZED 1
#endif
#endif
/* UBSan has no macro of its own in gcc; the build has. */
#if !defined(TEST_SANITIZED) && defined(HAK_NO_INTERPOSE)
#define TEST_SANITIZED 1
#endif
#if !defined(TEST_SANITIZED)
#define TEST_SANITIZED 0
#endif

#define TEST_UNUSED __attribute__((unused))
#define TEST_KIB(n) ((size_t)(n) << 10)
#define TEST_MIB(n) ((size_t)(n) << 20)
#define TEST_COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

/* ---- Checks ---------------------------------------------------------------------------------- */

static int test_failures;

/* A fault in a loop would say the same thing a million times. */
#define TEST_FAILURES_SHOWN 20

static TEST_UNUSED void test_fail(const char *file, int line, const char *what)
{
    if (__atomic_add_fetch(&test_failures, 1, __ATOMIC_RELAXED) <= TEST_FAILURES_SHOWN) {
        fprintf(stderr, "%s:%d: failed: %s\n", file, line, what);
    }
}

static TEST_UNUSED void test_fail_equal(const char *file, int line, const char *what,
                                        long long actual, long long expected)
{
    if (__atomic_add_fetch(&test_failures, 1, __ATOMIC_RELAXED) <= TEST_FAILURES_SHOWN) {
        fprintf(stderr, "%s:%d: failed: %s: is %lld (0x%llx), expected %lld (0x%llx)\n", file, line,
                what, actual, (unsigned long long)actual, expected, (unsigned long long)expected);
    }
}

/* All checks may be used in any thread. CHECK goes on after a failure, REQUIRE ends the test. */
#define CHECK(condition) ((condition) ? (void)0 : test_fail(__FILE__, __LINE__, #condition))

#define REQUIRE(condition)                                                                         \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            test_fail(__FILE__, __LINE__, #condition);                                             \
            _exit(1);                                                                              \
        }                                                                                          \
    } while (0)

#define CHECK_EQ(actual, expected)                                                                 \
    do {                                                                                           \
        long long check_actual = (long long)(actual);                                              \
        long long check_expected = (long long)(expected);                                          \
        if (check_actual != check_expected) {                                                      \
            test_fail_equal(__FILE__, __LINE__, #actual, check_actual, check_expected);            \
        }                                                                                          \
    } while (0)

/* Runs the statement and checks that it leaves errno as it was. */
#define TEST_ERRNO_MARK 4242
#define CHECK_KEEPS_ERRNO(statement)                                                               \
    do {                                                                                           \
        errno = TEST_ERRNO_MARK;                                                                   \
        statement;                                                                                 \
        int check_errno = errno;                                                                   \
        if (check_errno != TEST_ERRNO_MARK) {                                                      \
            test_fail_equal(__FILE__, __LINE__, "errno after " #statement, check_errno,            \
                            TEST_ERRNO_MARK);                                                      \
        }                                                                                          \
    } while (0)

/* Checks that the expression is NULL and errno says `error`. */
#define CHECK_FAILS(expression, error)                                                             \
    do {                                                                                           \
        errno = 0;                                                                                 \
        void *check_block = (expression);                                                          \
        int check_errno = errno;                                                                   \
        if (check_block != NULL) {                                                                 \
            test_fail(__FILE__, __LINE__, #expression " should have failed");                      \
        } else if (check_errno != (error)) {                                                       \
            test_fail_equal(__FILE__, __LINE__, "errno after " #expression, check_errno, (error)); \
        }                                                                                          \
    } while (0)

#define CHECK_ALIGNED(block, alignment) CHECK_EQ((uintptr_t)(block) & ((uintptr_t)(alignment)-1), 0)

static TEST_UNUSED int test_result(void)
{
    int failures = __atomic_load_n(&test_failures, __ATOMIC_RELAXED);
    if (failures > TEST_FAILURES_SHOWN) {
        fprintf(stderr, "%d checks failed, the first %d are shown\n", failures,
                TEST_FAILURES_SHOWN);
    }
    return failures != 0;
}

static TEST_UNUSED int test_skip(const char *reason)
{
    fprintf(stderr, "skipped: %s\n", reason);
    return 77;
}

/* ---- Allocation ------------------------------------------------------------------------------ */

#if defined(HAK_NO_INTERPOSE)
#define TEST_NAME(name) hak_##name
static size_t (*volatile test_usable_size)(const void *) TEST_UNUSED = hak_usable_size;
#else
#define TEST_NAME(name) name
static size_t (*volatile test_usable_size)(void *) TEST_UNUSED = malloc_usable_size;
#endif

static void *(*volatile test_malloc)(size_t)TEST_UNUSED = TEST_NAME(malloc);
static void *(*volatile test_calloc)(size_t, size_t)TEST_UNUSED = TEST_NAME(calloc);
static void *(*volatile test_realloc)(void *, size_t)TEST_UNUSED = TEST_NAME(realloc);
static void *(*volatile test_reallocarray)(void *, size_t,
                                           size_t)TEST_UNUSED = TEST_NAME(reallocarray);
static void (*volatile test_free)(void *) TEST_UNUSED = TEST_NAME(free);
static void *(*volatile test_aligned_alloc)(size_t, size_t)TEST_UNUSED = TEST_NAME(aligned_alloc);
static int (*volatile test_posix_memalign)(void **, size_t,
                                           size_t) TEST_UNUSED = TEST_NAME(posix_memalign);

#define malloc test_malloc
#define calloc test_calloc
#define realloc test_realloc
#define reallocarray test_reallocarray
#define free test_free
#define aligned_alloc test_aligned_alloc
#define posix_memalign test_posix_memalign
#define malloc_usable_size test_usable_size

/* Call first. A test that hangs is ended by SIGALRM after `seconds`. */
static TEST_UNUSED void test_start(unsigned seconds)
{
    signal(SIGALRM, SIG_DFL);
    alarm(TEST_SANITIZED ? seconds * 10 : seconds);
#if !defined(HAK_TEST_GLIBC)
    void *block = malloc(100);
    if (hak_usable_size(block) < 100) {
        fprintf(stderr, "malloc is not served by hakmem: this run proves nothing\n");
        _exit(1);
    }
    free(block);
#endif
}

/* ---- Sizes and contents ---------------------------------------------------------------------- */

/* Sizes of every tier, and the two sides of each border. */
static const size_t test_sizes[] TEST_UNUSED = {
    1,        8,
    16,       17,
    100,      1023,
    1024,     1025,
    4000,     4096,
    12000,    32767,
    32768,    32769,
    100000,   300000,
    524288,   700000,
    1000000,  (2u << 20) - 1,
    2u << 20, (2u << 20) + 1,
    5000000,
};

/* The largest request that C allows to succeed. */
#define TEST_SIZE_LIMIT ((size_t)PTRDIFF_MAX)

static TEST_UNUSED uint64_t test_mix(uint64_t x)
{
    x = (x ^ (x >> 31)) * 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 29)) * 0xbf58476d1ce4e5b9u;
    return x ^ (x >> 32);
}

/* Fills the block with bytes that depend on `id` and on their place. */
static TEST_UNUSED void test_fill(void *block, size_t size, uint64_t id)
{
    unsigned char *bytes = (unsigned char *)block;
    uint64_t seed = test_mix(id + 1);
    size_t i = 0;
    for (; i + 8 <= size; i += 8) {
        uint64_t word = seed ^ (i * 0x9e3779b97f4a7c15u);
        memcpy(bytes + i, &word, 8);
    }
    uint64_t last = seed ^ (i * 0x9e3779b97f4a7c15u);
    memcpy(bytes + i, &last, size - i);
}

/* How many of the first `size` bytes are as test_fill left them, counted up to the first word that
 * is not: `size` where all are. */
static TEST_UNUSED size_t test_intact(const void *block, size_t size, uint64_t id)
{
    const unsigned char *bytes = (const unsigned char *)block;
    uint64_t seed = test_mix(id + 1);
    size_t i = 0;
    for (; i + 8 <= size; i += 8) {
        uint64_t is, word = seed ^ (i * 0x9e3779b97f4a7c15u);
        memcpy(&is, bytes + i, 8);
        if (is != word)
            return i;
    }
    uint64_t last = seed ^ (i * 0x9e3779b97f4a7c15u);
    return memcmp(bytes + i, &last, size - i) == 0 ? size : i;
}

static TEST_UNUSED bool test_is_zero(const void *block, size_t size)
{
    const unsigned char *bytes = (const unsigned char *)block;
    return size == 0 || (bytes[0] == 0 && memcmp(bytes, bytes + 1, size - 1) == 0);
}

/* Resident bytes of this process; 0 where they can't be read. Does not allocate. */
static TEST_UNUSED size_t test_resident_bytes(void)
{
    char text[128];
    int file = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return 0;
    ssize_t length = read(file, text, sizeof(text) - 1);
    close(file);
    if (length <= 0)
        return 0;
    text[length] = '\0';
    const char *second = strchr(text, ' ');
    if (second == NULL)
        return 0;
    return (size_t)strtoull(second, NULL, 10) * (size_t)sysconf(_SC_PAGESIZE);
}

/* A number from the environment, or `otherwise`. */
static TEST_UNUSED unsigned long long test_option(const char *name, unsigned long long otherwise)
{
    const char *text = getenv(name);
    return text != NULL && text[0] != '\0' ? strtoull(text, NULL, 0) : otherwise;
}

#endif
