#!/usr/bin/env python3
"""What a thread that allocates little costs in resident memory: 200 threads with 20 small blocks
each, against 200 threads that allocate nothing. Bar: less than 64 KiB a thread."""

import os
import statistics

from compat import HERE, check, need, prove_command, run, run_test, say

THREADS, BLOCKS, BAR_KIB = 200, 20, 64


def main(work):
    compiler = need(os.environ.get("CC", "cc"), "gcc")
    program = os.path.join(work, "thread_cost")
    source = os.path.join(HERE, "thread_cost.c")
    run([compiler, "-std=gnu11", "-O1", "-pthread", "-o", program, source], preload=False).ok()

    def cost(preload, blocks):
        """KiB a thread while all wait, and left a thread when all have ended: medians of five."""
        figures = []
        for _ in range(5):
            done = run([program, str(THREADS), str(blocks)], preload=preload).ok()
            before, during, after = map(int, done.out.split())
            check(before > 0, "no /proc/self/smaps_rollup")
            figures.append(((during - before) / THREADS, (after - before) / THREADS))
        return [statistics.median(column) for column in zip(*figures, strict=True)]

    prove_command([program, str(THREADS), str(BLOCKS)])
    heads = ("control", f"{BLOCKS} blocks", "cost", "left after")
    say(f"{'KiB a thread':18}" + "".join(f"{head:>12}" for head in heads))
    costs = {}
    for name, preload in (("glibc", False), ("with the library", True)):
        control, blocks = cost(preload, 0), cost(preload, BLOCKS)
        costs[name] = blocks[0] - control[0]
        figures = (control[0], blocks[0], costs[name], blocks[1] - control[1])
        say(f"{name:18}" + "".join(f"{figure:12.1f}" for figure in figures))
    cost_kib = costs["with the library"]
    check(cost_kib < BAR_KIB, f"a thread costs {cost_kib:.1f} KiB, bar {BAR_KIB}")


run_test(main)
