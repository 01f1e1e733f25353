"""Ratios, intervals and verdicts: what a results file says, and what it cannot.

Rows are dictionaries of ROW_COLUMNS. A row with an error or without a proof never counts. Figures
are compared within a round, as the log of candidate ÷ other, so that what slows a whole round
down cancels. All is smaller-is-better, and everything random is seeded by what is compared, so
that the same file always gives the same report.
"""

from __future__ import annotations

import math
import warnings
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from scipy import stats

from .model import ROW_COLUMNS

FAMILY_LEVEL = 0.05
INTERVAL_LEVEL = 0.95
# Below, no interval and no test says anything.
LEAST_ROUNDS = 5
# Below, the bias correction of BCa is guesswork.
BCA_ROUNDS = 8
RESAMPLES = 2000
THRESHOLD = 0.01
FASTEST_PEER = "fastest peer"
BASELINE = "glibc"

WIN, LOSS, TIE, EQUAL = "win", "loss", "tie", "equal"
TOO_FEW, NO_DATA = "too few rounds", "no data"

Row = Mapping[str, Any]


class StatsError(Exception):
    """A question that cannot be asked; the text says what to do."""


# --- metrics -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Metric:
    """A figure of a row. `sources`: sums of columns, of which the first that is there is used."""

    name: str
    title: str
    kind: str
    sources: tuple[tuple[str, ...], ...]

    @property
    def best(self) -> str:
        return {"time": "fastest", "memory": "smallest"}.get(self.kind, "least")


_NAMED = {
    "time": Metric("time", "Time", "time", (("ns_per_op",), ("wall_s",))),
    "memory": Metric("memory", "Peak memory", "memory", (("peak_rss_kib",), ("peak_pss_kib",))),
    "cpu_s": Metric("cpu_s", "Processor time", "time", (("user_s", "system_s"),)),
}
_TITLES = {
    "wall_s": "Wall-clock time",
    "ns_per_op": "Time per operation",
    "p50_ns": "Latency, P50",
    "p95_ns": "Latency, P95",
    "p99_ns": "Latency, P99",
    "minor_faults": "Minor page faults",
    "growth_kib": "Growth",
    "instructions": "Instructions",
}
_NOT_FIGURES = {
    "round", "position", "suite", "workload", "params", "allocator", "seed", "error", "series",
    "histogram", "proof", "processes",
}  # fmt: skip
_COUNTS = [name for name in ROW_COLUMNS if name not in _NOT_FIGURES]


def metric(name: str | Metric) -> Metric:
    """The metric of that name: "time", "memory", "cpu_s" or a column of the results file."""
    if isinstance(name, Metric):
        return name
    if name in ("user_s+system_s", "cpu"):
        name = "cpu_s"
    if name in _NAMED:
        return _NAMED[name]
    if name not in _COUNTS:
        known = ", ".join([*_NAMED, *_COUNTS])
        raise StatsError(f"there is no metric {name!r}: choose one of {known}")
    kind = "time" if name.endswith(("_s", "_ns")) or name.startswith("ns_") else "count"
    if name.endswith("_kib"):
        kind = "memory"
    return Metric(name, _TITLES.get(name, name), kind, ((name,),))


def number(row: Row, column: str) -> float | None:
    """A cell as a number; None where it is empty or is none."""
    text = row.get(column)
    if text is None or text == "":
        return None
    try:
        value = float(text)
    except (TypeError, ValueError):
        return None
    return value if math.isfinite(value) else None


def counts(row: Row) -> bool:
    """Whether the row's figures are the allocator's: no error, and a proof."""
    return not row.get("error") and bool(row.get("proof"))


def key_of(row: Row) -> str:
    """What identifies a workload: its name and parameters."""
    return f"{row.get('workload', '')} {row.get('params') or ''}".strip()


def is_hakmem(allocator: str) -> bool:
    return allocator.partition("-")[0] == "hakmem"


class Cells:
    """The rows of one results file by workload, allocator and round."""

    def __init__(self, rows: Iterable[Row]):
        self.rows = list(rows)
        self.workloads: dict[str, str] = {}
        self.allocators: list[str] = []
        self._rows: dict[tuple[str, str], dict[int, Row]] = {}
        for row in self.rows:
            key, allocator = key_of(row), str(row.get("allocator", ""))
            self.workloads.setdefault(key, str(row.get("suite") or ""))
            if allocator not in self.allocators:
                self.allocators.append(allocator)
            # A later row of the same round stands for a run that was repeated.
            self._rows.setdefault((key, allocator), {})[int(number(row, "round") or 0)] = row
        self._values: dict[tuple[str, str, str], dict[int, float]] = {}
        self._sources: dict[tuple[str, str], tuple[str, ...] | None] = {}

    @classmethod
    def of(cls, rows: Cells | Iterable[Row]) -> Cells:
        return rows if isinstance(rows, Cells) else cls(rows)

    @property
    def peers(self) -> list[str]:
        """Those that a candidate is measured against; the C library's only if it is alone."""
        others = [name for name in self.allocators if not is_hakmem(name)]
        return [name for name in others if name != BASELINE] or others

    def refused(self) -> list[Row]:
        return [row for row in self.rows if not counts(row)]

    def good(self, workload: str, allocator: str) -> dict[int, Row]:
        """The rows that count, by round."""
        found = self._rows.get((workload, allocator), {})
        return {number: row for number, row in sorted(found.items()) if counts(row)}

    def source(self, workload: str, which: str | Metric) -> tuple[str, ...] | None:
        """The columns that the metric is read from for this workload, the same for all."""
        wanted = metric(which)
        known = (workload, wanted.name)
        if known not in self._sources:
            rows = [row for name in self.allocators for row in self.good(workload, name).values()]
            sources = wanted.sources
            if wanted.name == "memory" and any((number(row, "processes") or 0) > 1 for row in rows):
                # Pages that processes share are counted once only in proportional set size.
                sources = sources[::-1]
            has = [
                (source, sum(all(number(row, c) is not None for c in source) for row in rows))
                for source in sources
            ]
            full = [source for source, found in has if rows and found == len(rows)]
            some = [source for source, found in has if found]
            self._sources[known] = (full or some or [None])[0]
        return self._sources[known]

    def values(self, workload: str, allocator: str, which: str | Metric) -> dict[int, float]:
        """The figure of each round in which it is known."""
        wanted = metric(which)
        known = (workload, allocator, wanted.name)
        if known not in self._values:
            source = self.source(workload, wanted)
            found = {}
            for round_, row in self.good(workload, allocator).items() if source else ():
                parts = [number(row, column) for column in source]
                if None not in parts:
                    found[round_] = float(sum(parts))
            self._values[known] = found
        return self._values[known]

    def median(self, workload: str, allocator: str, which: str | Metric) -> float | None:
        found = self.values(workload, allocator, which)
        return float(np.median(list(found.values()))) if found else None


Rows = Cells | Iterable[Row]


# --- one comparison ----------------------------------------------------------------------------


@dataclass(frozen=True)
class Comparison:
    """candidate ÷ other on one workload. Below 1 the candidate is better."""

    workload: str
    suite: str
    metric: str
    candidate: str
    other: str
    rounds: int
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    method: str = ""
    p: float | None = None
    p_family: float | None = None
    verdict: str = NO_DATA
    note: str = ""


def seed_of(*parts: object) -> np.random.Generator:
    """The same randomness for the same question, whatever was asked before it."""
    return np.random.default_rng(zlib.crc32("|".join(map(str, parts)).encode()))


def log_ratios(cells: Cells, workload: str, which: str | Metric, candidate: str, other: str,
               parity: int | None = None) -> np.ndarray:  # fmt: skip
    """log(candidate ÷ other) of each round that has both; parity 1: odd rounds, 0: even ones."""
    mine = cells.values(workload, candidate, which)
    theirs = cells.values(workload, other, which)
    rounds = [
        each
        for each in sorted(mine.keys() & theirs.keys())
        if (parity is None or each % 2 == parity) and mine[each] > 0 and theirs[each] > 0
    ]
    # Rounded, so that ratios that are equal but for the last bit are ties to the rank test.
    return np.round([math.log(mine[each] / theirs[each]) for each in rounds], 12)


def interval(logs: np.ndarray, rng: np.random.Generator) -> tuple[float, float, str]:
    """Bootstrap interval of the median, and how it was made: BCa where that is defined."""
    if np.ptp(logs) == 0:
        return float(logs[0]), float(logs[0]), "all alike"
    methods = ("BCa", "percentile") if len(logs) >= BCA_ROUNDS else ("percentile",)
    for method in methods:
        with warnings.catch_warnings():
            # BCa divides by zero where the jackknife does not vary; the percentile then serves.
            warnings.simplefilter("ignore")
            found = stats.bootstrap(
                (logs,), np.median, n_resamples=RESAMPLES, confidence_level=INTERVAL_LEVEL,
                method=method, vectorized=True, rng=rng,
            ).confidence_interval  # fmt: skip
        if np.isfinite(found.low) and np.isfinite(found.high):
            break
    return float(found.low), float(found.high), method


def signed_rank_p(differences: Sequence[float] | np.ndarray) -> float:
    """Exact two-sided p of Wilcoxon's signed-rank test, by all flips of signs.

    Ties share their ranks, and zeros are ranked but not flipped (Pratt 1959), so that it is exact
    for figures that come in steps, such as KiB.
    """
    values = np.asarray(differences, dtype=float)
    ranks = np.rint(2 * stats.rankdata(np.abs(values))).astype(int)
    ranks, positive = ranks[values != 0], values[values != 0] > 0
    if len(ranks) == 0:
        return 1.0
    chance = np.zeros(ranks.sum() + 1)
    chance[0] = 1.0
    for rank in ranks:
        shifted = np.zeros_like(chance)
        shifted[rank:] = chance[:-rank]
        chance = (chance + shifted) / 2
    seen = int(ranks[positive].sum())
    tail = min(seen, len(chance) - 1 - seen)
    return float(min(1.0, 2 * chance[: tail + 1].sum()))


def holm(ps: Sequence[float]) -> list[float]:
    """Holm's adjusted p-values: each at most the level keeps the family at that level."""
    adjusted = [1.0] * len(ps)
    most = 0.0
    for done, index in enumerate(sorted(range(len(ps)), key=lambda each: ps[each])):
        most = max(most, min(1.0, ps[index] * (len(ps) - done)))
        adjusted[index] = most
    return adjusted


def rounds_needed(family: int) -> int:
    """The fewest rounds compared with which any member of such a family can get a verdict."""
    return max(LEAST_ROUNDS, 1 + math.ceil(math.log2(max(family, 1) / FAMILY_LEVEL)))


def fastest_peer(
    cells: Cells, workload: str, which: str | Metric, candidate: str = ""
) -> str | None:
    """The peer with the least median on odd rounds, so that even rounds judge without its luck."""
    found = {}
    for peer in cells.peers:
        values = cells.values(workload, peer, which)
        odd = [value for round_, value in values.items() if round_ % 2 == 1]
        if odd and peer != candidate:
            found[peer] = float(np.median(odd))
    return min(found, key=lambda peer: found[peer]) if found else None


def measure(logs: np.ndarray, comparison: Comparison) -> Comparison:
    """The comparison with its ratio, interval and p, and no verdict yet."""
    if len(logs) == 0:
        return replace(comparison, rounds=0, note="no round in which both were measured")
    found = replace(comparison, rounds=len(logs), ratio=float(np.exp(np.median(logs))))
    if len(logs) < LEAST_ROUNDS:
        return replace(found, verdict=TOO_FEW)
    rng = seed_of(found.workload, found.metric, found.candidate, found.other)
    low, high, method = interval(logs, rng)
    return replace(
        found, low=math.exp(low), high=math.exp(high), method=method, p=signed_rank_p(logs)
    )


def judge(found: Sequence[Comparison], threshold: float = THRESHOLD) -> list[Comparison]:
    """Gives each its verdict, with all that have a p as one family."""
    family = [one for one in found if one.p is not None]
    adjusted = iter(holm([one.p for one in family]))
    needed = rounds_needed(len(family))
    return [
        one if one.p is None else _verdict(one, next(adjusted), needed, threshold) for one in found
    ]


def _verdict(one: Comparison, p_family: float, needed: int, threshold: float) -> Comparison:
    told = p_family <= FAMILY_LEVEL
    note = ""
    if 1 - threshold <= one.low and one.high <= 1 + threshold:
        verdict = EQUAL
    elif told and one.high < 1:
        verdict = WIN
    elif told and one.low > 1:
        verdict = LOSS
    elif one.rounds < needed:
        verdict, note = TOO_FEW, f"{one.rounds} of the {needed} rounds that a verdict needs"
    else:
        verdict = TIE
    return replace(one, p_family=p_family, verdict=verdict, note=note)


def compare(rows: Rows, metric: str | Metric, candidate: str, other: str = FASTEST_PEER,
            workloads: Sequence[str] | None = None,
            threshold: float = THRESHOLD) -> list[Comparison]:  # fmt: skip
    """candidate ÷ other on each workload, judged as one family.

    `other` is an allocator, or FASTEST_PEER: for each workload the peer that was best on odd
    rounds, compared on even ones. With a single peer there is no choice, and all rounds serve.
    """
    cells, which = Cells.of(rows), _metric(metric)
    found = []
    for workload in cells.workloads if workloads is None else workloads:
        against, parity = other, None
        if other == FASTEST_PEER:
            against = fastest_peer(cells, workload, which, candidate) or ""
            parity = 0 if _has_choice(cells, candidate) else None
        blank = Comparison(
            workload, cells.workloads.get(workload, ""), which.name, candidate, against, 0
        )
        if not against:
            found.append(replace(blank, note="no peer was measured"))
            continue
        found.append(measure(log_ratios(cells, workload, which, candidate, against, parity), blank))
    return judge(found, threshold)


def _has_choice(cells: Cells, candidate: str) -> bool:
    """Whether luck may have a say in which peer is the fastest, and there are rounds to undo it."""
    even = any((number(row, "round") or 0) % 2 == 0 for row in cells.rows)
    return even and sum(peer != candidate for peer in cells.peers) > 1


_metric = metric  # `metric` is a parameter's name above.


def compare_by_suite(rows: Rows, metric: str | Metric, candidate: str, other: str = FASTEST_PEER,
                     threshold: float = THRESHOLD) -> list[Comparison]:  # fmt: skip
    """As compare(), with the workloads of each suite as a family of their own."""
    cells = Cells.of(rows)
    found = []
    for suite in dict.fromkeys(cells.workloads.values()):
        members = [workload for workload, each in cells.workloads.items() if each == suite]
        found += compare(cells, metric, candidate, other, members, threshold)
    return found


# --- over all workloads ------------------------------------------------------------------------


@dataclass(frozen=True)
class Mean:
    """An allocator's geometric mean over workloads, ÷ that of the ranking's reference."""

    allocator: str
    ratio: float
    low: float | None
    high: float | None
    best_share: float | None


@dataclass(frozen=True)
class Ranking:
    metric: str
    reference: str
    means: tuple[Mean, ...] = ()
    workloads: tuple[str, ...] = ()
    workloads_left_out: tuple[str, ...] = ()
    allocators_left_out: tuple[str, ...] = ()

    def of(self, allocator: str) -> Mean | None:
        return next((mean for mean in self.means if mean.allocator == allocator), None)


def reference_of(cells: Cells) -> str:
    """What ratios are shown against: glibc, which everyone has, or else the first."""
    if BASELINE in cells.allocators:
        return BASELINE
    return cells.allocators[0] if cells.allocators else ""


def _complete(cells: Cells, which: Metric, names: Sequence[str]) -> tuple[list[str], list[str]]:
    """The allocators and workloads such that each of those has a figure on each of these."""

    def has(workload: str, name: str) -> bool:
        return any(value > 0 for value in cells.values(workload, name, which).values())

    asked = [each for each in names if any(has(each, name) for name in cells.allocators)]
    # One that fails everywhere must not leave the others without a mean.
    kept = [name for name in cells.allocators if sum(has(w, name) for w in asked) * 2 > len(asked)]
    return kept, [each for each in asked if all(has(each, name) for name in kept)]


def geometric_means(rows: Rows, metric: str | Metric, workloads: Sequence[str] | None = None,
                    reference: str | None = None) -> Ranking:  # fmt: skip
    """All allocators by geometric mean of ratios to the reference, best first.

    Intervals are of the rounds' luck only: rounds are resampled, all workloads together, and the
    workloads stay what they are. A workload that an allocator failed is left out for all.
    """
    cells, which = Cells.of(rows), _metric(metric)
    names = list(cells.workloads if workloads is None else workloads)
    allocators, complete = _complete(cells, which, names)
    base = reference or reference_of(cells)
    if base not in allocators:
        base = allocators[0] if allocators else base
    left_out = tuple(each for each in names if each not in complete)
    gone = tuple(name for name in cells.allocators if name not in allocators)
    if not complete:
        return Ranking(which.name, base, (), (), left_out, gone)
    point, resampled = _resampled_means(cells, which, complete, allocators, base)
    shares = _best_shares(resampled) if resampled is not None else None
    means = []
    for index, name in enumerate(allocators):
        low = high = share = None
        if resampled is not None:
            tails = [(1 - INTERVAL_LEVEL) / 2, (1 + INTERVAL_LEVEL) / 2]
            low, high = (float(x) for x in np.exp(np.quantile(resampled[:, index], tails)))
            share = float(shares[index])
        means.append(Mean(name, float(np.exp(point[index])), low, high, share))
    means.sort(key=lambda mean: mean.ratio)
    return Ranking(which.name, base, tuple(means), tuple(complete), left_out, gone)


def _resampled_means(cells: Cells, which: Metric, workloads: Sequence[str],
                     allocators: Sequence[str], base: str
                     ) -> tuple[np.ndarray, np.ndarray | None]:  # fmt: skip
    """Mean over workloads of the median log-ratio: as measured, and per resample of rounds."""
    tables = [_log_table(cells, which, workload, allocators, base) for workload in workloads]
    point = np.mean([_nan_median(table, 0) for table in tables], axis=0)
    rounds = min(len(table) for table in tables)
    if rounds < LEAST_ROUNDS:
        return point, None
    rng = seed_of(which.name, base, *workloads)
    # Where all have the same rounds, a round that was bad for one is bad for all in a resample.
    draws = {n: rng.integers(0, n, (RESAMPLES, n)) for n in {len(table) for table in tables}}
    total = np.zeros((RESAMPLES, len(allocators)))
    for table in tables:
        medians = _nan_median(table[draws[len(table)]], 1)
        total += np.where(np.isnan(medians), _nan_median(table, 0), medians)
    return point, total / len(tables)


def _log_table(cells: Cells, which: Metric, workload: str, allocators: Sequence[str],
               base: str) -> np.ndarray:  # fmt: skip
    """Rounds by allocators: log of the figure ÷ the reference's; NaN where one is missing."""
    reference = cells.values(workload, base, which)
    rounds = [each for each, value in sorted(reference.items()) if value > 0]
    table = np.full((len(rounds), len(allocators)), np.nan)
    for column, name in enumerate(allocators):
        values = cells.values(workload, name, which)
        for line, each in enumerate(rounds):
            if values.get(each, 0) > 0:
                table[line, column] = math.log(values[each] / reference[each])
    for column in range(len(allocators)):
        if np.isnan(table[:, column]).all():
            # Never in the same round: medians over what rounds there are must do.
            mine = cells.median(workload, allocators[column], which)
            table[:, column] = math.log(mine / float(np.median([reference[r] for r in rounds])))
    return table


def _nan_median(values: np.ndarray, axis: int) -> np.ndarray:
    if not np.isnan(values).any():
        return np.median(values, axis=axis)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return np.nanmedian(values, axis=axis)


def _best_shares(resampled: np.ndarray) -> np.ndarray:
    """How often each column is the least; those that tie share."""
    best = resampled == resampled.min(axis=1, keepdims=True)
    return (best / best.sum(axis=1, keepdims=True)).mean(axis=0)


@dataclass(frozen=True)
class Points:
    allocator: str
    by_metric: dict[str, float]
    total: float
    most: float


def points(rows: Rows, metrics: Sequence[str | Metric] = ("time", "memory"),
           workloads: Sequence[str] | None = None) -> list[Points]:  # fmt: skip
    """A league: of n allocators the best of a workload gets n points, the last gets 1.

    Ties share, and one without a figure gets none.
    """
    cells = Cells.of(rows)
    names = cells.workloads if workloads is None else workloads
    size = len(cells.allocators)
    table: dict[str, dict[str, float]] = {name: {} for name in cells.allocators}
    most = 0
    for each in map(_metric, metrics):
        for workload in names:
            found = {name: cells.median(workload, name, each) for name in cells.allocators}
            known = {name: value for name, value in found.items() if value is not None}
            if not known:
                continue
            most += size
            ranks = stats.rankdata(list(known.values()))
            for name, rank in zip(known, ranks, strict=True):
                table[name][each.name] = table[name].get(each.name, 0.0) + size + 1 - float(rank)
    result = [Points(name, won, sum(won.values()), most) for name, won in table.items()]
    return sorted(result, key=lambda one: -one.total)


# --- one's own program -------------------------------------------------------------------------


@dataclass(frozen=True)
class Place:
    """An allocator in the ranking of one workload. `against_best`: it ÷ the best."""

    allocator: str
    median: float
    against_best: Comparison | None
    best_share: float | None


@dataclass(frozen=True)
class OwnRanking:
    """Which allocator serves one workload best. `told`: it beats each of the others."""

    metric: str
    source: str
    places: tuple[Place, ...] = ()
    best: str = ""
    over_next: Comparison | None = None
    over_glibc: Comparison | None = None
    confidence: float | None = None
    told: bool = False
    alike: tuple[str, ...] = ()
    sentence: str = ""


@dataclass(frozen=True)
class OwnVerdict:
    workload: str
    rounds: int
    time: OwnRanking
    memory: OwnRanking
    refused: dict[str, list[str]] = field(default_factory=dict)

    @property
    def sentences(self) -> list[str]:
        return [ranking.sentence for ranking in (self.time, self.memory) if ranking.sentence]


def verdict_own(rows: Rows, time: str = "time", memory: str = "memory",
                threshold: float = THRESHOLD) -> OwnVerdict:  # fmt: skip
    """Which allocator serves the one workload in these rows best, by how much, and how surely."""
    cells = Cells.of(rows)
    if len(cells.workloads) > 1:
        names = ", ".join(cells.workloads)
        raise StatsError(f"a verdict is about one workload, and there are {names}")
    workload = next(iter(cells.workloads), "")
    refused: dict[str, list[str]] = {}
    for row in cells.refused():
        refused.setdefault(str(row.get("allocator")), []).append(why_refused(row))
    rounds = max((len(cells.good(workload, name)) for name in cells.allocators), default=0)
    rankings = [_rank_own(cells, workload, _metric(each), threshold) for each in (time, memory)]
    return OwnVerdict(workload, rounds, *rankings, refused)


def why_refused(row: Row) -> str:
    return str(row.get("error") or "no proof of which allocator served it")


def _rank_own(cells: Cells, workload: str, which: Metric, threshold: float) -> OwnRanking:
    medians = {name: cells.median(workload, name, which) for name in cells.allocators}
    known = {name: value for name, value in medians.items() if value is not None and value > 0}
    source = "+".join(cells.source(workload, which) or ())
    result = OwnRanking(which.name, source)
    if not known:
        return replace(result, sentence=f"{which.title}: no allocator has a figure that counts.")
    shares = _own_shares(cells, workload, which, list(known))
    order = sorted(known, key=lambda name: known[name])
    best, others = order[0], order[1:]

    def against(one: str, other: str) -> Comparison:
        # A family of one: "best" is only said where it beats each of the others, and a claim that
        # all must uphold needs no correction.
        return compare(cells, which, one, other, [workload], threshold)[0]

    places = [Place(best, known[best], None, shares.get(best))]
    places += [Place(x, known[x], against(x, best), shares.get(x)) for x in others]
    beaten = {x: against(best, x) for x in others}
    alike = tuple(x for x in others if beaten[x].verdict != WIN)
    result = replace(
        result, places=tuple(places), best=best, alike=alike, confidence=shares.get(best),
        over_next=beaten[others[0]] if others else None, over_glibc=beaten.get(BASELINE),
        told=bool(others) and not alike,
    )  # fmt: skip
    return replace(result, sentence=_own_sentence(result, which))


def _own_shares(
    cells: Cells, workload: str, which: Metric, names: Sequence[str]
) -> dict[str, float]:
    """Share of resamples of the rounds in which each has the least median."""
    values = {name: cells.values(workload, name, which) for name in names}
    rounds = sorted(set.intersection(*(set(found) for found in values.values())))
    if len(rounds) < LEAST_ROUNDS:
        return {}
    table = np.array([[values[name][each] for name in names] for each in rounds])
    draws = seed_of(workload, which.name, *names).integers(0, len(rounds), (RESAMPLES, len(rounds)))
    shares = _best_shares(np.median(table[draws], axis=1))
    return {name: float(share) for name, share in zip(names, shares, strict=True)}


def percent_less(one: Comparison) -> str:
    """ "4.2% less (3.1% to 5.0%)" for a ratio of 0.958; "more" above 1."""
    word = "less" if one.ratio <= 1 else "more"
    text = f"{abs(1 - one.ratio) * 100:.1f}% {word}"
    if one.low is None:
        return text
    ends = [(1 - end) * 100 * (1 if word == "less" else -1) for end in (one.high, one.low)]
    return f"{text} ({min(ends):.1f}% to {max(ends):.1f}%)"


def _own_sentence(found: OwnRanking, which: Metric) -> str:
    thing = {"time": "time", "memory": "memory"}.get(which.kind, which.name)
    if found.over_next is None:
        return f"{which.title}: only {found.best} has figures, so there is nothing to compare."
    rounds = min(place.against_best.rounds for place in found.places[1:])
    if rounds < rounds_needed(1):
        return (
            f"{which.title}: too few rounds ({rounds}) for a verdict; {rounds_needed(1)} are "
            f"needed, 11 are better. So far {found.best} is ahead."
        )
    sure = ""
    if found.confidence is not None:
        sure = f" It is the {which.best} in {found.confidence * 100:.1f}% of resamples."
    if not found.told:
        return (
            f"{which.title}: no difference can be told between {found.best} and "
            f"{_listed(found.alike)}.{sure}"
        )
    text = f"{which.title}: {found.best} is the {which.best}, with {percent_less(found.over_next)} "
    text += f"{thing} than {found.over_next.other}, the next"
    if found.over_glibc and found.over_glibc.other != found.over_next.other:
        text += f", and {percent_less(found.over_glibc)} than {BASELINE}"
    return text + "." + sure


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else ", ".join(names[:-1]) + " and " + names[-1]


# --- noise -------------------------------------------------------------------------------------

# What a quiet machine stays below; above, small differences drown.
NOISY_SPREAD = 0.05
NOISY_STEAL = 0.01
NOISY_DRIFT = 0.02
NOISY_CALIBRATION = 0.05


@dataclass(frozen=True)
class CellNoise:
    """How much one figure varies from round to round, as shares of its median."""

    workload: str
    allocator: str
    rounds: int
    median: float
    cv: float
    mad: float


@dataclass(frozen=True)
class Noise:
    metric: str
    cells: tuple[CellNoise, ...]
    spread: float | None
    drift: float | None
    drift_rho: float | None
    drift_p: float | None
    calibration: float | None
    steal: float | None
    sentences: tuple[str, ...]


def noise(rows: Rows, metric: str | Metric = "time", records: Sequence[Mapping] = ()) -> Noise:
    """How steady the figures are. `records`: the file's `# noise` lines."""
    cells, which = Cells.of(rows), _metric(metric)
    found = [
        _cell_noise(cells, workload, name, which)
        for workload in cells.workloads
        for name in cells.allocators
        if sum(value > 0 for value in cells.values(workload, name, which).values()) > 1
    ]
    spread = float(np.median([cell.mad for cell in found])) if found else None
    drift, rho, p = _drift(cells, which)
    calibration, steal = _calibration(records), _steal(records)
    told = _noise_sentences(which, spread, drift, p, calibration, steal)
    return Noise(which.name, tuple(found), spread, drift, rho, p, calibration, steal, told)


def _cell_noise(cells: Cells, workload: str, name: str, which: Metric) -> CellNoise:
    values = np.array([v for v in cells.values(workload, name, which).values() if v > 0])
    middle = float(np.median(values))
    mad = float(stats.median_abs_deviation(values, scale="normal"))
    cv = float(values.std(ddof=1) / values.mean())
    return CellNoise(workload, name, len(values), middle, cv, mad / middle)


def _drift(cells: Cells, which: Metric) -> tuple[float | None, float | None, float | None]:
    """By how much rounds got slower from first to last, and Spearman's rho and p of it.

    All cells together, each against its own median: a machine that slows down slows all.
    """
    by_round: dict[int, list[float]] = {}
    for workload in cells.workloads:
        for name in cells.allocators:
            values = {r: v for r, v in cells.values(workload, name, which).items() if v > 0}
            middle = np.median(list(values.values())) if values else 1.0
            for each, value in values.items():
                by_round.setdefault(each, []).append(math.log(value / middle))
    if len(by_round) < LEAST_ROUNDS:
        return None, None, None
    rounds = np.array(sorted(by_round), dtype=float)
    level = np.array([np.mean(by_round[each]) for each in rounds])
    if np.ptp(level) == 0:
        return 0.0, 0.0, 1.0
    found = stats.spearmanr(rounds, level)
    slope = stats.theilslopes(level, rounds).slope
    drift = math.expm1(slope * float(np.ptp(rounds)))
    return float(drift), float(found.statistic), float(found.pvalue)


def _noted(records: Sequence[Mapping], name: str) -> list[float]:
    """What the runner noted under a name, of every round that has it."""
    values = [record.get(name) for record in records]
    return [float(each) for each in values if isinstance(each, (int, float))]


def _calibration(records: Sequence[Mapping]) -> float | None:
    """How far a fixed loop of arithmetic varied, within a round or from round to round."""
    loops, spreads = _noted(records, "loop_ms"), _noted(records, "spread")
    found = [float(np.median(spreads))] if spreads else []
    if len(loops) > 1 and min(loops) > 0:
        found.append(max(loops) / min(loops) - 1)
    return max(found, default=None)


def _steal(records: Sequence[Mapping]) -> float | None:
    """The share of processor time that the host of a virtual machine took."""
    shares = _noted(records, "steal")
    return float(np.mean(shares)) if shares else None


def _noise_sentences(
    which: Metric,
    spread: float | None,
    drift: float | None,
    p: float | None,
    calibration: float | None,
    steal: float | None,
) -> tuple[str, ...]:
    told = []
    if spread is not None and spread > NOISY_SPREAD:
        told.append(
            f"Noisy: the typical figure ({which.name}) varies by {spread * 100:.1f}% from round to "
            f"round. Close other programs, fix the processor's frequency, or run more rounds."
        )
    if drift is not None and p is not None and p < 0.01 and abs(drift) > NOISY_DRIFT:
        way = "slower" if drift > 0 else "faster"
        told.append(
            f"Drift: rounds got {way} by {abs(drift) * 100:.1f}% from the first to the last. "
            "Ratios within a round hold; absolute figures do not. Let the machine warm up, or cool."
        )
    if calibration is not None and calibration > NOISY_CALIBRATION:
        told.append(
            f"The machine is unsteady: a fixed loop took up to {calibration * 100:.0f}% longer at "
            "one time than at another. Run it when the machine is idle."
        )
    if steal is not None and steal > NOISY_STEAL:
        told.append(
            f"The host of this virtual machine took {steal * 100:.1f}% of processor time. "
            "Use a machine of your own, or more rounds."
        )
    return tuple(told)
