#!/usr/bin/env bash
# Guards against a library that exports an internal name (which then clashes with a program's own),
# lacks a public one (and a program is served by two allocators), needs more than libc, could be
# unloaded under live blocks, or leaves its pointers writable.
set -euo pipefail
export LC_ALL=C

failed=0
fail() {
    echo "FAIL: $1"
    failed=1
}

exported=$(mktemp)
trap 'rm -f "$exported"' EXIT
nm -D --defined-only "$HAK_TEST_LIB" | awk '{print $3}' | sed 's/@.*//' | sort -u >"$exported"
if grep -q __gcov_ "$exported"; then
    echo "a coverage build: it exports names of its own"
    exit 77
fi
diff -u "$HAK_TEST_SOURCE/tests/conformance/exports.txt" "$exported" ||
    fail "exported names (+) differ from tests/conformance/exports.txt (-)"

dynamic=$(readelf -dW "$HAK_TEST_LIB")
needed=$(sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' <<<"$dynamic")
while read -r library; do
    case $library in
        libc.so.6 | ld-linux*) ;;
        *) fail "it needs $library" ;;
    esac
done <<<"$needed"
grep -q 'NODELETE' <<<"$dynamic" || fail "it can be unloaded (no NODELETE)"
grep -q 'BIND_NOW' <<<"$dynamic" || fail "symbols are bound late (no BIND_NOW)"
grep -q 'STATIC_TLS' <<<"$dynamic" || fail "thread-local data is not of the initial-exec model"
grep -q 'TEXTREL' <<<"$dynamic" && fail "its code is relocated at start (TEXTREL)"
grep -q 'GNU_RELRO' <<<"$(readelf -lW "$HAK_TEST_LIB")" || fail "relocated pointers stay writable (no RELRO)"
grep -qE 'DTPMOD|TLSDESC' <<<"$(readelf -rW "$HAK_TEST_LIB")" && fail "it calls __tls_get_addr"
exit $failed
