#!/usr/bin/env bash
# Installs the system packages that a step needs and that are missing; touches nothing otherwise.
#
#   tools/install-deps.sh [build|test|python|programs|demo|coverage|lint]...     (default: build)
#
# "programs" are the real programs that tests/compat/ runs under hakmem, and clang for the golden counts;
# without them those tests are skipped, each saying what it lacks.
#
# Uses apt-get, dnf, apk or pacman, as root or through sudo. Where it can't install, it says which
# packages are missing and ends with status 1.
set -euo pipefail

have() { command -v "$1" >/dev/null 2>&1; }
compiles() { # compiles COMPILER LANGUAGE HEADER
    have "$1" && echo "#include <$3>" | "$1" -x "$2" -fsyntax-only - 2>/dev/null
}

manager=none
for candidate in apt-get dnf apk pacman; do
    if have "$candidate"; then
        manager=$candidate
        break
    fi
done

missing=()
# need APT DNF APK PACMAN: the package by its name there.
need() {
    case $manager in
        dnf) missing+=("$2") ;;
        apk) missing+=("$3") ;;
        pacman) missing+=("$4") ;;
        *) missing+=("$1") ;;
    esac
}

need_build() {
    have cmake || need cmake cmake cmake cmake
    have ninja || need ninja-build ninja-build samurai ninja
    have make || need make make make make
    have pkg-config || need pkg-config pkgconf-pkg-config pkgconf pkgconf
    if ! compiles "${CC:-cc}" c stdio.h; then
        need gcc gcc gcc gcc
        need libc6-dev glibc-devel musl-dev glibc
    fi
    compiles "${CXX:-c++}" c++ new || need g++ gcc-c++ g++ gcc
    have readelf || need binutils binutils binutils binutils
}
need_python() {
    have python3 && python3 -c 'import ctypes, sqlite3' 2>/dev/null ||
        need python3 python3 python3 python
}
need_python_package() {
    need_build
    need_python
    python3 -c 'import ensurepip, venv' 2>/dev/null ||
        need python3-venv python3-pip py3-virtualenv python-pip
}
need_test() {
    need_build
    need_python
    have pkg-config && pkg-config --exists cmocka ||
        need libcmocka-dev libcmocka-devel cmocka-dev cmocka
}
need_programs() {
    have redis-server && have redis-benchmark || need redis redis redis redis
    have nginx || need nginx nginx nginx nginx
    have wrk || need wrk wrk wrk wrk
    have sqlite3 || need sqlite3 sqlite sqlite sqlite
    have node || need nodejs nodejs nodejs nodejs
    have rustc || need rustc rust rust rust
    have git || need git git git git
    have perl || need perl perl perl perl
    have clang || need clang clang clang clang
    [ -n "$(find /usr/lib/postgresql /usr/bin -name pgbench -print -quit 2>/dev/null)" ] ||
        need postgresql postgresql-server postgresql postgresql
    python3 -c 'import test.test_list' 2>/dev/null ||
        need libpython3-testsuite python3-test python3-tests python
}
need_coverage() {
    need_test
    compiles gcc c stdio.h && have gcov || need gcc gcc gcc gcc
    have gcovr || need gcovr gcovr gcovr gcovr
}
need_lint() {
    need_build
    have clang-format || need clang-format clang-tools-extra clang-extra-tools clang
    have clang-tidy || need clang-tidy clang-tools-extra clang-extra-tools clang
}

for step in "${@:-build}"; do
    case $step in
        build) need_build ;;
        test) need_test ;;
        python) need_python_package ;;
        programs) need_programs ;;
        demo) need_build && need_python ;;
        coverage) need_coverage ;;
        lint) need_lint ;;
        *)
            echo "install-deps.sh: unknown step '$step' (build, test, python, programs, demo, coverage, lint)" >&2
            exit 2
            ;;
    esac
done
if [ ${#missing[@]} -eq 0 ]; then
    exit 0
fi
mapfile -t missing < <(printf '%s\n' "${missing[@]}" | sort -u)

give_up() {
    echo "install-deps.sh: $1. Missing packages: ${missing[*]}" >&2
    exit 1
}
as_root() {
    if [ "$(id -u)" -eq 0 ]; then
        "$@"
    elif [ -t 0 ]; then
        sudo "$@"
    else
        sudo -n "$@" # nobody is there to type a password
    fi
}
if [ "$manager" = none ]; then
    give_up "no package manager that it knows (apt-get, dnf, apk, pacman)"
fi
if [ "$(id -u)" -ne 0 ] && ! have sudo; then
    give_up "not root, and there is no sudo"
fi
echo "install-deps.sh: installing ${missing[*]}"
case $manager in
    apt-get)
        as_root apt-get update -q </dev/null &&
            as_root env DEBIAN_FRONTEND=noninteractive \
                apt-get install -q -y --no-install-recommends "${missing[@]}"
        ;;
    dnf) as_root dnf install -y "${missing[@]}" ;;
    apk) as_root apk add "${missing[@]}" ;;
    pacman) as_root pacman -S --needed --noconfirm "${missing[@]}" ;;
esac || give_up "$manager failed"
