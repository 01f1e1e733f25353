#!/usr/bin/env python3
"""startup.py: what the library adds to the start of a program, over glibc.

Starts `true` 300 times with and 300 times without the library, in turn, and compares medians.
Bars: less than 0.5 ms of wall time and less than 600 KiB of peak resident memory. Prints the
figures; exit status 1 when a bar is missed.

    HAK_TEST_LIB=build/libhakmem.so tests/compat/startup.py
"""

import os
import statistics

from compat import HERE, LIB, Failed, check, need, prove_command, run, run_test, say

ROUNDS = 300
WALL_MS, RESIDENT_KIB = 0.5, 600


def quartiles(values):
    low, middle, high = statistics.quantiles(values, n=4)
    return f"{middle:9.3f} ({low:.3f} to {high:.3f})"


def main(work):
    compiler = need(os.environ.get("CC", "cc"), "gcc")
    program = need("true", "coreutils")
    check(LIB, "set HAK_TEST_LIB to the library under test")
    probe = os.path.join(work, "startup_probe")
    source = os.path.join(HERE, "startup_probe.c")
    run([compiler, "-O2", "-static", "-o", probe, source], preload=False).ok()
    prove_command([program])
    run([probe, LIB, "20", program], preload=False).ok()  # warms the page cache
    lines = run([probe, LIB, str(ROUNDS), program], preload=False).ok().out.split(b"\n")
    runs = {0: [], 1: []}
    for line in lines:
        if line:
            preloaded, wall, cpu, resident, faults = map(int, line.split())
            runs[preloaded].append((wall / 1e6, cpu / 1e3, resident, faults))
    plain, served = ([list(column) for column in zip(*runs[kind], strict=True)] for kind in (0, 1))
    added = []
    say(f"{'median (quartiles)':22} {'glibc':34} {'with the library':34} added")
    names = ("wall, ms", "CPU, ms", "peak resident, KiB", "minor faults")
    for name, left, right in zip(names, plain, served, strict=True):
        added.append(statistics.median(right) - statistics.median(left))
        say(f"{name:22} {quartiles(left):34} {quartiles(right):34} {added[-1]:+.3f}")
    page_kib = os.sysconf("SC_PAGESIZE") // 1024
    say(f"pages touched: {added[3] * page_kib:+.0f} KiB")
    missed = []
    if added[0] >= WALL_MS:
        missed.append(f"wall time: {added[0]:.3f} ms added, bar {WALL_MS:.1f}")
    if added[2] >= RESIDENT_KIB:
        missed.append(f"resident memory: {added[2]} KiB added, bar {RESIDENT_KIB}")
    if missed:
        raise Failed("; ".join(missed))


if __name__ == "__main__":
    run_test(main)
