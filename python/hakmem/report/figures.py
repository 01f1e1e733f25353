"""Figures as people read them."""

from __future__ import annotations

from ..stats import Comparison, Mean

DASH = "–"


def plain(value: float | None) -> str:
    """Three significant digits or so, with thousands apart."""
    if value is None:
        return DASH
    size = abs(value)
    if size >= 1000:
        return f"{value:,.0f}"
    return f"{value:.0f}" if size >= 100 or value == int(value) else f"{value:.3g}"


def duration(ns: float) -> str:
    for unit, size in (("s", 1e9), ("ms", 1e6), ("µs", 1e3)):
        if ns >= size:
            return f"{ns / size:.3g} {unit}"
    return f"{ns:.3g} ns"


def kib(value: float) -> str:
    for unit, size in (("GiB", 1024.0**2), ("MiB", 1024.0)):
        if abs(value) >= size:
            return f"{value / size:.3g} {unit}"
    return f"{value:.3g} KiB"


def with_unit(value: float | None, source: tuple[str, ...] | None) -> str:
    """A figure with the unit that its column's name says."""
    if value is None or not source:
        return DASH
    column = source[0]
    if column.endswith("_s"):
        return duration(value * 1e9)
    if column.endswith("_ns") or column.startswith("ns_"):
        return duration(value)
    return kib(value) if column.endswith("_kib") else plain(value)


def ratio(value: float | None) -> str:
    return DASH if value is None else f"{value:.3f}"


def span(low: float | None, high: float | None) -> str:
    return DASH if low is None or high is None else f"{low:.3f} to {high:.3f}"


def percent(value: float | None) -> str:
    return DASH if value is None else f"{value * 100:.1f}%"


def of_mean(mean: Mean) -> list[str]:
    """A ranking's cells: ratio, interval, share of resamples in which it is the best."""
    return [ratio(mean.ratio), span(mean.low, mean.high), percent(mean.best_share)]


def of_comparison(one: Comparison) -> list[str]:
    return [one.other or DASH, ratio(one.ratio), span(one.low, one.high), one.verdict]
