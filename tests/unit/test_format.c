/* Text without stdio, writing to descriptors, and the log. */
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/assert.h"
#include "base/format.h"
#include "base/log.h"
#include "base/options.h"

static char buffer[256];
static hak_text text;

static int fresh_text(void **state)
{
    (void)state;
    hak_text_init(&text, buffer, sizeof(buffer));
    return 0;
}

static const char *taken(void)
{
    static char copy[sizeof(buffer)];
    memcpy(copy, buffer, sizeof(copy));
    hak_text_clear(&text);
    return copy;
}

/* ---- Text */

static void text_that_does_not_fit_overruns_its_buffer(void **state)
{
    (void)state;
    char small[6] = "-----";
    hak_text_init(&text, small, 5); /* the sixth byte is the watchman */
    small[5] = '#';
    hak_text_put(&text, "abc");
    assert_false(text.truncated);
    hak_text_put(&text, "defg");
    assert_true(text.truncated);
    assert_string_equal(small, "abcd");
    assert_int_equal(small[5], '#');
}

static void text_after_a_cut_stands_where_the_missing_text_was(void **state)
{
    (void)state;
    hak_text_init(&text, buffer, 8);
    hak_text_put(&text, "12345");
    hak_text_put(&text, "abc");
    assert_string_equal(buffer, "12345ab");
    hak_text_clear(&text);
    hak_text_put(&text, "12345");
    hak_text_unsigned(&text, 1000);
    hak_text_char(&text, 'x');
    assert_string_equal(buffer, "1234510");
}

static void an_exact_fit_is_called_truncated(void **state)
{
    (void)state;
    hak_text_init(&text, buffer, 4);
    hak_text_put(&text, "abc");
    assert_false(text.truncated);
    assert_string_equal(buffer, "abc");
}

static void the_smallest_buffer_loses_its_nul(void **state)
{
    (void)state;
    char one[1] = {'x'};
    hak_text_init(&text, one, 1);
    hak_text_put(&text, "abc");
    hak_text_right(&text, 0, 10);
    assert_int_equal(one[0], '\0');
    assert_int_equal(text.length, 0);
}

static void extremes_of_integers_come_out_wrong(void **state)
{
    (void)state;
    hak_text_unsigned(&text, 0);
    assert_string_equal(taken(), "0");
    hak_text_unsigned(&text, UINT64_MAX);
    assert_string_equal(taken(), "18446744073709551615");
    hak_text_signed(&text, INT64_MIN);
    assert_string_equal(taken(), "-9223372036854775808");
    hak_text_signed(&text, INT64_MAX);
    assert_string_equal(taken(), "9223372036854775807");
    hak_text_signed(&text, -1);
    assert_string_equal(taken(), "-1");
    hak_text_hex(&text, 0);
    assert_string_equal(taken(), "0x0");
    hak_text_hex(&text, UINT64_MAX);
    assert_string_equal(taken(), "0xffffffffffffffff");
    hak_text_hex(&text, 0x7f00);
    assert_string_equal(taken(), "0x7f00");
}

static void a_value_from_outside_forges_a_line(void **state)
{
    (void)state;
    const char evil[] = "a\nhakmem: b\x1b[2J\x80";
    hak_text_quoted(&text, evil, sizeof(evil) - 1);
    assert_string_equal(taken(), "'a\\x0ahakmem: b\\x1b[2J\\x80'");

    char long_value[500];
    memset(long_value, 'v', sizeof(long_value));
    hak_text_quoted(&text, long_value, sizeof(long_value));
    assert_int_equal(text.length, 1 + 128 + 4);
    assert_string_equal(buffer + 1 + 128, "...'");
}

static void decimals_do_not_carry(void **state)
{
    (void)state;
    hak_text_ratio(&text, 1500, 1000, 2);
    assert_string_equal(taken(), "1.50");
    hak_text_ratio(&text, 999996, 1000, 2);
    assert_string_equal(taken(), "1000.00");
    hak_text_ratio(&text, 1005, 1000, 2);
    assert_string_equal(taken(), "1.01");
    hak_text_ratio(&text, 1, 1000, 2);
    assert_string_equal(taken(), "0.00");
    hak_text_ratio(&text, 1, 3, 9);
    assert_string_equal(taken(), "0.333333333");
    hak_text_ratio(&text, 3, 2, 0);
    assert_string_equal(taken(), "2");
    hak_text_ratio(&text, UINT64_MAX, 1, 1);
    assert_string_equal(taken(), "18446744073709551615.0");
}

static void a_mean_over_nothing_divides_by_zero(void **state)
{
    (void)state;
    hak_text_ratio(&text, 5, 0, 2);
    assert_string_equal(taken(), "-");
}

static void a_large_denominator_overflows(void **state)
{
    (void)state;
    hak_text_ratio(&text, UINT64_MAX / 2, UINT64_MAX, 3);
    assert_string_equal(taken(), "0.500");
    hak_text_ratio(&text, UINT64_MAX, UINT64_MAX, 3);
    assert_string_equal(taken(), "1.000");
}

static void bytes_are_rounded_to_1024_of_a_unit(void **state)
{
    (void)state;
    static const struct {
        uint64_t bytes;
        const char *expected;
    } cases[] = {
        {0, "0 B"},
        {1023, "1023 B"},
        {1024, "1 KiB"},
        {1536, "1.5 KiB"},
        {1025, "1.0 KiB"},
        {65536, "64 KiB"},
        {1048524, "1023.9 KiB"},
        {1048525, "1.0 MiB"},
        {1572864, "1.5 MiB"},
        {(uint64_t)1 << 60, "1 EiB"},
        {UINT64_MAX, "16.0 EiB"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        hak_text_bytes(&text, cases[i].bytes);
        assert_string_equal(taken(), cases[i].expected);
    }
}

static void an_exact_size_is_rounded_or_not_read_back(void **state)
{
    (void)state;
    static const uint64_t sizes[] = {0,
                                     1,
                                     1023,
                                     1024,
                                     1025,
                                     1572864,
                                     1000001,
                                     (uint64_t)1 << 40,
                                     (uint64_t)1 << 60,
                                     3 << 20,
                                     UINT64_MAX};
    hak_text_bytes_exact(&text, 1572864);
    assert_string_equal(taken(), "1536 KiB");
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        uint64_t back = 1;
        hak_text_bytes_exact(&text, sizes[i]);
        assert_int_equal(hak_parse_value(buffer, text.length, HAK_UNIT_bytes, &back), HAK_PARSE_OK);
        assert_true(back == sizes[i]);
        hak_text_clear(&text);
    }
}

static void columns_do_not_line_up(void **state)
{
    (void)state;
    size_t cell = text.length;
    hak_text_put(&text, "tiny");
    hak_text_left(&text, cell, 6);
    cell = text.length;
    hak_text_unsigned(&text, 42);
    hak_text_right(&text, cell, 5);
    cell = text.length;
    hak_text_put(&text, "wider");
    hak_text_right(&text, cell, 3);
    assert_string_equal(taken(), "tiny     42wider");
}

static void an_aligned_cell_at_the_end_of_the_buffer_overruns_it(void **state)
{
    (void)state;
    hak_text_init(&text, buffer, 6);
    buffer[6] = '#';
    hak_text_put(&text, "ab");
    hak_text_right(&text, 0, 9);
    assert_true(text.truncated);
    assert_string_equal(buffer, "   ab");
    assert_int_equal(buffer[6], '#');
}

/* ---- Writing */

typedef struct pipe_reader {
    int fd;
    size_t bytes;
    bool wrong;
} pipe_reader;

static void *read_pattern(void *argument)
{
    pipe_reader *reader = argument;
    unsigned char chunk[777];
    ssize_t got;
    unsigned reads = 0;

    while ((got = read(reader->fd, chunk, sizeof(chunk))) != 0) {
        /* Slow at times: the writer stands before a full pipe, where a signal finds it. */
        if (reads++ % 256 == 0)
            usleep(2000);
        if (got < 0)
            continue;
        for (ssize_t i = 0; i < got; i++)
            reader->wrong |= chunk[i] != (unsigned char)(reader->bytes++ % 251);
    }
    return NULL;
}

static void nothing_on_signal(int signal)
{
    (void)signal;
}

static void a_signal_or_a_full_pipe_loses_text(void **state)
{
    (void)state;
    enum { BYTES = 4 << 20 };
    int ends[2];
    pthread_t thread;
    struct sigaction action = {.sa_handler = nothing_on_signal}; /* no SA_RESTART */
    struct sigaction before;
    const struct itimerval every = {{0, 200}, {0, 200}};
    const struct itimerval never = {{0, 0}, {0, 0}};
    sigset_t alarm_signal;
    char *data = malloc(BYTES);

    assert_non_null(data);
    for (size_t i = 0; i < BYTES; i++)
        data[i] = (char)(i % 251);
    assert_int_equal(pipe(ends), 0);
    pipe_reader reader = {.fd = ends[0]};
    /* The writer gets the signals. */
    sigemptyset(&alarm_signal);
    sigaddset(&alarm_signal, SIGALRM);
    pthread_sigmask(SIG_BLOCK, &alarm_signal, NULL);
    assert_int_equal(pthread_create(&thread, NULL, read_pattern, &reader), 0);
    pthread_sigmask(SIG_UNBLOCK, &alarm_signal, NULL);
    sigaction(SIGALRM, &action, &before);
    setitimer(ITIMER_REAL, &every, NULL);
    bool written = hak_write_all(ends[1], data, BYTES);
    setitimer(ITIMER_REAL, &never, NULL);
    sigaction(SIGALRM, &before, NULL);
    close(ends[1]);
    pthread_join(thread, NULL);
    close(ends[0]);
    free(data);
    assert_true(written);
    assert_false(reader.wrong);
    assert_int_equal(reader.bytes, BYTES);
}

static void a_failed_write_changes_errno(void **state)
{
    (void)state;
    errno = ENOTTY;
    assert_false(hak_write_all(-1, "x", 1));
    assert_int_equal(errno, ENOTTY);
    assert_true(hak_write_all(-1, "x", 0));
}

static void a_reader_that_went_away_kills_the_host(void **state)
{
    (void)state;
    int ends[2];
    sigset_t pending;

    signal(SIGPIPE, SIG_DFL);
    assert_int_equal(pipe(ends), 0);
    close(ends[0]);
    assert_false(hak_write_all(ends[1], "x", 1));
    close(ends[1]);
    sigpending(&pending);
    assert_false(sigismember(&pending, SIGPIPE));
}

static void a_pending_sigpipe_of_the_host_is_swallowed(void **state)
{
    (void)state;
    int ends[2];
    sigset_t set, before, pending;
    const struct timespec now = {0, 0};

    sigemptyset(&set);
    sigaddset(&set, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &set, &before);
    raise(SIGPIPE);
    assert_int_equal(pipe(ends), 0);
    close(ends[0]);
    assert_false(hak_write_all(ends[1], "x", 1));
    close(ends[1]);
    sigpending(&pending);
    bool still_there = sigismember(&pending, SIGPIPE) == 1;
    sigtimedwait(&set, NULL, &now);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    assert_true(still_there);
}

/* ---- Log. stderr becomes a socket that keeps writes apart. */

static int log_socket[2];
static int real_stderr;

static void divert_stderr(void)
{
    assert_int_equal(socketpair(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0, log_socket), 0);
    real_stderr = dup(STDERR_FILENO);
    dup2(log_socket[1], STDERR_FILENO);
}

static int log_teardown(void **state)
{
    (void)state;
    dup2(real_stderr, STDERR_FILENO);
    close(real_stderr);
    close(log_socket[0]);
    close(log_socket[1]);
    hak_log_set_level(HAK_LOG_WARN);
    return 0;
}

static int log_setup(void **state)
{
    (void)state;
    divert_stderr();
    return 0;
}

/* The next write to stderr, or "". */
static const char *next_write(void)
{
    static char line[1024];
    ssize_t got = recv(log_socket[0], line, sizeof(line) - 1, 0);
    line[got < 0 ? 0 : got] = '\0';
    return line;
}

static void a_line_is_torn_into_several_writes(void **state)
{
    (void)state;
    hak_line line;
    hak_line_start(&line);
    hak_text_put(&line.text, "held: ");
    hak_text_bytes(&line.text, 1536);
    hak_line_end(&line, HAK_LOG_ERROR);
    assert_string_equal(next_write(), "hakmem: held: 1.5 KiB\n");
    assert_string_equal(next_write(), "");
}

static void a_line_too_long_has_no_end(void **state)
{
    (void)state;
    hak_line line;
    hak_line_start(&line);
    for (int i = 0; i < 1000; i++)
        hak_text_char(&line.text, 'x');
    hak_line_end(&line, HAK_LOG_ERROR);
    const char *written = next_write();
    size_t length = strlen(written);
    assert_true(length < 512);
    assert_string_equal(written + length - 5, "x...\n");
}

static void a_level_that_is_off_is_written(void **state)
{
    (void)state;
    hak_log(HAK_LOG_INFO, "not at the level of the start");
    hak_log(HAK_LOG_WARN, "this");
    assert_string_equal(next_write(), "hakmem: this\n");
    hak_log_set_level(HAK_LOG_ERROR);
    hak_log(HAK_LOG_WARN, "not this");
    hak_line line;
    hak_line_start(&line);
    hak_line_end(&line, HAK_LOG_WARN);
    hak_log_set_level(HAK_LOG_DEBUG);
    hak_log(HAK_LOG_DEBUG, "and this");
    assert_string_equal(next_write(), "hakmem: and this\n");
    assert_string_equal(next_write(), "");
}

static void a_thing_said_once_is_said_twice(void **state)
{
    (void)state;
    static hak_log_key first;
    static hak_log_key second;

    hak_log_once(&first, HAK_LOG_DEBUG, "off, and so not yet said");
    hak_log_once(&first, HAK_LOG_WARN, "first");
    hak_log_once(&first, HAK_LOG_WARN, "first");
    hak_log_once(&second, HAK_LOG_WARN, "second");
    assert_string_equal(next_write(), "hakmem: first\n");
    assert_string_equal(next_write(), "hakmem: second\n");
    assert_string_equal(next_write(), "");
}

#if defined(HAK_DEBUG)
static void a_failed_assertion_goes_on_or_says_nothing(void **state)
{
    (void)state;
    int status = 0;
    pid_t child = fork();
    if (child == 0) {
        signal(SIGABRT, SIG_DFL);
        hak_assert(1 + 1 == 3);
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    const char *written = next_write();
    assert_non_null(strstr(written, "hakmem: assertion failed at "));
    assert_non_null(strstr(written, ": 1 + 1 == 3\n"));
    assert_true(WIFSIGNALED(status));
}
#endif

int main(void)
{
    const struct CMUnitTest text_tests[] = {
        cmocka_unit_test_setup(text_that_does_not_fit_overruns_its_buffer, fresh_text),
        cmocka_unit_test_setup(text_after_a_cut_stands_where_the_missing_text_was, fresh_text),
        cmocka_unit_test_setup(an_exact_fit_is_called_truncated, fresh_text),
        cmocka_unit_test_setup(the_smallest_buffer_loses_its_nul, fresh_text),
        cmocka_unit_test_setup(extremes_of_integers_come_out_wrong, fresh_text),
        cmocka_unit_test_setup(a_value_from_outside_forges_a_line, fresh_text),
        cmocka_unit_test_setup(decimals_do_not_carry, fresh_text),
        cmocka_unit_test_setup(a_mean_over_nothing_divides_by_zero, fresh_text),
        cmocka_unit_test_setup(a_large_denominator_overflows, fresh_text),
        cmocka_unit_test_setup(bytes_are_rounded_to_1024_of_a_unit, fresh_text),
        cmocka_unit_test_setup(an_exact_size_is_rounded_or_not_read_back, fresh_text),
        cmocka_unit_test_setup(columns_do_not_line_up, fresh_text),
        cmocka_unit_test_setup(an_aligned_cell_at_the_end_of_the_buffer_overruns_it, fresh_text),
    };
    const struct CMUnitTest write_tests[] = {
        cmocka_unit_test(a_signal_or_a_full_pipe_loses_text),
        cmocka_unit_test(a_failed_write_changes_errno),
        cmocka_unit_test(a_reader_that_went_away_kills_the_host),
        cmocka_unit_test(a_pending_sigpipe_of_the_host_is_swallowed),
    };
    const struct CMUnitTest log_tests[] = {
        cmocka_unit_test_setup_teardown(a_line_is_torn_into_several_writes, log_setup,
                                        log_teardown),
        cmocka_unit_test_setup_teardown(a_line_too_long_has_no_end, log_setup, log_teardown),
        cmocka_unit_test_setup_teardown(a_level_that_is_off_is_written, log_setup, log_teardown),
        cmocka_unit_test_setup_teardown(a_thing_said_once_is_said_twice, log_setup, log_teardown),
#if defined(HAK_DEBUG)
        cmocka_unit_test_setup_teardown(a_failed_assertion_goes_on_or_says_nothing, log_setup,
                                        log_teardown),
#endif
    };
    int failed = cmocka_run_group_tests_name("text", text_tests, NULL, NULL);
    failed += cmocka_run_group_tests_name("writing", write_tests, NULL, NULL);
    failed += cmocka_run_group_tests_name("log", log_tests, NULL, NULL);
    return failed != 0;
}
