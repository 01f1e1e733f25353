"""What changed from one results file to another, such as from one revision to the next.

Two runs are of two times, and a machine is never twice the same. So an allocator's figure is first
divided, round by round, by that of the peers which both runs had unchanged; what is compared is
this ratio. Instruction counts need none of that: where both runs have them, they are compared as
they are, and small changes count.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from scipy import stats as scipy_stats

from .. import stats
from ..stats import Comparison, Metric
from . import figures, tables
from .analysis import choose_metrics
from .results import ReportError, Results, read

INSTRUCTIONS = "instructions"
# Counts of the same work repeat to far better than this.
INSTRUCTIONS_THRESHOLD = 0.001
SLOWER, FASTER, SAME = "worse", "better", "no change told"
# What makes a machine another one; memory may differ by what the kernel keeps.
MACHINE = ("machine", "cpu", "cpus")
MEMORY_TOLERANCE = 0.02
# What may change on the same machine, and is said.
CONDITIONS = ("kernel", "huge_pages", "governor", "virtual", "compiler", "flags", "settings")


@dataclass(frozen=True)
class Change:
    """B ÷ A of one allocator on one workload. `peers`: how many common ones it is relative to."""

    comparison: Comparison
    allocator: str
    rounds: tuple[int, int]
    peers: int
    threshold: float

    @property
    def verdict(self) -> str:
        one = self.comparison
        if one.p is None:
            return stats.TOO_FEW
        told = one.p_family is not None and one.p_family <= stats.FAMILY_LEVEL
        if told and one.low > 1 and one.ratio > 1 + self.threshold:
            return SLOWER
        if told and one.high < 1 and one.ratio < 1 - self.threshold:
            return FASTER
        return SAME


@dataclass(frozen=True)
class Changes:
    changes: tuple[Change, ...]
    peers: tuple[str, ...]
    warnings: tuple[str, ...]

    @property
    def regressions(self) -> list[Change]:
        return [change for change in self.changes if change.verdict == SLOWER]


def incomparable(a: Results, b: Results) -> list[str]:
    """Why the two must not be compared; empty where they may."""
    why = []
    for name in MACHINE:
        if a.about(name) != b.about(name):
            why.append(f"{name} was {a.about(name) or 'unknown'} and is {b.about(name)}")
    memory = [float(each.meta.get("memory_kib") or 0) for each in (a, b)]
    if min(memory) > 0 and max(memory) / min(memory) > 1 + MEMORY_TOLERANCE:
        why.append(f"memory was {figures.kib(memory[0])} and is {figures.kib(memory[1])}")
    params = [_params(each) for each in (a, b)]
    for name in sorted(params[0].keys() & params[1].keys()):
        before, after = params[0][name], params[1][name]
        if not before & after:
            why.append(f"{name} had {_texts(before)} and has {_texts(after)}")
    if not params[0].keys() & params[1].keys():
        why.append("they have no workload in common")
    return why


def _params(results: Results) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for row in results.rows:
        found.setdefault(str(row["workload"]), set()).add(str(row.get("params") or ""))
    return found


def _texts(params: set[str]) -> str:
    return " or ".join(sorted(each or "no parameters" for each in params))


def common_peers(a: Results, b: Results) -> list[str]:
    """Allocators that were the same in both runs: same file, or same version of the C library."""
    found = []
    for name in a.cells.allocators:
        before, after = a.allocator(name), b.allocator(name)
        identity = "sha256" if before.get("sha256") and after.get("sha256") else "version"
        same = before.get(identity) and before.get(identity) == after.get(identity)
        if same and name in b.cells.allocators and not stats.is_hakmem(name):
            found.append(name)
    return found


def subjects(a: Results, b: Results, peers: Sequence[str]) -> list[str]:
    """Those whose change is looked for: hakmem, else all that are not the same, else all."""
    both = [name for name in a.cells.allocators if name in b.cells.allocators]
    changed = [name for name in both if name not in peers]
    return [name for name in both if stats.is_hakmem(name)] or changed or both


def changes(a: Results, b: Results, metric: str | None = None,
            threshold: float = stats.THRESHOLD) -> Changes:  # fmt: skip
    """Every change of the subjects, judged as one family."""
    peers = common_peers(a, b)
    about = subjects(a, b, peers)
    if not about:
        raise ReportError(f"{a.path} and {b.path} have no allocator in common")
    used = tuple(peer for peer in peers if peer not in about)
    found = []
    for workload in (each for each in a.cells.workloads if each in b.cells.workloads):
        for name in about:
            for which in _metrics(a, b, metric, workload, name):
                limit = threshold
                if which.name == INSTRUCTIONS:
                    limit = min(threshold, INSTRUCTIONS_THRESHOLD)
                found.append(_change(a, b, workload, name, which, used, limit))
    found = [change for change in found if change is not None]
    judged = stats.judge([change.comparison for change in found], threshold)
    found = [replace(each, comparison=one) for each, one in zip(found, judged, strict=True)]
    return Changes(tuple(found), used, tuple(_warnings(a, b, used, about)))


def _metrics(a: Results, b: Results, asked: str | None, workload: str, name: str) -> list[Metric]:
    """The metrics asked for, or memory and the surest measure of work that both runs have."""
    if asked:
        return choose_metrics(asked)
    counted = all(each.cells.values(workload, name, INSTRUCTIONS) for each in (a, b))
    return [stats.metric(INSTRUCTIONS if counted else "time"), stats.metric("memory")]


def _change(a: Results, b: Results, workload: str, name: str, which: Metric,
            peers: Sequence[str], threshold: float) -> Change | None:  # fmt: skip
    if a.cells.source(workload, which) != b.cells.source(workload, which):
        return None
    direct = which.name == INSTRUCTIONS
    there = [] if direct else [
        peer for peer in peers
        if all(each.cells.values(workload, peer, which) for each in (a, b))
    ]  # fmt: skip
    before, after = (_levels(each, workload, name, which, there) for each in (a, b))
    if len(before) == 0 or len(after) == 0:
        return None
    one = Comparison(workload, a.cells.workloads[workload], which.name, str(b.path), str(a.path),
                     min(len(before), len(after)),
                     math.exp(np.median(after) - np.median(before)))  # fmt: skip
    if one.rounds >= stats.LEAST_ROUNDS:
        low, high = _interval(before, after, stats.seed_of(workload, which.name, name))
        one = replace(one, low=low, high=high, p=_two_sample_p(before, after))
    return Change(one, name, (len(before), len(after)), len(there), threshold)


def _levels(results: Results, workload: str, name: str, which: Metric,
            peers: Sequence[str]) -> np.ndarray:  # fmt: skip
    """Of each round the log of the figure, less the mean of the peers' logs."""
    mine = results.cells.values(workload, name, which)
    theirs = [results.cells.values(workload, peer, which) for peer in peers]
    levels = []
    for each, value in sorted(mine.items()):
        others = [values.get(each, 0.0) for values in theirs]
        if value > 0 and all(other > 0 for other in others):
            level = math.log(value)
            levels.append(level - float(np.mean(np.log(others))) if others else level)
    return np.round(levels, 12)


def _interval(
    before: np.ndarray, after: np.ndarray, rng: np.random.Generator
) -> tuple[float, float]:
    def ratio(x: np.ndarray, y: np.ndarray, axis: int = -1) -> np.ndarray:
        return np.median(y, axis=axis) - np.median(x, axis=axis)

    with warnings.catch_warnings():
        # Counts that never vary give an interval of no width, which scipy warns of.
        warnings.simplefilter("ignore")
        found = scipy_stats.bootstrap(
            (before, after), ratio, n_resamples=stats.RESAMPLES, method="percentile",
            confidence_level=stats.INTERVAL_LEVEL, vectorized=True, rng=rng,
        ).confidence_interval  # fmt: skip
    return math.exp(found.low), math.exp(found.high)


def _two_sample_p(before: np.ndarray, after: np.ndarray) -> float:
    """Mann and Whitney's test: exact where no two figures are alike."""
    both = np.concatenate([before, after])
    if np.ptp(both) == 0:
        return 1.0
    exact = len(np.unique(both)) == len(both)
    method = "exact" if exact else "asymptotic"
    return float(scipy_stats.mannwhitneyu(before, after, method=method).pvalue)


def _warnings(a: Results, b: Results, peers: Sequence[str], about: Sequence[str]) -> list[str]:
    told = []
    for name in CONDITIONS:
        if a.about(name) != b.about(name):
            told.append(f"{name} changed from {a.about(name) or 'none'} to {b.about(name)}.")
    if not peers:
        told.append(
            "The runs have no unchanged peer in common, so figures are compared as they are: a "
            "change may be the machine's. Measure one peer (glibc will do) in both runs."
        )
    only = [
        f"{len(set(x.cells.workloads) - set(y.cells.workloads))} only in {x.path.name}"
        for x, y in ((a, b), (b, a))
        if set(x.cells.workloads) - set(y.cells.workloads)
    ]
    if only:
        told.append(f"Workloads that are not in both: {', '.join(only)}.")
    for each in (a, b):
        if refused := each.cells.refused():
            told.append(f"{len(refused)} rows of {each.path.name} do not count.")
    if any(each.rounds() < stats.LEAST_ROUNDS for each in (a, b)):
        told.append(f"Below {stats.LEAST_ROUNDS} rounds there are no verdicts: run more.")
    return told


def table(found: Changes) -> tables.Table:
    body = []
    for change in sorted(found.changes, key=lambda each: -abs(math.log(each.comparison.ratio))):
        one = change.comparison
        body.append((
            one.workload, change.allocator, stats.metric(one.metric).title.lower(),
            figures.ratio(one.ratio), figures.span(one.low, one.high),
            f"{change.rounds[0]}, {change.rounds[1]}", change.verdict,
        ))  # fmt: skip
    relative = f"÷ the same of {', '.join(found.peers)}" if found.peers else "as measured"
    return tables.Table(
        "B ÷ A, largest change first",
        ("workload", "allocator", "metric", "B ÷ A", "95% interval", "rounds", "change"),
        tuple(body),
        f"Time and memory {relative}; below 1 is better in B. All lines are one family (Holm, 5%).",
        left=3,
    )


def compare(path_a: Path | str, path_b: Path | str, metric: str | None = None,
            threshold: float = stats.THRESHOLD, force: bool = False) -> int:  # fmt: skip
    """Prints what changed from A to B. 1 where something got significantly worse, else 0.

    Raises ReportError where the two cannot be compared; `force` lets other machines and other
    conditions pass with a warning.
    """
    a, b = read(path_a), read(path_b)
    printer = tables.Printer()
    why = incomparable(a, b)
    if why and not force:
        raise ReportError(
            f"{a.path} and {b.path} are not comparable: {'; '.join(why)}. Measure both on one "
            "machine with the same workloads, or use --force to compare what they share"
        )
    if not set(a.cells.workloads) & set(b.cells.workloads):
        raise ReportError(f"{a.path} and {b.path} have no workload in common, nor parameters")
    found = changes(a, b, metric, threshold)
    if not found.changes:
        raise ReportError(f"{a.path} and {b.path} have no figures in common: look at their errors")
    revisions = [each.about("revision") or "unknown" for each in (a, b)]
    printer.pairs([("A", f"{a.path}, revision {revisions[0]}"),
                   ("B", f"{b.path}, revision {revisions[1]}")])  # fmt: skip
    for sentence in [*(f"Forced: {each}." for each in why), *found.warnings]:
        printer.text(f"! {sentence}", "yellow")
    printer.table(table(found))
    printer.text()
    printer.text(_summary(found), "bold")
    return 1 if found.regressions else 0


def _summary(found: Changes) -> str:
    if worse := found.regressions:
        listed = ", ".join(
            f"{each.comparison.workload} ({each.allocator}, {each.comparison.metric}, "
            f"{(each.comparison.ratio - 1) * 100:+.2f}%)"
            for each in worse
        )
        return f"Worse in B: {listed}."
    better = sum(change.verdict == FASTER for change in found.changes)
    return f"Nothing got significantly worse; {better} of {len(found.changes)} figures got better."
