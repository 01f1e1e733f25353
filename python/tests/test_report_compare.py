"""What changed between two runs: a regression is found, another machine's luck is not."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from report_results import META, make_rows, write

from hakmem import report
from hakmem.report.compare import changes

WORKLOADS = {name: "micro" for name in ("pair", "batch", "churn", "json")}
SPEEDS = {"hakmem": 0.8, "mimalloc2": 0.9, "glibc": 1.0}


def file(folder: Path, name: str, seed: int, hakmem: float = 0.8, pace: float = 1.0,
         meta: dict | None = None, **more) -> Path:  # fmt: skip
    """A run; `pace` is how slow the whole machine was."""
    speeds = {**SPEEDS, "hakmem": hakmem}
    rows = make_rows({each: pace * speed for each, speed in speeds.items()}, WORKLOADS,
                     11, noise=0.01, seed=seed)  # fmt: skip
    return write(folder / name, rows, meta, hashes={"hakmem": name}, **more)


def test_a_regression_passes(tmp_path, capsys):
    before, after = file(tmp_path, "a.csv", 1), file(tmp_path, "b.csv", 2, hakmem=0.85)
    assert report.compare(before, after) == 1
    said = capsys.readouterr().out
    assert "Worse in B: " in said and "pair (hakmem, time, +5" in said
    assert report.compare(before, after, threshold=0.2) == 0


def test_a_gain_is_a_regression(tmp_path, capsys):
    before, after = file(tmp_path, "a.csv", 1), file(tmp_path, "b.csv", 2, hakmem=0.7)
    assert report.compare(before, after) == 0
    assert "4 of 8 figures got better" in capsys.readouterr().out


def test_two_runs_of_the_same_differ(tmp_path):
    wrong = 0
    for seed in range(20):
        before = file(tmp_path, "a.csv", 2 * seed)
        after = file(tmp_path, "b.csv", 2 * seed + 1)
        found = changes(report.read(before), report.read(after))
        wrong += bool(found.regressions)
    assert wrong <= 3


def test_a_machine_that_got_slower_is_a_regression(tmp_path):
    before, after = file(tmp_path, "a.csv", 1), file(tmp_path, "b.csv", 2, pace=1.3)
    assert report.compare(before, after) == 0


def test_peers_that_changed_are_taken_for_the_same(tmp_path, capsys):
    before = file(tmp_path, "a.csv", 1)
    rows = make_rows({"hakmem": 0.8, "mimalloc2": 0.5, "glibc": 1.0}, WORKLOADS, 11, seed=2)
    after = write(tmp_path / "b.csv", rows, hashes={"mimalloc2": "another"})
    assert report.compare(before, after) == 0
    assert "÷ the same of glibc;" in capsys.readouterr().out


def test_runs_without_a_common_peer_are_compared_in_silence(tmp_path, capsys):
    paths = [
        write(tmp_path / name, make_rows({"hakmem": 1.0}, WORKLOADS, 11, seed=seed))
        for seed, name in enumerate(("a.csv", "b.csv"))
    ]
    assert report.compare(*paths) == 0
    assert "no unchanged peer in common" in capsys.readouterr().out


def test_a_few_more_instructions_go_unseen(tmp_path, capsys):
    rng = np.random.default_rng(4)
    paths = []
    for name, work in (("a.csv", 1.0), ("b.csv", 1.003)):
        rows = make_rows(SPEEDS, WORKLOADS, 11, noise=0.05, seed=len(paths))
        for row in rows:
            mine = work if row["allocator"] == "hakmem" else 1.0
            row["instructions"] = str(int(1e9 * mine + rng.integers(0, 1000)))
        paths.append(write(tmp_path / name, rows))
    assert report.compare(*paths) == 1
    assert "(hakmem, instructions, +0.30%)" in capsys.readouterr().out
    assert report.compare(paths[0], paths[0]) == 0


@pytest.mark.parametrize(
    ("meta", "message"),
    [
        ({"cpu": "Another Processor"}, "cpu was Some Processor and is Another"),
        ({"memory_kib": 8_000_000}, "memory was 15.3 GiB"),
    ],
)
def test_machines_are_compared_with_each_other(tmp_path, capsys, meta, message):
    before, after = file(tmp_path, "a.csv", 1), file(tmp_path, "b.csv", 2, meta=meta)
    with pytest.raises(report.ReportError, match=message):
        report.compare(before, after)
    assert report.compare(before, after, force=True) == 0
    assert "Forced: " in capsys.readouterr().out


def test_workloads_of_other_parameters_are_compared(tmp_path):
    before = file(tmp_path, "a.csv", 1)
    rows = make_rows(SPEEDS, WORKLOADS, 11)
    for row in rows:
        row["params"] = "threads=2"
    after = write(tmp_path / "b.csv", rows)
    with pytest.raises(report.ReportError, match="pair had no parameters and has threads=2"):
        report.compare(before, after)
    with pytest.raises(report.ReportError, match="no workload in common"):
        report.compare(before, after, force=True)


def test_a_changed_kernel_goes_unsaid(tmp_path, capsys):
    before = file(tmp_path, "a.csv", 1)
    after = file(tmp_path, "b.csv", 2, meta={"kernel": "Linux 7.0"})
    report.compare(before, after)
    assert f"kernel changed from {META['kernel']} to Linux 7.0" in capsys.readouterr().out


def test_three_rounds_find_a_regression(tmp_path, capsys):
    paths = [
        write(tmp_path / name, make_rows({"hakmem": speed, "glibc": 1.0}, WORKLOADS, 3))
        for name, speed in (("a.csv", 1.0), ("b.csv", 2.0))
    ]
    assert report.compare(*paths) == 0
    said = capsys.readouterr().out
    assert "Below 5 rounds" in said and "too few rounds" in said
