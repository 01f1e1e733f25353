"""The page: one HTML file that needs nothing else, neither scripts nor a network."""

from __future__ import annotations

import base64
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from .. import stats
from . import tables
from .analysis import Analysis
from .plots import Missing, Plot, inline_svg
from .tables import Table

HOW_TO_READ = (
    "Every ratio is one allocator's figure ÷ another's in the same round, the median over rounds: "
    "below 1 is better, and 0.950 means 5% less.",
    "The 95% interval says how far luck from round to round may have moved the ratio; a verdict "
    "is a win or a loss only where the interval keeps clear of 1 and the difference stands when "
    "all workloads of the suite are judged together.",
    "“Equal” means that the interval lies within {threshold:g}% of 1, “tie” that no difference can "
    "be told, and “too few rounds” that no outcome of so few rounds could have told one.",
    "The fastest (or smallest) peer of a workload is chosen on odd rounds and compared on even "
    "ones, so that the luck that made it the fastest is not counted for it.",
    "A row counts only if its process proved which allocator served it; all others are listed "
    "under “Refused rows”, where there are any.",
)


@dataclass
class Section:
    """A part of the page with its place in the table of contents."""

    title: str
    anchor: str = ""
    text: str = ""
    plots: list[dict] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)
    folded: list[Table] = field(default_factory=list)
    missing: list[Missing] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.anchor = self.anchor or re.sub(r"[^a-z0-9]+", "-", self.title.lower()).strip("-")

    @property
    def empty(self) -> bool:
        return not (self.text or self.plots or self.tables or self.folded or self.missing)


def sections(
    analysis: Analysis, plots: dict[str, Plot], missing: Sequence[Missing]
) -> list[Section]:
    """The page from rankings to raw figures, without what has no data."""

    def drawn(*names: str) -> list[dict]:
        return [_drawn(analysis, plots[name]) for name in names if name in plots]

    def there(*found: Table | None) -> list[Table]:
        return [table for table in found if table is not None]

    names = [metric.name for metric in analysis.metrics]
    parts = [
        Section(
            "Ranking",
            plots=drawn(*(f"ranking-{name}" for name in names), "scatter"),
            tables=there(*(tables.ranking(analysis, each) for each in analysis.metrics),
                         tables.points(analysis)),
        )
    ]  # fmt: skip
    for metric in analysis.metrics:
        parts.append(Section(
            f"{metric.title} by workload",
            plots=drawn(f"workloads-{metric.name}"),
            tables=there(tables.workloads(analysis, metric)),
            folded=there(tables.medians(analysis, metric)),
        ))  # fmt: skip
    extras = tables.extras(analysis)
    latency = [table for table in extras if table.title.startswith("Latency")]
    parts += [
        Section("Latency", plots=drawn("percentiles"), tables=latency),
        Section("Memory over time", plots=drawn("memory-over-time")),
        Section("Faults and growth", tables=[table for table in extras if table not in latency]),
        Section("Refused rows", tables=there(tables.refused(analysis))),
        Section("Noise", text=_noise_text(analysis), folded=there(tables.spreads(analysis))),
        Section("What was measured", folded=there(tables.versions(analysis),
                                                  tables.abouts(analysis))),
        Section("Left out", missing=list(missing)),
    ]  # fmt: skip
    return [part for part in parts if not part.empty]


def _drawn(analysis: Analysis, plot: Plot) -> dict:
    # matplotlib escapes what it writes; nothing else goes in unescaped.
    return {"title": plot.title, "text": plot.text, "svg": Markup(inline_svg(plot)),
            "command": report_command(analysis)}  # fmt: skip


def report_command(analysis: Analysis) -> str:
    return f"hakmem report {shlex.quote(analysis.results.path.name)}"


def bench_command(analysis: Analysis) -> str:
    command = analysis.results.meta.get("command")
    return shlex.join(map(str, command)) if isinstance(command, list) else str(command or "")


def _noise_text(analysis: Analysis) -> str:
    noise = analysis.noise
    told = []
    if noise.spread is not None:
        told.append(f"The typical figure varies by {noise.spread * 100:.1f}% from round to round.")
    if noise.drift is not None:
        told.append(
            f"From first to last round, figures changed by {noise.drift * 100:+.1f}% "
            f"(Spearman's ρ {noise.drift_rho:.2f}, p {noise.drift_p:.2g})."
        )
    if noise.calibration is not None:
        told.append(f"A fixed loop varied by {noise.calibration * 100:.1f}%.")
    if noise.steal is not None:
        told.append(f"The host took {noise.steal * 100:.1f}% of processor time.")
    return " ".join(told)


def render(analysis: Analysis, plots: dict[str, Plot], missing: Sequence[Missing]) -> str:
    """The page as text."""
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent / "templates"), autoescape=True,
        undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    how = [each.format(threshold=analysis.threshold * 100) for each in HOW_TO_READ]
    data = base64.b64encode(analysis.results.slim_csv().encode()).decode()
    return environment.get_template("page.html.j2").render(
        title=analysis.results.title,
        header=tables.header(analysis),
        problems=analysis.problems(),
        verdicts=analysis.verdict_sentences(),
        how=how,
        sections=sections(analysis, plots, missing),
        csv=f"data:text/csv;base64,{data}",
        csv_name=f"{analysis.results.title}-rows.csv",
        bench_command=bench_command(analysis),
        report_command=report_command(analysis),
        verdict_classes={stats.WIN: "win", stats.LOSS: "loss"},
    )
