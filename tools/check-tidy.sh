#!/usr/bin/env bash
# Runs clang-tidy (.clang-tidy) over src/ with the compile commands of a build directory. Any finding
# is an error.
#
#   tools/check-tidy.sh [BUILD]    (default: build)
set -euo pipefail
cd "$(dirname "$0")/.."

build=${1:-build}
if [ ! -f "$build/compile_commands.json" ]; then
    echo "check-tidy.sh: $build/compile_commands.json is missing: run make first" >&2
    exit 2
fi
# Options of gcc that clang doesn't know are no finding.
find src -name '*.c' -o -name '*.cpp' | sort |
    xargs -r -n 1 -P "$(nproc)" clang-tidy -p "$build" --quiet --warnings-as-errors='*' \
        --extra-arg=-Wno-unknown-warning-option --extra-arg=-Wno-ignored-optimization-argument
