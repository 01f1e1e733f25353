#!/usr/bin/env python3
"""Measures what an allocator costs a process that hardly uses it.

    bench/start.py [--rounds N] [--peers a,b] [--lib FILE] [--extra-lib NAME=FILE]...
                   [--command FILE] [--out FILE.json]

For each allocator: the time and the peak of resident memory of `true` over those under glibc, and
the resident memory of a thread that allocates little. Like run.py it takes figures only from a
process that proves which allocator served it.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import run
import table

TIME_BAR_MS = 0.5
MEMORY_BAR_KIB = 600.0
THREAD_BAR_KIB = 64.0


def thread_cost(micro: Path, allocator: run.Allocator) -> float:
    """KiB that a thread costs, with the proof of who served."""
    figures = run.run_one(micro, run.Workload("start", "threadcost", ("threadcost",)), allocator)
    if figures.get("error"):
        raise run.BenchError(f"{allocator.name}: {figures['error']}")
    return figures["kib_per_thread"]


def launches(
    launcher: Path, command: str, rounds: int, allocators: list[run.Allocator]
) -> list[tuple[list[float], list[int]]]:
    """For each allocator the microseconds and KiB of every launch."""
    libraries = [str(a.library) if a.library else "-" for a in allocators]
    environment = {"PATH": os.defpath}
    done = subprocess.run(
        [str(launcher), str(rounds), command, *libraries],
        env=environment, capture_output=True, text=True,
    )  # fmt: skip
    if done.returncode != 0 or done.stderr:
        # The dynamic linker names a library that can't be preloaded on stderr, and goes on.
        raise run.BenchError(f"launching {command} failed: {done.stderr.strip()}")
    found: list[tuple[list[float], list[int]]] = [([], []) for _ in allocators]
    for line in done.stdout.splitlines():
        which, micros, kib = line.split()
        found[int(which)][0].append(float(micros))
        found[int(which)][1].append(int(kib))
    return found


def bench(options: argparse.Namespace, aside: Path) -> int:
    micro = run.build_micro(options.cc, aside)
    launcher = aside / "launch"
    source = run.WORKLOADS / "launch.c"
    subprocess.run([options.cc, "-std=c11", "-O2", str(source), "-o", str(launcher)], check=True)
    allocators = run.gather(options, aside)
    if all(allocator.library is not None for allocator in allocators):
        allocators.append(run.Allocator("glibc", None, {}))
    base = next(i for i, allocator in enumerate(allocators) if allocator.library is None)
    costs = [thread_cost(micro, allocator) for allocator in allocators]
    found = launches(launcher, options.command, options.rounds, allocators)

    head = ["allocator", "ms", "over glibc", "MiB", "KiB over glibc", "KiB per thread"]
    body = []
    fails = []
    rows = []
    base_ms = statistics.median(found[base][0]) / 1e3
    base_kib = statistics.median(found[base][1])
    for allocator, (micros, kib), cost in zip(allocators, found, costs, strict=True):
        ms = statistics.median(micros) / 1e3
        memory = statistics.median(kib)
        row = {
            "allocator": allocator.name, "ms": ms, "ms_over": ms - base_ms, "rss_kib": memory,
            "rss_kib_over": memory - base_kib, "kib_per_thread": cost,
        }  # fmt: skip
        rows.append(row)
        body.append(
            [allocator.name, f"{ms:.3f}", f"{ms - base_ms:+.3f}", f"{memory / 1024:.2f}",
             f"{memory - base_kib:+.0f}", f"{cost:.1f}"]
        )  # fmt: skip
        if run.is_candidate(allocator):
            for what, value, bar in (
                ("ms over glibc", ms - base_ms, TIME_BAR_MS),
                ("KiB over glibc", memory - base_kib, MEMORY_BAR_KIB),
                ("KiB per thread", cost, THREAD_BAR_KIB),
            ):
                verdict = "holds " if value < bar else "FAILS "
                fails.append(f"{verdict} {allocator.name}: {value:.2f} {what} < {bar:g}")
    print(f"{options.command}, median of {options.rounds} interleaved launches\n")
    print(table.lay_out(head, body, options.markdown))
    if fails:
        print("\n" + "\n".join(fails))
    if options.out:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        about = run.describe(options, allocators)
        options.out.write_text(json.dumps({"about": about, "rows": rows}, indent=2) + "\n")
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description="measure start-up and threads")
    run.add_common_arguments(parser)
    parser.add_argument("--rounds", type=int, default=301, help="launches of each (default 301)")
    parser.add_argument("--command", default=shutil.which("true") or "/bin/true", metavar="FILE")
    parser.add_argument("--out", type=Path, metavar="FILE.json", help="keep the figures here")
    options = run.finish_arguments(parser)
    with tempfile.TemporaryDirectory(prefix="hakmem-bench-") as aside:
        try:
            return bench(options, Path(aside))
        except run.BenchError as error:
            print(f"start.py: {error}", file=sys.stderr)
            return 1


if __name__ == "__main__":
    sys.exit(main())
