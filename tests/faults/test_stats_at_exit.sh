#!/usr/bin/env bash
# The reports at exit: once for each process, where they were asked to go, and nowhere else.
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

cat >"$dir/program.c" <<'C'
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static void work(size_t size)
{
    void *(*volatile take)(size_t) = malloc;
    for (int i = 0; i < 100; i++) free(take(size));
}

int main(int count, char **word)
{
    const char *how = count > 1 ? word[1] : "";
    work(1000);
    if (strcmp(how, "fork") == 0) {
        pid_t child = fork();
        if (child == 0) {
            work(3000000);
            exit(0);
        }
        waitpid(child, NULL, 0);
    }
    if (strcmp(how, "close") == 0) close(2);
    if (strcmp(how, "low") == 0) {
        int next = open("/dev/null", O_RDONLY);
        if (next < 3 || next > 50) return 8;
    }
    if (strcmp(how, "closeall") == 0)
        for (int fd = 2; fd < 1024; fd++) close(fd);
    if (strcmp(how, "reuseall") == 0) {
        for (int fd = 2; fd < 1024; fd++) close(fd);
        for (int fd = 2; fd < 1000; fd++)
            if (open(word[2], O_CREAT | O_WRONLY, 0600) != fd) return 9;
    }
    if (strcmp(how, "copies") == 0) {
        struct stat err, other;
        fstat(2, &err);
        for (int fd = 3; fd < 1024; fd++)
            if (fstat(fd, &other) == 0 && other.st_dev == err.st_dev && other.st_ino == err.st_ino)
                return 10;
    }
    if (strcmp(how, "reuse") == 0) {
        close(2);
        if (open(word[2], O_CREAT | O_WRONLY, 0600) != 2) return 9;
    }
    return 7;
}
C
"$CC" -O1 -fno-builtin -o "$dir/program" "$dir/program.c"

# run <options> <word>...
run() {
    local options=$1
    shift
    status=0
    # shellcheck disable=SC2086
    env LD_PRELOAD="$HAK_TEST_LIB" $options "$dir/program" "$@" 2>"$dir/err" >"$dir/out" || status=$?
    [ "$status" = 7 ] || fail "$options $*: status $status"
    [ ! -s "$dir/out" ] || fail "$options $*: something on stdout"
}

# times <count> <pattern> <file> <what>
times() {
    local found
    found=$(grep -c "$2" "$3") || true
    [ "$found" = "$1" ] || fail "$4: $found times '$2' instead of $1"
}

run "HAKMEM_STATS=0"
[ ! -s "$dir/err" ] || fail "a report that nobody asked for"

# env is served as well, but does not end: it becomes the program.
run "HAKMEM_STATS=1"
times 1 "^process [0-9]* 'program', preset balanced, " "$dir/err" plain
times 1 '^tiny ~ ' "$dir/err" plain
times 0 '^self-profile' "$dir/err" plain
times 0 'event ring' "$dir/err" plain
times 0 '^WARNING' "$dir/err" plain
[ "$(wc -L <"$dir/err")" -le 80 ] || fail "plain: lines of more than 80 columns"

run "HAKMEM_STATS=1 HAKMEM_PROF=1 HAKMEM_TRACE_RING=50"
times 1 '^self-profile' "$dir/err" all
times 1 '^refill  ' "$dir/err" all
times 1 '^hakmem: event ring of process' "$dir/err" all
grep -q ' refill class=[0-9]* blocks=[0-9]*$' "$dir/err" || fail "all: no refill among the events"

run "HAKMEM_PROF=1"
times 0 '^tiny ~ ' "$dir/err" profile
times 1 '^self-profile' "$dir/err" profile

run "HAKMEM_STATS=1" fork
times 2 "^process [0-9]* 'program'" "$dir/err" fork
[ "$(grep "^process" "$dir/err" | sort -u | wc -l)" = 2 ] || fail "fork: both have one process id"
times 1 '^big *100 ' "$dir/err" fork

# A program that closes its stderr before it ends, as ls does, is reported on all the same.
for options in "HAKMEM_STATS=1" "HAKMEM_STATS=1 HAKMEM_PROF=1"; do
    run "$options" close
    times 1 "^process [0-9]* 'program'" "$dir/err" "close, $options"
done
run "HAKMEM_STATS=1" reuse "$dir/database"
times 1 "^process [0-9]* 'program'" "$dir/err" reuse
[ -f "$dir/database" ] && [ ! -s "$dir/database" ] || fail "reuse: the program's file was written"
# One that closes every file is not, nor are files written that took the numbers.
run "HAKMEM_STATS=1" closeall
[ ! -s "$dir/err" ] || fail "closeall: something was written"
run "HAKMEM_STATS=1" reuseall "$dir/database"
[ ! -s "$dir/err" ] && [ ! -s "$dir/database" ] || fail "reuseall: something was written"
# Low numbers stay the program's; and none is taken where nothing is to go to stderr.
run "HAKMEM_STATS=1" low
run "HAKMEM_STATS=0" copies
run "HAKMEM_STATS=1 HAKMEM_STATS_FILE=/dev/null" copies
# Where so high a number is not allowed, stderr itself serves.
(
    ulimit -n 100
    run "HAKMEM_STATS=1"
    times 1 "^process [0-9]* 'program'" "$dir/err" "low limit"
    [ "$failures" = 0 ]
) || failures=$((failures + 1))

# A file of reports: appended, each in one piece, whatever became of stderr.
run "HAKMEM_STATS=1 HAKMEM_STATS_FILE=$dir/stats" close
run "HAKMEM_STATS=1 HAKMEM_STATS_FILE=$dir/stats" fork
times 3 "^process [0-9]* 'program'" "$dir/stats" file
[ ! -s "$dir/err" ] || fail "file: something on stderr"

# One that can't be opened is named; a FIFO that nobody reads does not hang the end.
run "HAKMEM_STATS=1 HAKMEM_STATS_FILE=$dir/none/stats"
times 1 "^hakmem: can't open HAKMEM_STATS_FILE '$dir/none/stats': errno 2$" "$dir/err" unopened
mkfifo "$dir/fifo"
run "HAKMEM_STATS=1 HAKMEM_STATS_FILE=$dir/fifo"
times 1 "^hakmem: can't open" "$dir/err" fifo

# A reader that went away costs the report, not the status.
status=0
(
    trap '' PIPE
    env LD_PRELOAD="$HAK_TEST_LIB" HAKMEM_STATS=1 "$dir/program" 2> >(exec 0<&-; sleep 0.2) || exit $?
) || status=$?
[ "$status" = 7 ] || fail "a reader that went away: status $status"

[ "$failures" = 0 ]
