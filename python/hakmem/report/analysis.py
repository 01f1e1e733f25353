"""What a report says about one results file, worked out once for terminal and page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import cached_property

from .. import stats
from ..stats import BASELINE, Cells, Comparison, Metric, Noise, Points, Ranking
from .results import ReportError, Results

METRICS = ("time", "memory")
DEFAULT_CANDIDATE = "hakmem"
LATENCIES = ("p50_ns", "p95_ns", "p99_ns")


class Analysis:
    """The questions that tables, plots and page ask of one results file."""

    def __init__(
        self,
        results: Results,
        metric: str | None = None,
        candidate: str = DEFAULT_CANDIDATE,
        threshold: float = stats.THRESHOLD,
    ):
        self.results = results
        self.threshold = threshold
        self.candidate = choose_candidate(results.cells, candidate)
        self.metrics = choose_metrics(metric)
        self._rankings: dict[str, Ranking] = {}
        self._comparisons: dict[tuple[str, str], list[Comparison]] = {}

    @property
    def cells(self) -> Cells:
        return self.results.cells

    @cached_property
    def order(self) -> list[str]:
        """Allocators with the candidate first, others by name, glibc last."""
        return sorted(
            self.cells.allocators,
            key=lambda name: (name != self.candidate, not stats.is_hakmem(name),
                              name == BASELINE, name),
        )  # fmt: skip

    def ranking(self, metric: Metric) -> Ranking:
        if metric.name not in self._rankings:
            self._rankings[metric.name] = stats.geometric_means(self.cells, metric)
        return self._rankings[metric.name]

    def comparisons(self, metric: Metric, other: str = stats.FASTEST_PEER) -> list[Comparison]:
        """The candidate on each workload, judged suite by suite; empty without a candidate."""
        if self.candidate is None or other == self.candidate:
            return []
        known = (metric.name, other)
        if known not in self._comparisons:
            found = stats.compare_by_suite(
                self.cells, metric, self.candidate, other, self.threshold
            )
            self._comparisons[known] = [one for one in found if one.ratio is not None]
        return self._comparisons[known]

    @cached_property
    def points(self) -> list[Points]:
        return stats.points(self.cells, self.metrics)

    @cached_property
    def noise(self) -> Noise:
        timed = next((each for each in self.metrics if each.kind == "time"), self.metrics[0])
        return stats.noise(self.cells, timed, self.results.noise)

    def has(self, column: str) -> list[str]:
        """The workloads of which some allocator has that figure."""
        return [
            workload
            for workload in self.cells.workloads
            if any(self.cells.values(workload, name, column) for name in self.cells.allocators)
        ]

    def verdict_sentences(self) -> list[str]:
        """The outcome in a sentence or two per metric."""
        return [sentence for each in self.metrics for sentence in self._sentences(each)]

    def _sentences(self, metric: Metric) -> list[str]:
        told = []
        ranking = self.ranking(metric)
        if len(ranking.means) > 1:
            told.append(_ranking_sentence(ranking, metric))
        found = self.comparisons(metric)
        if found:
            counted = Counter(one.verdict for one in found)
            listed = ", ".join(f"{count} × {verdict}" for verdict, count in counted.most_common())
            told.append(
                f"{metric.title}: {self.candidate} against the {metric.best} peer of each "
                f"workload: {listed}."
            )
            if counted[stats.TOO_FEW]:
                told.append(self._rounds_sentence(metric, found))
        return told

    def _rounds_sentence(self, metric: Metric, found: Sequence[Comparison]) -> str:
        sizes = Counter(self.cells.workloads[one.workload] for one in found)
        needed = stats.rounds_needed(max(sizes.values()))
        peers = [peer for peer in self.cells.peers if peer != self.candidate]
        total = needed * 2 if len(peers) > 1 else needed
        return (
            f"{metric.title}: a verdict against the {metric.best} peer needs {needed} rounds "
            f"compared, which is {total} rounds in all"
            + (", since odd rounds choose the peer." if total != needed else ".")
        )

    def problems(self) -> list[str]:
        """What a reader must know before any figure: noise, refused rows, what is missing."""
        told = list(self.noise.sentences)
        refused = self.cells.refused()
        if refused:
            names = ", ".join(dict.fromkeys(str(row["allocator"]) for row in refused))
            told.append(
                f"{len(refused)} of {len(self.cells.rows)} rows do not count (an error, or no "
                f"proof of the allocator): {names}. They are listed under “Refused rows”."
            )
        told += [f"Of the file, {remark}." for remark in self.results.remarks]
        told += self._too_little()
        return told

    def _too_little(self) -> list[str]:
        rounds, told = self.results.rounds(), []
        if len(refused := self.cells.refused()) == len(self.cells.rows):
            return [f"No row counts, so there are no figures. The first says: "
                    f"{stats.why_refused(refused[0])}."]  # fmt: skip
        if len(self.cells.allocators) == 1:
            told.append(f"Only {self.cells.allocators[0]} was measured: nothing to compare it with")
        elif self.candidate is None:
            told.append("hakmem was not measured, so there is a ranking but no verdict")
        if rounds < stats.LEAST_ROUNDS:
            least = stats.rounds_needed(1)
            told.append(
                f"Too few rounds ({rounds}): figures without intervals and no verdicts. Run at "
                f"least {least}, better 11"
            )
        for metric in self.metrics:
            gone = self.ranking(metric)
            if gone.workloads_left_out and gone.workloads:
                told.append(
                    f"{metric.title}: {len(gone.workloads_left_out)} workloads are not in the "
                    f"geometric means, since not all have them: {_some(gone.workloads_left_out)}"
                )
            if gone.allocators_left_out:
                told.append(
                    f"{metric.title}: not ranked for want of figures: "
                    f"{_some(gone.allocators_left_out)}"
                )
        return [sentence + "." for sentence in told]


def _some(names: Sequence[str], most: int = 5) -> str:
    listed = ", ".join(names[:most])
    return listed if len(names) <= most else f"{listed} and {len(names) - most} more"


def _ranking_sentence(ranking: Ranking, metric: Metric) -> str:
    first, second = ranking.means[:2]
    text = (
        f"{metric.title}: {first.allocator} is the {metric.best} by geometric mean over "
        f"{len(ranking.workloads)} workloads, {first.ratio:.3f} of {ranking.reference}, before "
        f"{second.allocator} with {second.ratio:.3f}"
    )
    if first.best_share is not None:
        text += f"; it leads in {first.best_share * 100:.0f}% of resamples of the rounds"
    return text + "."


def choose_candidate(cells: Cells, wanted: str) -> str | None:
    """The allocator that verdicts are about; None if the file has no hakmem at all."""
    if wanted in cells.allocators:
        return wanted
    if wanted != DEFAULT_CANDIDATE:
        raise ReportError(f"{wanted} was not measured: choose of {', '.join(cells.allocators)}")
    return next((name for name in cells.allocators if stats.is_hakmem(name)), None)


def choose_metrics(names: str | None) -> list[Metric]:
    """ "time,memory" as metrics; those by default."""
    try:
        asked = [each.strip() for each in names.split(",")] if names else METRICS
        return [stats.metric(each) for each in asked]
    except stats.StatsError as error:
        raise ReportError(str(error)) from None
