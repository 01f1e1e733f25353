#!/usr/bin/env bash
# Checks the formatting of C and C++ (clang-format) and Python (ruff, where it is installed).
#
#   tools/check-format.sh          lists what differs, status 1 if anything does
#   tools/check-format.sh --fix    formats in place
set -euo pipefail
cd "$(dirname "$0")/.."

fix=${1:-}
status=0

mapfile -t sources < <(find include src tests bench \( -name build -o -name target \) -prune -o \
    -type f \( -name '*.c' -o -name '*.h' -o -name '*.cpp' -o -name '*.hpp' \) -print | sort)
if [ "$fix" = --fix ]; then
    clang-format -i "${sources[@]}"
else
    for source in "${sources[@]}"; do
        if ! clang-format "$source" | cmp -s - "$source"; then
            echo "$source: not formatted (make format)"
            status=1
        fi
    done
fi

if command -v ruff >/dev/null; then
    if [ "$fix" = --fix ]; then
        ruff format -q .
    else
        ruff format -q --check . || status=1
        ruff check -q . || status=1
    fi
else
    echo "check-format.sh: ruff is not installed; Python was left out" >&2
fi
exit $status
