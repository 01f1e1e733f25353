#!/usr/bin/env bash
# The event ring is dumped on SIGUSR2 and before a crash, and the crash ends the process as it would
# have without it.
set -euo pipefail

: "${HAK_TEST_LIB:?}" "${CC:=cc}"
# Programs below would take them for options of hakmem.
export -n HAK_TEST_LIB HAK_TEST_BUILD HAK_TEST_SOURCE
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
failures=0
fail() {
    echo "failed: $*" >&2
    failures=$((failures + 1))
}

cat >"$dir/crash.c" <<'C'
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

static volatile int zero;

static void say(const char *text)
{
    if (write(2, text, strlen(text)) < 0) _exit(9);
}

static void own(int number, siginfo_t *info, void *context)
{
    (void)number;
    (void)context;
    say(info->si_addr == (void *)0x18 ? "own handler: 0x18\n" : "own handler: elsewhere\n");
    _exit(42);
}

static int deep(volatile char *above)
{
    volatile char here[4096];
    here[0] = above[0];
    return deep(here) + here[0];
}

static void *crash_in_thread(void *unused)
{
    *(volatile int *)0x18 = 1;
    return unused;
}

int main(int count, char **word)
{
    struct rlimit none = {0, 0};
    setrlimit(RLIMIT_CORE, &none);
    for (int i = 0; i < 100; i++) free(malloc(3000000));
    const char *how = count > 1 ? word[1] : "";
    if (strcmp(how, "segv") == 0) *(volatile int *)0x18 = 1;
    if (strcmp(how, "abort") == 0) abort();
    if (strcmp(how, "fpe") == 0) return 1000 / zero;
    if (strcmp(how, "ill") == 0) __builtin_trap();
    if (strcmp(how, "bus") == 0) raise(SIGBUS);
    if (strcmp(how, "deep") == 0) return deep("x");
    if (strcmp(how, "thread") == 0) {
        pthread_t thread;
        pthread_create(&thread, NULL, crash_in_thread, NULL);
        pthread_join(thread, NULL);
    }
    if (strcmp(how, "own") == 0) {
        struct sigaction action = {.sa_sigaction = own, .sa_flags = SA_SIGINFO};
        sigaction(SIGSEGV, &action, NULL);
        *(volatile int *)0x18 = 1;
    }
    if (strcmp(how, "usr2") == 0) {
        raise(SIGUSR2);
        say("after\n");
        raise(SIGUSR2);
    }
    if (strcmp(how, "closed") == 0) {
        close(2);
        if (open(word[2], O_CREAT | O_WRONLY, 0600) != 2) return 9;
        raise(SIGUSR2);
        abort();
    }
    return 0;
}
C
cat >"$dir/before.c" <<'C'
/* A handler that is there before ours: of a library that is loaded first. */
#include <signal.h>
#include <string.h>
#include <unistd.h>

static void earlier(int number, siginfo_t *info, void *context)
{
    (void)number;
    (void)context;
    const char *text = info->si_addr == (void *)0x18 ? "earlier: 0x18\n" : "earlier: elsewhere\n";
    _exit(write(2, text, strlen(text)) < 0 ? 9 : 43);
}

__attribute__((constructor)) static void install(void)
{
    struct sigaction action = {.sa_sigaction = earlier, .sa_flags = SA_SIGINFO};
    sigaction(SIGSEGV, &action, NULL);
    sigaction(SIGUSR2, &action, NULL);
}
C
"$CC" -O1 -fno-builtin -Wno-infinite-recursion -o "$dir/crash" "$dir/crash.c" -pthread 2>/dev/null ||
    "$CC" -O1 -fno-builtin -o "$dir/crash" "$dir/crash.c" -pthread
"$CC" -fPIC -shared -o "$dir/before.so" "$dir/before.c"

# run <preload> <word>...: status and stderr of the program. In a shell of its own, so that what a shell
# says about a crash goes there too.
run() {
    local preload=$1
    shift
    status=0
    (
        LD_PRELOAD=$preload HAKMEM_TRACE_RING=100 HAKMEM_TRACE_SIGNAL=1 "$dir/crash" "$@" || exit $?
    ) 2>"$dir/err" || status=$?
}

ended() { # status, word
    [ "$status" = "$1" ] || fail "$2: status $status instead of $1"
}

dumped() { # times, word
    local times
    times=$(grep -c '^hakmem: event ring of process' "$dir/err") || true
    [ "$times" = "$1" ] || fail "$2: $times dumps instead of $1"
    times=$(grep -c '^hakmem: end of the event ring: 128 of' "$dir/err") || true
    [ "$times" = "$1" ] || fail "$2: $times whole dumps instead of $1"
}

lib=$HAK_TEST_LIB
for case in segv:139 abort:134 fpe:136 ill:132 bus:135 deep:139 thread:139; do
    word=${case%:*}
    # A processor may know no trap for one of them: the program without us is the measure.
    expected=0
    ("$dir/crash" "$word" || exit $?) 2>/dev/null || expected=$?
    run "$lib" "$word"
    ended "$expected" "$word"
    if [ "$expected" = "${case#*:}" ]; then
        dumped 1 "$word"
        grep -q " big-free bytes=3002368 to_cache=1" "$dir/err" || fail "$word: the events are missing"
    fi
done

run "$lib" usr2
ended 0 usr2
dumped 2 usr2
grep -q '^after$' "$dir/err" || fail "usr2: the program did not go on"

run "$lib" own
ended 42 own
grep -q '^own handler: 0x18$' "$dir/err" || fail "own: the program's own handler is not served"
dumped 0 own

# Constructors run last-loaded first: this one's handler stands when ours is installed.
run "$lib $dir/before.so" segv
ended 43 before
grep -q '^earlier: 0x18$' "$dir/err" || fail "before: the earlier handler did not get its address"
dumped 1 before
run "$lib $dir/before.so" usr2
ended 43 before-usr2
dumped 0 before-usr2

# What has taken the place of a closed stderr is the program's.
run "$lib" closed "$dir/database"
ended 134 closed
[ -f "$dir/database" ] && [ ! -s "$dir/database" ] || fail "closed: the program's file was written"

# Without a ring the option does nothing, and says so.
status=0
LD_PRELOAD=$lib HAKMEM_TRACE_SIGNAL=1 "$dir/crash" 2>"$dir/err" || status=$?
ended 0 no-ring
grep -q '^hakmem: HAKMEM_TRACE_SIGNAL does nothing without HAKMEM_TRACE_RING$' "$dir/err" ||
    fail "no-ring: nothing is said"

# Nobody asked: SIGUSR2 ends the process as ever.
status=0
(LD_PRELOAD=$lib "$dir/crash" usr2 || exit $?) 2>/dev/null || status=$?
ended 140 unasked

[ "$failures" = 0 ]
