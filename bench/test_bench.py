#!/usr/bin/env python3
"""Tests of the benchmark itself: that it refuses what it must, and counts as it says.

    python3 bench/test_bench.py

They need a C compiler and no peers: small libraries that stand in for allocators are made here.
"""

import contextlib
import io
import math
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import run
import table

# An allocator that hands everything on to glibc, with a meter that moves by what STEP says.
STAND_IN = r"""
#include <stddef.h>
#include <string.h>
#include "hakmem/hakmem.h"
extern void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t);
extern void *__libc_realloc(void *, size_t);
extern void __libc_free(void *);
static unsigned long long served;
void *malloc(size_t n) { served += STEP; return __libc_malloc(n); }
void *calloc(size_t n, size_t m) { return __libc_calloc(n, m); }
void *realloc(void *p, size_t n) { return __libc_realloc(p, n); }
void free(void *p) { __libc_free(p); }
#ifndef NO_METER
int hak_stats(hak_stats_data *out, size_t bytes)
{
    memset(out, 0, bytes);
    out->served_bytes = served;
    return 0;
}
#endif
"""
# Returns the same block for every request above 40 bytes: live blocks overlap.
OVERLAPPING = STAND_IN.replace(
    "served += STEP; return __libc_malloc(n);",
    "static char same[4096] __attribute__((aligned(16))); return n > 40 ? same : __libc_malloc(n);",
).replace("{ __libc_free(p); }", "{ (void)p; }")
CRASHING = STAND_IN.replace("served += STEP;", "if (n == 64) __builtin_trap();")
METER_ONLY = STAND_IN[: STAND_IN.index("void *malloc")] + STAND_IN[STAND_IN.index("#ifndef") :]

PAIR = run.Workload("micro", "pair", ("pair", "--repeats", "5"))


class ProofTests(unittest.TestCase):
    @classmethod
    def setUpClass(cls) -> None:
        cls.folder = tempfile.TemporaryDirectory()
        cls.path = Path(cls.folder.name)
        cls.micro = run.build_micro(os.environ.get("CC", "gcc"), cls.path)

    @classmethod
    def tearDownClass(cls) -> None:
        cls.folder.cleanup()

    def library(self, name: str, source: str, *flags: str) -> Path:
        made = self.path / f"{name}.so"
        if not made.exists():
            command = [os.environ.get("CC", "gcc"), "-O1", "-shared", "-fPIC", "-fno-builtin"]
            command += [f"-I{run.ROOT / 'include'}", "-xc", "-", "-o", str(made), *flags]
            subprocess.run(command, input=source, text=True, check=True)
        return made

    def measure(self, name: str, library: Path | None, workload: run.Workload = PAIR) -> dict:
        return run.run_one(self.micro, workload, run.Allocator(name, library, {}))

    def test_glibc_is_accepted_as_glibc(self) -> None:
        figures = self.measure("glibc", None)
        self.assertNotIn("error", figures)
        self.assertGreater(figures["ns_best"], 0)
        self.assertLessEqual(figures["ns_best"], figures["ns_median"])

    def test_another_library_under_the_label_of_a_peer_is_refused(self) -> None:
        real = self.library("real", STAND_IN, "-DSTEP=n")
        figures = run.run_one(self.micro, PAIR, run.Allocator("mimalloc3", real, {}))
        self.assertNotIn("error", figures)
        for label in (run.Allocator("mimalloc3", self.path / "other.so", {}),
                      run.Allocator("glibc", None, {})):  # fmt: skip
            self.assertIn("no proof", run.proof_error(figures, label))

    def test_glibc_under_the_label_of_hakmem_is_refused(self) -> None:
        # A library that has no malloc leaves glibc to serve, silently.
        meter = self.library("meter", METER_ONLY, "-DSTEP=n")
        self.assertIn("malloc was served by libc.so", self.measure("hakmem", meter)["error"])
        # One that can't be loaded does, too.
        broken = self.path / "broken.so"
        broken.write_bytes(b"not a library")
        self.assertIn("malloc was served by libc.so", self.measure("hakmem", broken)["error"])

    def test_hakmem_needs_a_meter_that_moved_far_enough(self) -> None:
        good = self.library("real", STAND_IN, "-DSTEP=n")
        still = self.library("still", STAND_IN, "-DSTEP=0")
        slow = self.library("slow", STAND_IN, "-DSTEP=1")
        without = self.library("without", STAND_IN, "-DSTEP=n", "-DNO_METER")
        self.assertNotIn("error", self.measure("hakmem", good))
        self.assertIn("0 bytes served", self.measure("hakmem", still)["error"])
        self.assertIn("bytes served of", self.measure("hakmem", slow)["error"])
        self.assertIn("no hak_stats", self.measure("hakmem", without)["error"])

    def test_overlapping_blocks_fail_the_self_check(self) -> None:
        library = self.library("overlapping", OVERLAPPING, "-DSTEP=n")
        workload = run.Workload("micro", "batch500", ("batch500", "--repeats", "5"))
        self.assertIn("self-check", self.measure("peer", library, workload)["error"])

    def test_a_crash_is_a_row_with_an_error(self) -> None:
        library = self.library("crashing", CRASHING, "-DSTEP=n")
        self.assertIn("killed by signal", self.measure("peer", library)["error"])
        steps = run.plan(1, [PAIR], [run.Allocator("peer", library, {})])
        file = io.StringIO()
        with contextlib.redirect_stderr(io.StringIO()):
            run.measure(steps, self.micro, file, run.Progress(1))
        self.assertIn("killed by signal", file.getvalue())

    def test_every_listed_workload_runs_and_passes_its_check(self) -> None:
        for workload in run.list_workloads(self.micro):
            with self.subTest(workload.name):
                quick = run.Workload(
                    workload.suite, workload.name, (*workload.arguments, "--repeats", "1")
                )
                self.assertNotIn("error", self.measure("glibc", None, quick))


def row(number: int, allocator: str, ns: float, error: str = "", workload: str = "pair",
        suite: str = "micro", rss: int = 1024) -> table.Row:  # fmt: skip
    return table.Row(number, suite, workload, allocator, ns, ns, rss, error)


class TableTests(unittest.TestCase):
    def test_peer_is_chosen_on_odd_rounds_and_compared_on_even_ones(self) -> None:
        rows = [row(1, "lucky", 1.0), row(2, "lucky", 4.0), row(1, "steady", 2.0),
                row(2, "steady", 2.0), row(1, "hakmem", 9.0), row(2, "hakmem", 2.0)]  # fmt: skip
        results = table.Results(rows, ["hakmem"], ["lucky", "steady"])
        self.assertEqual(results.ratio("pair", "hakmem", table.BEST), (0.5, "lucky"))

    def test_glibc_is_no_peer(self) -> None:
        rows = [row(1, "glibc", 1.0), row(1, "peer", 2.0), row(1, "hakmem", 2.0)]
        results = table.Results(rows, ["hakmem"], ["peer"])
        self.assertEqual(results.ratio("pair", "hakmem", table.BEST), (1.0, "peer"))

    def test_geometric_mean(self) -> None:
        rows = []
        for workload, ns in (("pair", 1.0), ("mid", 4.0)):
            rows += [
                row(1, "peer", 1.0, workload=workload),
                row(1, "hakmem", ns, workload=workload),
            ]
        results = table.Results(rows, ["hakmem"], ["peer"])
        mean = results.geomean("micro", "hakmem", table.BEST)
        self.assertTrue(mean is not None and math.isclose(mean, 2.0))

    def test_bars_of_single_workloads(self) -> None:
        rows = []
        for workload in ("pair", "mid"):
            rows += [
                row(1, "peer", 1.0, workload=workload),
                row(1, "hakmem", 1.3, workload=workload),
            ]
        results = table.Results(rows, ["hakmem"], ["peer"])
        texts = [text for text, good in table.bars(results, "hakmem") if not good]
        self.assertTrue(any(text.startswith("mid, by best: 1.300 <= 1.20") for text in texts))
        self.assertFalse(any(text.startswith("pair") for text in texts))

    def test_a_failed_row_fails_the_bars_and_counts_nowhere(self) -> None:
        rows = [row(1, "peer", 2.0), row(1, "hakmem", 1.0), row(1, "hakmem", math.nan, "crash")]
        results = table.Results(rows, ["hakmem"], ["peer"])
        self.assertEqual(results.ratio("pair", "hakmem", table.BEST), (0.5, "peer"))
        self.assertIn(
            ("every row served and checked: 1 rows failed", False), table.bars(results, "hakmem")
        )

    def test_order_rotates_so_that_each_goes_first(self) -> None:
        allocators = [run.Allocator(name, None, {}) for name in ("a", "b", "c")]
        steps = run.plan(3, [PAIR], allocators)
        self.assertEqual({s[3].name for s in steps if s[1] == 0}, {"a", "b", "c"})


if __name__ == "__main__":
    unittest.main()
