"""`hakmem bench --self-profile`: what hakmem's own slow work costs, over sizes and threads."""

from __future__ import annotations

import csv
import re
import tempfile
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from hakmem import locate, store, suites
from hakmem.model import Allocator
from hakmem.process import measure
from hakmem.run import RunError

SIZES = (16, 64, 256, 1024, 8192, 32768, 131072)
THREADS = (1, 2, 4)
SECONDS = 0.5
# Threads that free each other's blocks: refills, spills, and what goes between them all happen.
WORKLOAD = "larson-loop"
# A line of the report: "refill    4204    1.234    293    15874", "-" where nothing happened.
LINE = re.compile(r"^([a-z]+) +(\d+) +([\d.]+) +(\d+|-) +(\d+|-)$")
COLUMNS = ("size", "threads", "category", "times", "total_ms", "mean_ns", "max_ns")


@dataclass(frozen=True)
class Point:
    """One category of slow work at one size and number of threads."""

    size: int
    threads: int
    category: str
    times: int
    total_ms: float
    mean_ns: int | None
    max_ns: int | None


def numbers(text: str | None, default: tuple[int, ...], what: str) -> list[int]:
    if not text:
        return list(default)
    try:
        found = [int(part) for part in text.split(",") if part.strip()]
    except ValueError:
        found = []
    if not found or min(found) < 1:
        raise RunError(f"{what} takes numbers such as 16,1024, not {text}")
    return found


def parse(report: str, size: int, threads: int) -> list[Point]:
    """The self-profile of a report of HAKMEM_STATS=1 and HAKMEM_PROF=1."""
    _, found, rest = report.partition("self-profile")
    if not found:
        raise RunError("hakmem's report has no self-profile: the library is another version's")
    points = []
    for line in rest.splitlines():
        match = LINE.match(line.strip())
        if match:
            category, times, total, mean, most = match.groups()
            points.append(
                Point(size, threads, category, int(times), float(total),
                      None if mean == "-" else int(mean), None if most == "-" else int(most))
            )  # fmt: skip
    return points


def profile(size: int, threads: int, library: Path, folder: Path) -> list[Point]:
    """One run."""
    report = folder / f"{size}-{threads}"
    words = [
        "--least", str(size), "--most", str(size), "--threads", str(threads),
        "--seconds", str(SECONDS), "--chunks", str(max(10, min(1000, (32 << 20) // size))),
        "--seed", "1",
    ]  # fmt: skip
    (workload,) = suites.matrix(WORKLOAD, words, locate.native("hakbench"))
    result = measure(
        list(workload.command), Allocator("hakmem", library),
        environment={"HAKMEM_STATS": "1", "HAKMEM_PROF": "1", "HAKMEM_STATS_FILE": str(report)},
    )  # fmt: skip
    if result.error or not report.exists():
        raise RunError(f"{WORKLOAD} with {size} bytes: {result.error or 'hakmem left no report'}")
    return parse(report.read_text(), size, threads)


def short(number: int) -> str:
    """Three digits at most, so that the table fits a terminal."""
    for unit, size in (("M", 10**6), ("k", 10**3)):
        if number >= size:
            scaled = number / size
            return f"{scaled:.1f}{unit}" if scaled < 10 else f"{scaled:.0f}{unit}"
    return str(number)


def show(points: list[Point], console: Console) -> None:
    """Mean ns of each category, and how often, for each size and number of threads."""
    categories = [
        name
        for name in dict.fromkeys(point.category for point in points)
        if any(point.times for point in points if point.category == name)
    ]
    table = Table(box=None, pad_edge=False)
    for name in ("bytes", "threads", *categories):
        table.add_column(name, justify="right", no_wrap=True)
    cells = {(point.size, point.threads, point.category): point for point in points}
    for size, threads in dict.fromkeys((point.size, point.threads) for point in points):
        row = []
        for name in categories:
            point = cells.get((size, threads, name))
            told = point is not None and point.mean_ns is not None
            row.append(f"{short(point.mean_ns)}×{short(point.times)}" if told else "")
        table.add_row(f"{size:,}", str(threads), *row)
    console.print(table)
    console.print(
        "\nMean nanoseconds × how often, of hakmem's own slow work in "
        f"{SECONDS:g} s of {WORKLOAD}; HAKMEM_PROF=1 shows the same for any program.",
        highlight=False,
    )  # fmt: skip


def main(sizes: str | None, threads: str | None, out: Path, console: Console) -> int:
    wanted = numbers(sizes, SIZES, "--sizes"), numbers(threads, THREADS, "-t")
    library = locate.native("libhakmem.so")
    store.check_writable(out)
    points: list[Point] = []
    with tempfile.TemporaryDirectory(prefix="hakmem-sweep-") as folder:
        for size in wanted[0]:
            for count in wanted[1]:
                console.print(f"[dim]{size} bytes, {count} threads[/]", highlight=False)
                points += profile(size, count, library, Path(folder))
    with out.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(COLUMNS)
        writer.writerows([getattr(point, name) for name in COLUMNS] for point in points)
    show(points, console)
    console.print(f"Results: {out}", highlight=False)
    return 0
