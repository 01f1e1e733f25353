#!/usr/bin/env bash
# Guards the installed package: from a fresh prefix, C and C++ programs find hakmem by CMake and by
# pkg-config, shared and static, also after the prefix has moved; and it is hakmem that serves them.
set -euo pipefail

if nm "$HAK_TEST_LIB" | grep __gcov_ >/dev/null; then
    echo "a coverage build: its libraries need the compiler's own beside them"
    exit 77
fi

tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

cmake --install "$HAK_TEST_BUILD" --prefix "$tmp/first" >"$tmp/install.log"
mv "$tmp/first" "$tmp/prefix"
pc=$(find "$tmp/prefix" -name hakmem.pc)
libdir=$(dirname "$(dirname "$pc")")

cat >"$tmp/program.c" <<'PROGRAM'
#include <hakmem/hakmem.h>
#include <stdlib.h>
#include <string.h>

int main(void)
{
    void *block = malloc(100);
    char *copy = strdup("allocated inside libc");
    int served = hak_usable_size(block) >= 100 && hak_usable_size(copy) >= strlen(copy) + 1;
    free(copy);
    free(block);
    return served ? 0 : 1;
}
PROGRAM
cat >"$tmp/program.cpp" <<'PROGRAM'
#include <hakmem/hakmem.h>

#include <string>

int main()
{
    std::string *text = new std::string(1000, 'x');
    int served = hak_usable_size(text) >= sizeof(*text) && hak_usable_size(text->data()) >= 1000;
    delete text;
    return served ? 0 : 1;
}
PROGRAM
# A program that doesn't allocate itself, linked so that unneeded libraries are dropped.
cat >"$tmp/indirect.c" <<'PROGRAM'
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>

int main(void)
{
    return dlsym(RTLD_DEFAULT, "hak_version") != NULL ? 0 : 1;
}
PROGRAM

run() { # run NAME COMMAND...
    local name=$1
    shift
    LD_LIBRARY_PATH="$libdir" "$@" || {
        echo "FAIL: $name is not served by hakmem (status $?)"
        exit 1
    }
    echo "ok: $name"
}

export PKG_CONFIG_PATH="$libdir/pkgconfig"
read -ra cflags <<<"$(pkg-config --cflags hakmem)"
read -ra libs <<<"$(pkg-config --libs hakmem)"
static_lib=$(pkg-config --variable=static_lib hakmem)
"$CC" "${cflags[@]}" "$tmp/program.c" -o "$tmp/pc-shared" "${libs[@]}"
run "C, pkg-config, shared" "$tmp/pc-shared"
"$CXX" "${cflags[@]}" "$tmp/program.cpp" -o "$tmp/pc-shared-cxx" "${libs[@]}"
run "C++, pkg-config, shared" "$tmp/pc-shared-cxx"
"$CC" "${cflags[@]}" "$tmp/program.c" -o "$tmp/pc-static" "$static_lib"
run "C, pkg-config, static" "$tmp/pc-static"
"$CXX" "${cflags[@]}" "$tmp/program.cpp" -o "$tmp/pc-static-cxx" "$static_lib"
run "C++, pkg-config, static" "$tmp/pc-static-cxx"
"$CC" "${cflags[@]}" "$tmp/indirect.c" -o "$tmp/pc-indirect" -Wl,--as-needed "${libs[@]}" -ldl
run "C, pkg-config, shared, no call of malloc" "$tmp/pc-indirect"

mkdir "$tmp/project"
cp "$tmp"/*.c "$tmp"/*.cpp "$tmp/project/"
# C alone first: a C project must not be asked for a C++ compiler.
cat >"$tmp/project/CMakeLists.txt" <<'PROJECT'
cmake_minimum_required(VERSION 3.18)
project(consumer LANGUAGES C)
find_package(hakmem 0.1 REQUIRED)
add_executable(c-shared program.c)
target_link_libraries(c-shared PRIVATE hakmem::hakmem)
add_executable(c-static program.c)
target_link_libraries(c-static PRIVATE hakmem::static)
enable_language(CXX)
add_executable(cxx-shared program.cpp)
target_link_libraries(cxx-shared PRIVATE hakmem::hakmem)
add_executable(cxx-static program.cpp)
target_link_libraries(cxx-static PRIVATE hakmem::static)
add_executable(c-indirect indirect.c)
target_link_libraries(c-indirect PRIVATE hakmem::hakmem)
PROJECT
cmake -S "$tmp/project" -B "$tmp/project/build" -DCMAKE_PREFIX_PATH="$tmp/prefix" \
    -DCMAKE_EXE_LINKER_FLAGS=-Wl,--as-needed >"$tmp/configure.log"
cmake --build "$tmp/project/build" >"$tmp/build.log"
for program in c-shared c-static c-indirect cxx-shared cxx-static; do
    run "CMake, $program" "$tmp/project/build/$program"
done
for program in c-static cxx-static; do
    if readelf -d "$tmp/project/build/$program" | grep 'NEEDED.*hakmem' >/dev/null; then
        echo "FAIL: $program needs the shared library"
        exit 1
    fi
done
