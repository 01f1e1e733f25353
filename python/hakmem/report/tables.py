"""The tables of a report, and how the terminal shows them."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TextIO

from rich.console import Console
from rich.markup import escape
from rich.table import Table as RichTable

from .. import stats
from ..stats import BASELINE, Metric
from . import figures
from .analysis import LATENCIES, Analysis

VERDICT_STYLES = {stats.WIN: "bold green", stats.LOSS: "bold red"}
HEADER = (
    ("machine", "Machine"), ("cpu", "Processor"), ("cpus", "Processors"), ("kernel", "Kernel"),
    ("huge_pages", "Transparent huge pages"), ("governor", "Frequency governor"),
    ("virtual", "Virtual machine"), ("memory_kib", "Memory"), ("load_before", "Load before"),
    ("date", "Date"), ("revision", "Revision"), ("compiler", "Compiler"), ("flags", "Flags"),
    ("settings", "Settings"), ("command", "Command"),
)  # fmt: skip


@dataclass(frozen=True)
class Table:
    """A title, a head and a body of text. `left`: how many columns are text."""

    title: str
    head: tuple[str, ...]
    body: tuple[tuple[str, ...], ...]
    note: str = ""
    left: int = 1


def header(analysis: Analysis) -> list[tuple[str, str]]:
    """Machine, kernel, revision and command, and the versions of what was measured."""
    results = analysis.results
    found = [(title, results.about(name)) for name, title in HEADER]
    memory = results.meta.get("memory_kib")
    found = [
        (title, figures.kib(float(memory)) if title == "Memory" and memory else text)
        for title, text in found
    ]
    versions = [
        f"{name} {results.allocator(name).get('version') or ''}".strip() for name in analysis.order
    ]
    counted = f"{results.rounds()}"
    count = len(results.rows) - len(analysis.cells.refused())
    rows = f"{len(results.rows)}, of which {count} count"
    found += [("Allocators", ", ".join(versions)), ("Rounds", counted), ("Rows", rows)]
    return [(title, text) for title, text in found if text]


def ranking(analysis: Analysis, metric: Metric) -> Table | None:
    found = analysis.ranking(metric)
    if not found.means:
        return None
    body = tuple(
        (str(place), mean.allocator, *figures.of_mean(mean))
        for place, mean in enumerate(found.means, 1)
    )
    return Table(
        f"{metric.title}: geometric mean over {len(found.workloads)} workloads",
        ("place", "allocator", f"÷ {found.reference}", "95% interval", "is best in"),
        body,
        f"Less is better. “Is best in”: share of resamples of the rounds in which it is the "
        f"{metric.best}.",
        left=2,
    )


def points(analysis: Analysis) -> Table | None:
    found = analysis.points
    if len(found) < 2 or not found[0].most:
        return None
    names = [each for each in analysis.metrics if any(each.name in one.by_metric for one in found)]
    body = tuple(
        (
            one.allocator,
            *(figures.plain(one.by_metric.get(each.name, 0.0)) for each in names),
            figures.plain(one.total),
            figures.percent(one.total / one.most),
        )
        for one in found
    )
    return Table(
        "Points",
        ("allocator", *(each.title.lower() for each in names), "points", "of the most"),
        body,
        f"As in a league: the best of {len(found)} on a workload gets {len(found)} points, the "
        "last gets 1; ties share.",
    )


def workloads(analysis: Analysis, metric: Metric) -> Table | None:
    """The candidate on each workload ÷ the best peer, and ÷ glibc."""
    found = analysis.comparisons(metric)
    if not found:
        return None
    baseline = {}
    if any(one.other != BASELINE for one in found) and BASELINE in analysis.cells.allocators:
        baseline = {one.workload: one for one in analysis.comparisons(metric, BASELINE)}
    head = ["workload", analysis.candidate, f"{metric.best} peer", "÷ it", "95% interval",
            "verdict"]  # fmt: skip
    head += [f"÷ {BASELINE}", "95% interval", "verdict"] if baseline else []
    body = []
    for one in found:
        value = analysis.cells.median(one.workload, analysis.candidate, metric)
        source = analysis.cells.source(one.workload, metric)
        row = [one.workload, figures.with_unit(value, source), *figures.of_comparison(one)]
        if baseline:
            other = baseline.get(one.workload)
            row += figures.of_comparison(other)[1:] if other else [figures.DASH] * 3
        body.append(tuple(row))
    note = (
        f"Median of rounds. The {metric.best} peer of a workload is chosen on odd rounds and "
        "compared on even ones; the workloads of a suite are one family (Holm, 5%)."
    )
    return Table(f"{metric.title}: {analysis.candidate}", tuple(head), tuple(body), note)


def medians(analysis: Analysis, metric: Metric, title: str = "") -> Table | None:
    """Every allocator's median on each workload that has the figure."""
    body = []
    for workload in analysis.cells.workloads:
        found = {n: analysis.cells.median(workload, n, metric) for n in analysis.order}
        if all(value is None for value in found.values()):
            continue
        source = analysis.cells.source(workload, metric)
        body.append((workload, *(figures.with_unit(v, source) for v in found.values())))
    if not body:
        return None
    return Table(title or f"{metric.title}: medians of rounds", ("workload", *analysis.order),
                 tuple(body))  # fmt: skip


def extras(analysis: Analysis) -> list[Table]:
    """Latency, faults and growth, where there are any."""
    names = {"minor_faults": "Minor page faults", "growth_kib": "Growth of resident memory"}
    asked = [(name, "") for name in LATENCIES] + list(names.items())
    found = [medians(analysis, stats.metric(name), title) for name, title in asked]
    return [table for table in found if table is not None]


def refused(analysis: Analysis) -> Table | None:
    found = analysis.results.refused()
    if not found:
        return None
    body = tuple((where, why, str(count)) for where, count, why in found)
    return Table("Refused rows", ("workload, allocator", "why", "rows"), body,
                 "These count nowhere.", left=2)  # fmt: skip


def spreads(analysis: Analysis, most: int | None = None) -> Table | None:
    """How much each figure varies from round to round, the worst first."""
    found = sorted(analysis.noise.cells, key=lambda cell: -cell.mad)[:most]
    if not found:
        return None
    body = tuple(
        (f"{cell.workload}, {cell.allocator}", str(cell.rounds), figures.percent(cell.cv),
         figures.percent(cell.mad)) for cell in found
    )  # fmt: skip
    return Table(
        f"Noise of {analysis.noise.metric}",
        ("workload, allocator", "rounds", "variation", "MAD"),
        body,
        "Variation: standard deviation ÷ mean. MAD: median deviation from the median, scaled to "
        "a standard deviation, ÷ median; outliers hardly move it.",
    )


def versions(analysis: Analysis) -> Table | None:
    """What each allocator was: version, file, build."""
    body = []
    for name in analysis.order:
        about = analysis.results.allocator(name)
        body.append((name, *(str(about.get(key) or figures.DASH) for key in
                             ("version", "source", "flags", "sha256"))))  # fmt: skip
    head = ("allocator", "version", "source", "flags", "sha256")
    return Table("Allocators", head, tuple(body), left=5) if body else None


def abouts(analysis: Analysis) -> Table | None:
    known = analysis.results.meta.get("workloads") or {}
    body = []
    for workload, suite in analysis.cells.workloads.items():
        about = known.get(workload, "")
        text = about.get("about", "") if isinstance(about, dict) else str(about)
        body.append((workload, suite, text))
    return Table("Workloads", ("workload", "suite", "what it does"), tuple(body), left=3)


# --- the terminal ------------------------------------------------------------------------------


def lay_out(table: Table) -> str:
    """As text: what is text to the left, figures to the right."""
    lines = [table.head, *table.body]
    widths = [max(len(line[column]) for line in lines) for column in range(len(table.head))]
    texts = []
    for line in lines:
        cells = [
            cell.ljust(width) if column < table.left else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(line, widths, strict=True))
        ]
        texts.append("  ".join(cells).rstrip())
    parts = [table.title, "\n".join(texts), table.note]
    return "\n".join(part for part in parts if part)


def rich_table(table: Table) -> RichTable:
    shown = RichTable(
        title=escape(table.title),
        caption=escape(table.note) or None,
        title_justify="left",
        caption_justify="left",
    )
    for column, title in enumerate(table.head):
        left = column < table.left
        shown.add_column(escape(title), justify="left" if left else "right",
                         overflow="fold" if left else "ellipsis", no_wrap=not left)  # fmt: skip
    for line in table.body:
        cells = []
        for cell in line:
            style = VERDICT_STYLES.get(cell)
            cells.append(f"[{style}]{escape(cell)}[/]" if style else escape(cell))
        shown.add_row(*cells)
    return shown


class Printer:
    """Writes to a terminal with colours and frames, to anything else as plain text."""

    def __init__(self, file: TextIO | None = None):
        self.file = file or sys.stdout
        self.tty = self.file.isatty()
        self.console = Console(file=self.file, highlight=False) if self.tty else None

    def text(self, text: str = "", style: str = "") -> None:
        if self.console is None:
            print(text, file=self.file)
        else:
            self.console.print(escape(text), style=style or None)

    def pairs(self, pairs: Sequence[tuple[str, str]]) -> None:
        width = max((len(name) for name, _ in pairs), default=0)
        for name, text in pairs:
            self.text(f"{name.ljust(width)}  {text}")

    def table(self, table: Table | None) -> None:
        if table is None:
            return
        if self.console is None:
            print("\n" + lay_out(table), file=self.file)
            return
        self.console.print()
        # A frame costs two columns and more per cell: where it does not fit, plain lines do.
        if self.console.measure(rich_table(table)).minimum > self.console.width:
            self.console.print(escape(lay_out(table)), soft_wrap=True)
        else:
            self.console.print(rich_table(table))


def print_report(analysis: Analysis, printer: Printer) -> None:
    """All that `hakmem report` says in the terminal."""
    printer.pairs(header(analysis))
    for sentence in analysis.problems():
        printer.text(f"! {sentence}", "yellow")
    for metric in analysis.metrics:
        printer.table(ranking(analysis, metric))
    printer.table(points(analysis))
    for metric in analysis.metrics:
        printer.table(workloads(analysis, metric))
        if analysis.candidate is None:
            printer.table(medians(analysis, metric))
    for table in extras(analysis):
        printer.table(table)
    printer.table(refused(analysis))
    printer.text()
    for sentence in analysis.verdict_sentences():
        printer.text(sentence, "bold")
