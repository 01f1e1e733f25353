"""The plots, as matplotlib figures: none needs a screen, and one without data is None.

An allocator has one colour and one marker in all of them. INK and GRID are the only colours that
depend on the background, so that a page can exchange them for its own.
"""

from __future__ import annotations

import base64
import binascii
import io
import json
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot  # noqa: E402
from matplotlib.axes import Axes  # noqa: E402
from matplotlib.figure import Figure  # noqa: E402
from matplotlib.lines import Line2D  # noqa: E402
from matplotlib.ticker import (  # noqa: E402
    FixedLocator,
    FuncFormatter,
    LogLocator,
    NullFormatter,
    NullLocator,
)

from .. import stats  # noqa: E402
from ..stats import Comparison, Metric  # noqa: E402
from . import figures  # noqa: E402
from .analysis import Analysis  # noqa: E402

WIDTH, DPI = 12.0, 100
INK, GRID = "#1b1f24", "#d3d7dc"
# After Okabe and Ito: told apart with any colour vision, on white and on black.
KNOWN = {
    "hakmem": ("#D55E00", "s"), "glibc": ("#868b94", "o"), "mimalloc2": ("#0072B2", "^"),
    "mimalloc3": ("#56B4E9", "v"), "mimalloc": ("#0072B2", "^"), "jemalloc": ("#CC79A7", "D"),
    "tcmalloc": ("#009E73", ">"), "snmalloc": ("#C9A400", "X"), "rpmalloc": ("#8467C8", "P"),
    "tbbmalloc": ("#96714A", "<"),
}  # fmt: skip
SPARE = ("#44AA99", "#B5446E", "#7F9C2F", "#5B7FB5", "#B89B5E", "#6D6875")
HAKMEM_SHADES = ("#F4A261", "#A83C00", "#FFC9A3")
SPARE_MARKERS = "ph*d8HsoDv"
MOST_PANELS = 12
STYLE = {
    "font.family": "DejaVu Sans", "font.size": 11, "svg.fonttype": "none", "svg.hashsalt": "hakmem",
    "text.color": INK, "axes.labelcolor": INK, "axes.edgecolor": INK, "xtick.color": INK,
    "ytick.color": INK, "axes.titlecolor": INK, "grid.color": GRID, "axes.spines.top": False,
    "axes.spines.right": False, "axes.axisbelow": True, "legend.frameon": False,
    "axes.titlesize": 12, "axes.titleweight": "bold", "axes.titlelocation": "left",
    "savefig.dpi": DPI, "figure.dpi": DPI,
}  # fmt: skip


@dataclass(frozen=True)
class Look:
    """How an allocator is drawn, wherever it is."""

    colour: str
    marker: str
    strong: bool

    @property
    def line(self) -> dict:
        return {"color": self.colour, "linewidth": 2.6 if self.strong else 1.4,
                "zorder": 4 if self.strong else 3}  # fmt: skip


def looks(names: Sequence[str], candidate: str | None) -> dict[str, Look]:
    """The looks of a file's allocators: known names have colours of their own in all files."""
    spare, shades, markers = cycle(SPARE), cycle(HAKMEM_SHADES), cycle(SPARE_MARKERS)
    taken: set[str] = set()
    found: dict[str, Look] = {}
    for name in sorted(names):
        colour, marker = KNOWN.get(name, ("", ""))
        if not colour or colour in taken:
            colour = next(shades if stats.is_hakmem(name) else spare)
            marker = next(markers)
        taken.add(colour)
        found[name] = Look(colour, marker, name == candidate)
    return found


def looks_of(analysis: Analysis) -> dict[str, Look]:
    return looks(analysis.cells.allocators, analysis.candidate)


# --- ranking -----------------------------------------------------------------------------------


def ranking(analysis: Analysis, metric: Metric) -> Figure | None:
    """Bars of geometric means with their intervals, the best on top."""
    found = analysis.ranking(metric)
    if len(found.means) < 2:
        return None
    style = looks_of(analysis)
    figure, axes = pyplot.subplots(figsize=(WIDTH, 1.5 + 0.42 * len(found.means)))
    ends = [mean.high or mean.ratio for mean in found.means]
    for place, mean in enumerate(found.means):
        look = style[mean.allocator]
        axes.barh(place, mean.ratio, color=look.colour, height=0.62,
                  alpha=1.0 if look.strong else 0.72)  # fmt: skip
        if mean.low is not None:
            _whisker(axes, mean.low, mean.high, place, 1.6)
        axes.annotate(f"{mean.ratio:.3f}", (ends[place], place), xytext=(7, 0),
                      textcoords="offset points", va="center",
                      fontweight="bold" if look.strong else "normal")  # fmt: skip
    axes.axvline(1, color=INK, linewidth=1, linestyle=(0, (4, 3)), alpha=0.7)
    axes.set_yticks(range(len(found.means)), [mean.allocator for mean in found.means])
    _embolden(axes.get_yticklabels(), analysis.candidate)
    axes.invert_yaxis()
    axes.set_xlim(0, max(max(ends), 1) * 1.1)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="x")
    axes.set_xlabel(
        f"{metric.title.lower()} ÷ {found.reference}: geometric mean over "
        f"{len(found.workloads)} workloads; less is better"
    )
    return _done(figure)


def scatter(analysis: Analysis) -> Figure | None:
    """Geometric means of time and memory against each other: bottom left is best."""
    times, memories = (analysis.ranking(stats.metric(name)) for name in ("time", "memory"))
    names = [mean.allocator for mean in times.means if memories.of(mean.allocator)]
    if len(names) < 2 or times.reference != memories.reference:
        return None
    style = looks_of(analysis)
    figure, axes = pyplot.subplots(figsize=(WIDTH, 7.2))
    axes.set_xscale("log")
    axes.set_yscale("log")
    spots = []
    for name in names:
        time, memory, look = times.of(name), memories.of(name), style[name]
        if time.low is not None and memory.low is not None:
            axes.plot([time.low, time.high], [memory.ratio] * 2, color=look.colour, linewidth=1.4)
            axes.plot([time.ratio] * 2, [memory.low, memory.high], color=look.colour, linewidth=1.4)
        axes.plot(time.ratio, memory.ratio, look.marker, color=look.colour, zorder=5,
                  markersize=14 if look.strong else 10, markeredgecolor=INK,
                  markeredgewidth=1.4 if look.strong else 0.5)  # fmt: skip
        spots.append((time.ratio, memory.ratio))
    _ratio_axis(axes, "x", [spot[0] for spot in spots])
    _ratio_axis(axes, "y", [spot[1] for spot in spots])
    axes.grid(which="major")
    axes.axvline(1, color=INK, linewidth=0.8, linestyle=(0, (4, 3)), alpha=0.5)
    axes.axhline(1, color=INK, linewidth=0.8, linestyle=(0, (4, 3)), alpha=0.5)
    # Along the axis, below every spot: the best of them lie in this corner.
    axes.annotate("fast and small", (0.002, 0.02), (0.05, 0.02), xycoords="axes fraction",
                  textcoords="axes fraction", va="center", fontstyle="italic", alpha=0.75,
                  arrowprops={"arrowstyle": "->", "color": INK, "alpha": 0.75})  # fmt: skip
    axes.set_xlabel(f"time ÷ {times.reference} (geometric mean; less is better)")
    axes.set_ylabel(f"peak memory ÷ {times.reference} (geometric mean)")
    figure.tight_layout()
    _label_spots(figure, axes, spots, names, analysis.candidate)
    return _done(figure)


def _label_spots(figure: Figure, axes: Axes, spots: Sequence[tuple[float, float]],
                 names: Sequence[str], candidate: str | None) -> None:  # fmt: skip
    """Names beside their points, each at the first place where it covers nothing else."""
    renderer = figure.canvas.get_renderer()
    points = [axes.transData.transform(spot) for spot in spots]
    frame = axes.get_window_extent(renderer)
    taken: list = []
    around = [
        (reach * math.cos(angle), reach * math.sin(angle))
        for reach in (14, 24, 36, 52, 70)
        for angle in (0, 0.6, -0.6, math.pi, 2.5, -2.5, 1.57, -1.57)
    ]
    for index in sorted(range(len(names)), key=lambda each: names[each] != candidate):
        label = None
        for x, y in around:
            if label is not None:
                label.remove()
            side = "center" if abs(x) < 5 else "left" if x > 0 else "right"
            label = axes.annotate(
                names[index], spots[index], (x, y), textcoords="offset points", ha=side,
                va="center", fontweight="bold" if names[index] == candidate else "normal",
                arrowprops={"arrowstyle": "-", "color": INK, "alpha": 0.4} if abs(x) + abs(y) > 40
                else None,
            )  # fmt: skip
            box = label.get_window_extent(renderer).padded(3)
            free = not any(box.overlaps(other) for other in taken)
            clear = not any(
                box.x0 - 7 < px < box.x1 + 7 and box.y0 - 7 < py < box.y1 + 7 for px, py in points
            )
            within = frame.x0 <= box.x0 and box.x1 <= frame.x1 + 60 and frame.y0 <= box.y0
            if free and clear and within and box.y1 <= frame.y1:
                break
        taken.append(label.get_window_extent(renderer).padded(3))


# --- per workload ------------------------------------------------------------------------------


def workloads(analysis: Analysis, metric: Metric) -> Figure | None:
    """Bars of the candidate ÷ the best peer of each workload, by suite; others as markers."""
    found = analysis.comparisons(metric)
    if not found:
        return None
    style = looks_of(analysis)
    lines = _suite_lines(found)
    figure, axes = pyplot.subplots(figsize=(WIDTH, 1.9 + 0.3 * len(lines)))
    axes.set_xscale("log")
    ends = [end for one in found for end in (one.ratio, one.low, one.high) if end]
    others = [ratio for one in found for ratio in _others(analysis, metric, one).values()]
    # Room for others up to twice the peer; what is further stands at the edge.
    low, high = _ratio_axis(axes, "x", [*ends, *(min(max(each, 0.5), 2.0) for each in others)])
    labels, shown = [], set()
    for place, line in enumerate(lines):
        if isinstance(line, str):
            labels.append(line)
            continue
        labels.append(line.workload)
        _workload_bar(axes, place, line, style[line.candidate])
        shown |= _other_marks(axes, place, line, analysis, metric, (low, high))
    axes.axvline(1, color=INK, linewidth=1.2)
    axes.set_yticks(range(len(lines)), labels)
    for label, line in zip(axes.get_yticklabels(), lines, strict=True):
        label.set_fontweight("bold" if isinstance(line, str) else "normal")
    axes.set_ylim(len(lines) - 0.4, -0.6)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="x")
    axes.set_xlabel(
        f"{metric.title.lower()} ÷ that of the {metric.best} peer: left of 1, "
        f"{analysis.candidate} is better"
    )
    _legend(figure, style, [analysis.candidate, *sorted(shown)], solid=analysis.candidate)
    return _done(figure)


def _suite_lines(found: Sequence[Comparison]) -> list[str | Comparison]:
    """The comparisons with each suite's name before its own."""
    lines: list[str | Comparison] = []
    for suite in dict.fromkeys(one.suite for one in found):
        lines.append(suite or "workloads")
        lines += [one for one in found if one.suite == suite]
    return lines


def _workload_bar(axes: Axes, place: int, one: Comparison, look: Look) -> None:
    told = one.verdict in (stats.WIN, stats.LOSS)
    axes.barh(place, one.ratio - 1, left=1, height=0.6, color=look.colour,
              alpha=1.0 if told else 0.38)  # fmt: skip
    if one.low is not None:
        _whisker(axes, one.low, one.high, place, 1.2)


def _other_marks(axes: Axes, place: int, one: Comparison, analysis: Analysis, metric: Metric,
                 limits: tuple[float, float]) -> set[str]:  # fmt: skip
    """The other allocators ÷ the same peer; those beyond the axis stand at its edge."""
    style = looks_of(analysis)
    found = _others(analysis, metric, one)
    for name, ratio in found.items():
        at = min(max(ratio, limits[0]), limits[1])
        axes.plot(at, place, style[name].marker, color=style[name].colour, markersize=5.5,
                  alpha=0.85, zorder=3, clip_on=False)  # fmt: skip
    return set(found)


def _others(analysis: Analysis, metric: Metric, one: Comparison) -> dict[str, float]:
    """The allocators that a comparison is not about ÷ the one that it is against."""
    medians = {
        name: analysis.cells.median(one.workload, name, metric) or 0.0 for name in analysis.order
    }
    base = medians.get(one.other)
    if not base:
        return {}
    return {
        name: value / base for name, value in medians.items() if value and name != one.candidate
    }


# --- memory over time --------------------------------------------------------------------------


def memory_over_time(analysis: Analysis) -> Figure | None:
    """Resident memory of the most typical run of each allocator, a panel per workload."""
    found = {workload: _series_of(analysis, workload) for workload in analysis.cells.workloads}
    chosen = _largest({workload: each for workload, each in found.items() if each}, _highest)
    if not chosen:
        return None
    figure, panels = _panels(len(chosen))
    style = looks_of(analysis)
    for axes, workload in zip(panels, chosen, strict=True):
        longest = max(points[-1][0] for points in chosen[workload].values())
        scale, unit = (1000.0, "s") if longest >= 2000 else (1.0, "ms")
        for name in reversed(analysis.order):
            if points := chosen[workload].get(name):
                xs, ys = zip(*points, strict=True)
                axes.plot([x / scale for x in xs], [y / 1024 for y in ys], **style[name].line)
        axes.set_title(workload)
        axes.set_xlabel(unit)
        axes.set_ylabel("MiB")
        axes.set_ylim(bottom=0)
        axes.set_xlim(left=0)
        axes.grid()
    _legend(figure, style, [n for n in analysis.order if any(n in c for c in chosen.values())])
    return _done(figure)


def _series_of(analysis: Analysis, workload: str) -> dict[str, list[tuple[float, float]]]:
    """Of each allocator the series of the round whose peak is the median of its peaks."""
    found = {}
    for name in analysis.cells.allocators:
        known = []
        for row in analysis.cells.good(workload, name).values():
            points = parse_series(row.get("series"))
            if len(points) >= 3:
                known.append((max(y for _, y in points), points))
        if known:
            found[name] = sorted(known, key=lambda each: each[0])[len(known) // 2][1]
    return found


def parse_series(text: object) -> list[tuple[float, float]]:
    """[[ms, KiB], ...] of a cell; empty where it is none."""
    try:
        points = json.loads(text) if isinstance(text, str) and text else []
        return [(float(x), float(y)) for x, y in points]
    except (ValueError, TypeError):
        return []


def _highest(series: dict[str, list[tuple[float, float]]]) -> float:
    return max(y for points in series.values() for _, y in points)


# --- latency -----------------------------------------------------------------------------------

PERCENTILES = {"p50_ns": 50.0, "p90_ns": 90.0, "p95_ns": 95.0, "p99_ns": 99.0,
               "p999_ns": 99.9, "p9999_ns": 99.99}  # fmt: skip
Curve = list[tuple[float, float]]


def percentiles(analysis: Analysis) -> Figure | None:
    """Latency against 1/(1-p): each step to the right is ten times rarer."""
    found = {
        workload: {
            name: curve
            for name in analysis.cells.allocators
            if len(curve := _curve(analysis, workload, name)) > 1
        }
        for workload in analysis.cells.workloads
    }
    chosen = _largest({key: each for key, each in found.items() if each}, len)
    if not chosen:
        return None
    figure, panels = _panels(len(chosen))
    style = looks_of(analysis)
    for axes, workload in zip(panels, chosen, strict=True):
        for name in reversed(analysis.order):
            if curve := chosen[workload].get(name):
                xs, ys = zip(*curve, strict=True)
                axes.plot(xs, ys, **style[name].line)
        axes.set_title(workload)
        _percentile_axes(axes, max(x for curve in chosen[workload].values() for x, _ in curve))
    _legend(figure, style, [n for n in analysis.order if any(n in c for c in chosen.values())])
    return _done(figure)


def _percentile_axes(axes: Axes, most: float) -> None:
    axes.set_xscale("log")
    axes.set_yscale("log")
    ticks = [2.0] + [10.0**power for power in range(1, 8) if 10.0**power <= most * 1.01]
    axes.xaxis.set_major_locator(FixedLocator(ticks))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{100 * (1 - 1 / x):.7g}%"))
    axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda y, _: figures.duration(y)))
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.set_xlim(1.4, None)
    axes.set_xlabel("percentile")
    axes.grid()


def _curve(analysis: Analysis, workload: str, name: str) -> Curve:
    """Points (1/(1-p), ns): of all rounds' histograms together, or else of their percentiles."""
    rows = list(analysis.cells.good(workload, name).values())
    merged = merge_histograms([str(row["histogram"]) for row in rows if row.get("histogram")])
    if merged is not None:
        return merged
    curve = []
    for column, percentile in PERCENTILES.items():
        value = analysis.cells.median(workload, name, column)
        if value:
            curve.append((1 / (1 - percentile / 100), value))
    return curve


def merge_histograms(texts: Sequence[str]) -> Curve | None:
    """The percentile curve of HdrHistograms taken together; None where none can be read."""
    try:
        from hdrh.histogram import HdrHistogram
    except ImportError:
        return None
    whole = None
    for text in texts:
        try:
            base64.b64decode(text, validate=True)
            each = HdrHistogram.decode(text)
            if whole is None:
                whole = each
            else:
                whole.add(each)
        except (binascii.Error, ValueError, TypeError, IndexError, KeyError):
            return None
        except Exception as error:  # The library's own, and zlib's, have no common base.
            if type(error).__module__.partition(".")[0] not in ("hdrh", "zlib"):
                raise
            return None
    if whole is None or whole.get_total_count() < 2:
        return None
    # From P33 on: the least of all says nothing, and would stretch the axis.
    steps = [1.5 * 10 ** (each / 12) for each in range(0, 12 * 8)]
    curve = []
    for step in steps:
        if step > whole.get_total_count():
            break
        value = whole.get_value_at_percentile(100 * (1 - 1 / step))
        curve.append((step, float(max(value, 1))))
    return curve


# --- what they share ---------------------------------------------------------------------------


def _done(figure: Figure) -> Figure:
    if not figure.legends:
        figure.tight_layout()
    # Out of pyplot's list, which would keep every figure alive.
    pyplot.close(figure)
    return figure


def _whisker(axes: Axes, low: float, high: float, place: float, width: float) -> None:
    axes.plot([low, high], [place, place], color=INK, linewidth=width, zorder=6)
    axes.plot([low, high], [place, place], "|", color=INK, markersize=7, zorder=6)


def _embolden(labels: Sequence, name: str | None) -> None:
    for label in labels:
        if label.get_text() == name:
            label.set_fontweight("bold")


RATIO_TICKS = (0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 0.8, 0.9, 1, 1.1, 1.25, 1.5, 2, 3, 5, 10, 20,
               50, 100)  # fmt: skip


def _ratio_axis(axes: Axes, which: str, values: Sequence[float]) -> tuple[float, float]:
    """Limits around values and 1, with ticks that a person would choose; returns the limits."""
    room = max(1.06, (max(*values, 1) / min(*values, 1)) ** 0.08)
    low, high = min(*values, 1) / room, max(*values, 1) * room
    ticks = [tick for tick in RATIO_TICKS if low <= tick <= high]
    # In a wide span the fine ticks near 1 would run into each other.
    if high / low > 4:
        ticks = [tick for tick in ticks if tick not in (0.8, 0.9, 1.1, 1.25)]
    if high / low > 12:
        ticks = [tick for tick in ticks if tick not in (0.3, 0.7, 1.5, 3)]
    axis = axes.xaxis if which == "x" else axes.yaxis
    axis.set_major_locator(FixedLocator(ticks))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    (axes.set_xlim if which == "x" else axes.set_ylim)(low, high)
    return low, high


def _largest(found: dict[str, dict], size: Callable[[dict], float]) -> dict[str, dict]:
    """At most MOST_PANELS of them, the largest, in the order of the file."""
    best = sorted(found, key=lambda each: -size(found[each]))[:MOST_PANELS]
    return {each: found[each] for each in found if each in best}


def _panels(count: int) -> tuple[Figure, list[Axes]]:
    columns = min(count, 3) if count != 4 else 2
    lines = math.ceil(count / columns)
    figure, grid = pyplot.subplots(
        lines, columns, figsize=(WIDTH, 1.1 + 3.0 * lines), squeeze=False
    )
    panels = list(grid.flat)
    for spare in panels[count:]:
        spare.remove()
    return figure, panels[:count]


def _legend(figure: Figure, style: dict[str, Look], names: Sequence[str],
            solid: str | None = None) -> None:  # fmt: skip
    """Names and looks above the axes; `solid` is shown as a bar, none as lines."""
    handles = []
    for name in names:
        look = style[name]
        if solid is None:
            handle = Line2D([], [], label=name, **look.line)
        elif name == solid:
            handle = Line2D([], [], label=name, color=look.colour, linewidth=8)
        else:
            handle = Line2D([], [], label=name, color=look.colour, marker=look.marker,
                            linestyle="", markersize=6)  # fmt: skip
        handles.append(handle)
    columns = min(len(handles), 6)
    lines = math.ceil(len(handles) / columns)
    height = figure.get_figheight()
    figure.tight_layout(rect=(0, 0, 1, 1 - (0.25 * lines + 0.1) / height))
    figure.legend(handles=handles, loc="upper center", ncols=columns, bbox_to_anchor=(0.5, 1.0))


@dataclass(frozen=True)
class Plot:
    """A plot that has data: its name in file names, its heading, and what it shows."""

    name: str
    title: str
    text: str
    figure: Figure


@dataclass(frozen=True)
class Missing:
    """A plot that has none, and why."""

    title: str
    why: str


def all_plots(analysis: Analysis) -> tuple[dict[str, Plot], list[Missing]]:
    """Every plot by name, and those that cannot be."""
    made: list[tuple[str, str, str, str, Callable[[], Figure | None]]] = []
    for metric in analysis.metrics:
        title = metric.title.lower()
        made.append((
            f"ranking-{metric.name}", f"Ranking: {title}",
            "Geometric means with 95% intervals.",
            "it needs two allocators with figures", lambda m=metric: ranking(analysis, m),
        ))  # fmt: skip
        made.append((
            f"workloads-{metric.name}", f"Per workload: {title}",
            f"Bars: {analysis.candidate} ÷ the {metric.best} peer, with 95% intervals; pale where "
            "there is no verdict. Markers: the others ÷ the same peer.",
            "it needs hakmem and a peer", lambda m=metric: workloads(analysis, m),
        ))  # fmt: skip
    made.append((
        "scatter", "Time and memory",
        "Geometric means of both, on logarithmic axes, with 95% intervals.",
        "it needs two allocators with figures of time and memory", lambda: scatter(analysis),
    ))  # fmt: skip
    made.append((
        "memory-over-time", "Resident memory over time",
        f"Each line is the run with the median peak; at most {MOST_PANELS} workloads, those that "
        "take most.",
        "no row has a series", lambda: memory_over_time(analysis),
    ))  # fmt: skip
    made.append((
        "percentiles", "Latency",
        "All rounds together. A curve that stays low to the right has no rare slow calls.",
        "no row has latencies", lambda: percentiles(analysis),
    ))  # fmt: skip
    found: dict[str, Plot] = {}
    missing = []
    with matplotlib.rc_context(STYLE):
        for name, title, text, why, make in made:
            figure = make()
            if figure is None:
                missing.append(Missing(title, why))
            else:
                found[name] = Plot(name, title, text, figure)
    return found, missing


def save(plot: Plot, folder: Path, stem: str, formats: Sequence[str]) -> list[Path]:
    """Writes the plot as `<stem>-<name>.<format>`."""
    paths = []
    for kind in formats:
        path = folder / f"{stem}-{plot.name}.{kind}"
        with matplotlib.rc_context(STYLE):
            # No date, so that the same results give the same file.
            metadata = {"Date": None} if kind == "svg" else None
            plot.figure.savefig(path, format=kind, facecolor="white", metadata=metadata)
        paths.append(path)
    return paths


def inline_svg(plot: Plot) -> str:
    """The plot as an <svg> element for a page: it takes the page's colours, ids of its own."""
    text = io.StringIO()
    with matplotlib.rc_context(STYLE):
        plot.figure.savefig(text, format="svg", transparent=True, metadata={"Date": None})
    svg = text.getvalue()
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.S)
    svg = re.sub(r'\sxmlns(:\w+)?="[^"]*"', "", svg)
    svg = svg.replace("xlink:href", "href")
    svg = re.sub(r'\bid="', f'id="{plot.name}-', svg)
    svg = re.sub(r'href="#', f'href="#{plot.name}-', svg)
    svg = svg.replace("url(#", f"url(#{plot.name}-")
    svg = svg.replace(INK, "currentColor").replace(GRID, "var(--grid)")
    svg = re.sub(r"font: (\d+)px 'DejaVu Sans'", r"font: \1px 'DejaVu Sans', sans-serif", svg)
    label = f'role="img" aria-label="{plot.title}" '
    return svg.replace("<svg ", f"<svg {label}", 1).strip()
