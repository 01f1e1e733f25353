"""A results file as reports see it, and the error for one that there is no report on."""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from .. import store
from ..model import ROW_COLUMNS
from ..stats import Cells, Row, why_refused

# Long, and of use to a program only.
BULKY = ("series", "histogram")


class ReportError(Exception):
    """What keeps a report from being made; the text says what to do."""


@dataclass
class Results:
    """One results file."""

    path: Path
    meta: dict
    rows: list[Row]
    noise: list[dict] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)

    @cached_property
    def cells(self) -> Cells:
        return Cells(self.rows)

    @property
    def title(self) -> str:
        return self.path.stem

    def about(self, name: str) -> str:
        """A line of the header as text; empty where the file does not say."""
        value = self.meta.get(name)
        if value is None or value == "" or value == {}:
            return ""
        if isinstance(value, bool):
            return "yes" if value else "no"
        if isinstance(value, dict):
            return ", ".join(f"{key}={each}" for key, each in value.items())
        return " ".join(map(str, value)) if isinstance(value, list) else str(value)

    def allocator(self, name: str) -> dict:
        found = (self.meta.get("allocators") or {}).get(name)
        return found if isinstance(found, dict) else {}

    def refused(self) -> list[tuple[str, int, str]]:
        """Workload and allocator, how many rows, and why, for those that do not count."""
        counted: dict[tuple[str, str], int] = {}
        for row in self.cells.refused():
            which = f"{row['workload']} {row.get('params') or ''}".strip()
            each = (f"{which}, {row['allocator']}", why_refused(row))
            counted[each] = counted.get(each, 0) + 1
        return [(where, count, why) for (where, why), count in counted.items()]

    def rounds(self) -> int:
        return len({row["round"] for row in self.rows})

    def slim_csv(self) -> str:
        """The rows without their series and histograms."""
        text = io.StringIO()
        names = [name for name in ROW_COLUMNS if name not in BULKY]
        writer = csv.DictWriter(text, names, extrasaction="ignore", lineterminator="\n")
        writer.writeheader()
        writer.writerows(self.rows)
        return text.getvalue()


def read(path: Path | str) -> Results:
    """The results in a file. Raises ReportError where there are none to be had."""
    path = Path(path)
    try:
        found = store.read(path)
    except store.StoreError as error:
        raise ReportError(str(error)) from None
    if not found.rows:
        why = f" ({found.remarks[0]})" if found.remarks else ""
        raise ReportError(
            f"{path} has no rows{why}: the run ended before its first process did; give the same "
            "--out to hakmem bench to go on with it"
        )
    return Results(path, found.meta, found.rows, found.noise, found.remarks)
