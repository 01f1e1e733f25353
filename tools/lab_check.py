#!/usr/bin/env python3
"""Whether the lab tells the truth: on this machine, with real runs.

    tools/lab_check.py [--delay N] [--out FOLDER]

A/A       hakmem against a copy of itself, 200 comparisons of six rounds each. A verdict is false,
          whichever way it goes; with more than 5% of them, beyond what chance allows, the check
          fails.
planted   hakmem against a build of itself with a delay in every slow path (HAK_PLANTED_DELAY, N
          empty turns of a loop). The lab must call it slower on at least two workloads, all of them
          judged as one family.

Needs the package (pip install .) and a quiet machine for about eight minutes. Rows are kept in
FOLDER (default build/lab-check).
"""

import argparse
import shutil
import subprocess
import sys
from pathlib import Path

from scipy.stats import binom

from hakmem import locate, runner, stats, store, suites
from hakmem.allocators import sha256
from hakmem.model import Allocator

ROOT = Path(__file__).resolve().parent.parent
WORKLOADS = (
    "pair", "batch500", "fifo100k", "bulkrandom100k", "churn1k", "mid", "growhalf", "randommixed"
)  # fmt: skip
ROUNDS_OF_ONE, COMPARISONS, FALSE_SHARE = 6, 200, 0.05
PLANTED_ROUNDS = 24


def library(name: str, path: Path) -> Allocator:
    return Allocator(name, path, "", {"sha256": sha256(path)})


def planted(delay: int, into: Path) -> Path:
    """A build with the delay."""
    subprocess.run(
        ["cmake", "-S", ROOT, "-B", into, "-DHAKMEM_TESTS=OFF",
         f"-DCMAKE_C_FLAGS=-DHAK_PLANTED_DELAY={delay}"],
        check=True, stdout=subprocess.DEVNULL,
    )  # fmt: skip
    subprocess.run(
        ["cmake", "--build", into, "--target", "hakmem"], check=True, stdout=subprocess.DEVNULL
    )
    return into / "libhakmem.so"


def measure(allocators: list[Allocator], rounds: int, out: Path) -> list[dict]:
    hakbench = locate.native("hakbench")
    made = {
        one.key: one
        for name in WORKLOADS
        for one in suites.matrix(name, ["--repeats", "7"], hakbench)
    }
    with runner.session(allocators) as (aside_allocators, witness, aside):
        workloads = list(made.values())
        meta = runner.describe(rounds, workloads, aside_allocators, "tools/lab_check.py")
        with store.Store.open(out, meta, again=True) as file:
            one = runner.Runner(
                file, aside_allocators, workloads, rounds=rounds, witness=witness, aside=aside,
                warm_up=True,
            )  # fmt: skip
            if not one.run(runner.PlainProgress()):
                sys.exit("broken off")
    return store.read(out).rows


def check_same(lib: Path, out: Path) -> bool:
    groups = -(-COMPARISONS // len(WORKLOADS))
    rows = measure(
        [library("hakmem", lib), library("again", lib)], groups * ROUNDS_OF_ONE, out / "same.csv"
    )
    told = []
    for group in range(groups):
        first = group * ROUNDS_OF_ONE
        part = [
            {**row, "round": str(int(row["round"]) - first)}
            for row in rows
            if first < int(row["round"]) <= first + ROUNDS_OF_ONE
        ]
        for workload in stats.Cells.of(part).workloads:
            (one,) = stats.compare(part, "time", "hakmem", "again", [workload])
            told.append(one)
    false = sum(one.verdict in ("win", "loss") for one in told)
    most = int(binom.ppf(0.95, len(told), FALSE_SHARE))
    print(f"A/A: {false} false verdicts of {len(told)}; at most {most} are chance at 5%")
    return false <= most


def check_planted(lib: Path, slow: Path, out: Path) -> bool:
    rows = measure(
        [library("hakmem", lib), library("slow", slow)], PLANTED_ROUNDS, out / "planted.csv"
    )
    found = 0
    for one in stats.compare(rows, "time", "slow", "hakmem"):
        found += one.verdict == "loss"
        low, high = one.low, one.high
        print(f"  {one.workload:32} {one.ratio:.3f} ({low:.3f} to {high:.3f})  {one.verdict}")
    print(f"planted: slower on {found} workloads")
    return found >= 2


def main() -> int:
    parser = argparse.ArgumentParser(description="checks the lab with real runs")
    parser.add_argument("--delay", type=int, default=300, help="turns (default 300)")
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "lab-check")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    if shutil.which("cmake") is None:
        parser.error("cmake is needed")
    lib = options.out / "libhakmem-0.so"
    shutil.copyfile(locate.native("libhakmem.so"), lib)
    slow = planted(options.delay, options.out / "planted")
    good = check_planted(lib, slow, options.out)
    return 0 if check_same(lib, options.out) and good else 1


if __name__ == "__main__":
    sys.exit(main())
