"""What `hakmem report` says about results files: tables, plots, one page, and what changed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from .. import stats
from . import tables
from .analysis import DEFAULT_CANDIDATE, Analysis
from .compare import compare
from .results import ReportError, Results, read

__all__ = ["Analysis", "ReportError", "Results", "Shown", "compare", "read", "show"]

FORMATS = ("png", "svg")


@dataclass(frozen=True)
class Shown:
    """What was written."""

    page: Path | None
    plots: tuple[Path, ...]


def show(
    path: Path | str,
    out_dir: Path | str | None = None,
    html: bool = True,
    plots: bool = True,
    formats: Sequence[str] = FORMATS,
    metric: str | None = None,
    candidate: str = DEFAULT_CANDIDATE,
    threshold: float = stats.THRESHOLD,
) -> Shown:
    """Prints the tables of a results file; writes its page and its plots.

    They go to `out_dir`, by default to `<name>-report` beside the file, as `<name>.html` and
    `<name>-<plot>.<format>`. `metric` names one or more, with commas, instead of time and memory.
    Raises ReportError with what to do where there is nothing to show.
    """
    results = read(path)
    unknown = [each for each in formats if each not in (*FORMATS, "pdf")]
    if unknown:
        raise ReportError(f"no such format of plots: {', '.join(unknown)}; png, svg and pdf are")
    analysis = Analysis(results, metric, candidate, threshold)
    printer = tables.Printer()
    tables.print_report(analysis, printer)
    if not (html or plots):
        return Shown(None, ())
    shown = _write(analysis, Path(out_dir or _beside(results)), html, plots, formats)
    if shown.page is not None:
        printer.text(f"\nPage: {shown.page}")
    if shown.plots:
        printer.text(f"Plots: {len(shown.plots)} files in {shown.plots[0].parent}")
    return shown


def _beside(results: Results) -> Path:
    return results.path.parent / f"{results.title}-report"


def _write(
    analysis: Analysis, folder: Path, html: bool, plots: bool, formats: Sequence[str]
) -> Shown:
    # Here, since matplotlib takes its time and the terminal's tables do without.
    from . import page
    from . import plots as drawing

    title = analysis.results.title
    found, missing = drawing.all_plots(analysis)
    written: list[Path] = []
    page_path = None
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if plots:
            for plot in found.values():
                written += drawing.save(plot, folder, title, formats)
        if html:
            page_path = folder / f"{title}.html"
            page_path.write_text(page.render(analysis, found, missing), encoding="utf-8")
    except OSError as error:
        raise ReportError(
            f"{error.filename or folder} cannot be written: {error.strerror}"
        ) from None
    return Shown(page_path, tuple(written))
