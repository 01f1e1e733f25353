#!/usr/bin/env python3
"""Reads a CSV file written by run.py and prints its tables.

    bench/table.py FILE.csv [--markdown]

How figures are made (docs/benchmarks.md says why):

* time, best: the least of all repeats of all rounds; time, median: the median over rounds of each
  process's median repeat; memory: the median over rounds of the peak of resident memory.
* "÷ fastest peer": the peer is chosen on odd rounds and compared on even ones, by the same figure,
  so that the luck that chose it is not counted in its favour. glibc is shown, but is no peer.
"""

import argparse
import csv
import math
import signal
import statistics
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

SUITES = ("micro", "threads")

# The bars: geometric mean of a suite, and the most that a single workload may reach.
GEOMEAN_BAR = 1.00
SINGLE_BAR = 1.20
SINGLE_BARS = {"pair": 1.40}


@dataclass(frozen=True)
class Row:
    """One process: one workload served by one allocator in one round."""

    round: int
    suite: str
    workload: str
    allocator: str
    ns_best: float
    ns_median: float
    rss_kib: int
    error: str


@dataclass(frozen=True)
class Figure:
    """One way to sum up the rows of one workload and allocator."""

    title: str
    field: str
    sum_up: Callable[[Iterable[float]], float]
    unit_per: float = 1.0

    def of(self, rows: Sequence[Row]) -> float | None:
        """The figure in the field's own unit, or None where no row is without error."""
        values = [getattr(row, self.field) for row in rows if not row.error]
        return self.sum_up(values) if values else None


BEST = Figure("Time: ns per operation, best", "ns_best", min)
MEDIAN = Figure("Time: ns per operation, median of rounds", "ns_median", statistics.median)
MEMORY = Figure("Memory: peak resident, MiB", "rss_kib", statistics.median, 1024.0)
FIGURES = (BEST, MEDIAN, MEMORY)


class Results:
    """The rows of one run, with the questions that tables ask of them."""

    def __init__(self, rows: Sequence[Row], candidates: Sequence[str], peers: Sequence[str]):
        self.rows = list(rows)
        self.candidates = list(candidates)
        self.peers = list(peers)
        self.allocators = list(dict.fromkeys(row.allocator for row in self.rows))
        self.workloads = list(dict.fromkeys((row.suite, row.workload) for row in self.rows))
        self._cells: dict[tuple[str, str], list[Row]] = {}
        for row in self.rows:
            self._cells.setdefault((row.workload, row.allocator), []).append(row)
        # A run of a single round has no even rounds: it then serves for both.
        self.split = any(row.round % 2 == 0 for row in self.rows)

    def cell(self, workload: str, allocator: str, parity: int | None = None) -> list[Row]:
        """Rows of one workload and allocator; parity 1 for odd rounds, 0 for even ones."""
        rows = self._cells.get((workload, allocator), [])
        if parity is None or not self.split:
            return rows
        return [row for row in rows if row.round % 2 == parity]

    def fastest_peer(self, workload: str, figure: Figure) -> str | None:
        """The peer with the least figure on odd rounds."""
        found = {peer: figure.of(self.cell(workload, peer, 1)) for peer in self.peers}
        known = {peer: value for peer, value in found.items() if value is not None}
        return min(known, key=lambda peer: known[peer]) if known else None

    def ratio(self, workload: str, allocator: str, figure: Figure) -> tuple[float, str] | None:
        """The allocator ÷ the fastest peer on even rounds, and which peer that is."""
        peer = self.fastest_peer(workload, figure)
        if peer is None:
            return None
        mine = figure.of(self.cell(workload, allocator, 0))
        theirs = figure.of(self.cell(workload, peer, 0))
        if mine is None or theirs is None or theirs == 0:
            return None
        return mine / theirs, peer

    def geomean(self, suite: str | None, allocator: str, figure: Figure) -> float | None:
        """Geometric mean of the ratios of one suite (None: of all workloads)."""
        ratios = [
            found[0]
            for each, workload in self.workloads
            if suite in (None, each) and (found := self.ratio(workload, allocator, figure))
        ]
        if not ratios:
            return None
        return math.exp(statistics.fmean(math.log(ratio) for ratio in ratios))

    def errors(self, allocator: str | None = None) -> list[Row]:
        return [row for row in self.rows if row.error and allocator in (None, row.allocator)]


def load(path: Path) -> tuple[Results, list[str]]:
    """The results in a CSV file, and the lines of its header comment."""
    header: list[str] = []
    with path.open(newline="", encoding="utf-8") as file:
        lines = []
        for line in file:
            if line.startswith("#"):
                header.append(line[1:].strip())
            else:
                lines.append(line)
    roles = {"candidates": [], "peers": []}
    for line in header:
        key, _, value = line.partition(": ")
        if key in roles:
            roles[key] = value.split()
    rows = [
        Row(
            round=int(record["round"]),
            suite=record["suite"],
            workload=record["workload"],
            allocator=record["allocator"],
            ns_best=float(record["ns_best"] or "nan"),
            ns_median=float(record["ns_median"] or "nan"),
            rss_kib=int(record["rss_kib"] or 0),
            error=record["error"],
        )
        for record in csv.DictReader(lines)
    ]
    return Results(rows, roles["candidates"], roles["peers"]), header


def number(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:.0f}" if value >= 1000 else f"{value:.1f}" if value >= 100 else f"{value:.2f}"


def lay_out(head: list[str], body: list[list[str]], markdown: bool) -> str:
    """A table as text or Markdown: the first column to the left, the others to the right."""
    widths = [max(len(row[i]) for row in [head, *body]) for i in range(len(head))]

    def line(cells: list[str]) -> str:
        padded = [
            cell.ljust(width) if i == 0 else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(cells, widths, strict=True))
        ]
        return "| " + " | ".join(padded) + " |" if markdown else "  ".join(padded).rstrip()

    lines = [line(head)]
    if markdown:
        rules = [
            "-" * width if i == 0 else "-" * (width - 1) + ":" for i, width in enumerate(widths)
        ]
        lines.append("| " + " | ".join(rules) + " |")
    lines += [line(row) for row in body]
    return "\n".join(lines)


def figure_table(results: Results, figure: Figure, markdown: bool) -> str:
    """Every allocator's figure per workload, and the candidates ÷ the fastest peer."""
    least = "smallest" if figure is MEMORY else "fastest"
    head = ["workload", *results.allocators, f"{least} peer"]
    head += [f"{candidate} ÷ it" for candidate in results.candidates]
    body = []
    for _, workload in results.workloads:
        row = [workload]
        for allocator in results.allocators:
            value = figure.of(results.cell(workload, allocator))
            row.append(number(None if value is None else value / figure.unit_per))
        row.append(results.fastest_peer(workload, figure) or "–")
        for candidate in results.candidates:
            found = results.ratio(workload, candidate, figure)
            row.append("–" if found is None else f"{found[0]:.2f}")
        body.append(row)
    for suite in SUITES:
        if any(each == suite for each, _ in results.workloads):
            means = [
                results.geomean(suite, allocator, figure)
                for allocator in [*results.allocators, *results.candidates]
            ]
            cells = ["–" if mean is None else f"{mean:.2f}" for mean in means]
            count = len(results.allocators)
            body.append([f"geomean ÷ it, {suite}", *cells[:count], "", *cells[count:]])
    title = f"### {figure.title}" if markdown else figure.title
    return title + "\n\n" + lay_out(head, body, markdown)


def bars(results: Results, candidate: str) -> list[tuple[str, bool]]:
    """What is asked of a candidate, with its figure, and whether it holds."""
    found: list[tuple[str, bool]] = []
    for figure, by in ((BEST, "best"), (MEDIAN, "median")):
        for suite in SUITES:
            mean = results.geomean(suite, candidate, figure)
            if mean is None:
                continue
            found.append(
                (f"{suite}, by {by}: geometric mean {mean:.3f} <= {GEOMEAN_BAR:.2f}",
                 mean <= GEOMEAN_BAR)
            )  # fmt: skip
            if suite != "micro":
                continue
            for each, workload in results.workloads:
                ratio = results.ratio(workload, candidate, figure)
                bar = SINGLE_BARS.get(workload, SINGLE_BAR)
                if each == suite and ratio is not None and ratio[0] > bar:
                    found.append((f"{workload}, by {by}: {ratio[0]:.3f} <= {bar:.2f}", False))
    mean = results.geomean(None, candidate, MEMORY)
    if mean is not None:
        found.append(
            (f"memory: geometric mean {mean:.3f} <= {GEOMEAN_BAR:.2f}", mean <= GEOMEAN_BAR)
        )
    wrong = results.errors(candidate)
    if wrong:
        found.append((f"every row served and checked: {len(wrong)} rows failed", False))
    return found


def report(results: Results, markdown: bool = False) -> str:
    """The whole of what run.py and table.py print."""
    parts = [figure_table(results, figure, markdown) for figure in FIGURES]
    for candidate in results.candidates:
        found = bars(results, candidate)
        if not found:
            continue
        title = f"Bars for {candidate} (÷ fastest peer: chosen on odd rounds, compared on even)"
        lines = [("holds  " if good else "FAILS  ") + text for text, good in found]
        if markdown:
            parts.append(f"### {title}\n\n" + "\n".join(f"- {line}" for line in lines))
        else:
            parts.append(title + "\n\n" + "\n".join(lines))
    if not results.split:
        parts.append("Only one round: the fastest peer is chosen and compared on the same figures.")
    if results.errors():
        lines = [
            f"round {row.round}, {row.workload}, {row.allocator}: {row.error}"
            for row in results.errors()
        ]
        parts.append("Rows that failed\n\n" + "\n".join(lines))
    return "\n\n".join(parts)


def main() -> int:
    parser = argparse.ArgumentParser(description="print the tables of a file written by run.py")
    parser.add_argument("file", type=Path, metavar="FILE.csv")
    parser.add_argument("--markdown", action="store_true", help="as Markdown")
    options = parser.parse_args()
    # So that `| head` ends it quietly.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    try:
        results, header = load(options.file)
    except OSError as error:
        print(f"table.py: {options.file}: {error.strerror}", file=sys.stderr)
        return 1
    except (KeyError, ValueError) as error:
        print(f"table.py: {options.file} was not written by run.py: {error!r}", file=sys.stderr)
        return 1
    if options.markdown:
        print("```\n" + "\n".join(header) + "\n```\n")
    print(report(results, options.markdown))
    return 0


if __name__ == "__main__":
    sys.exit(main())
