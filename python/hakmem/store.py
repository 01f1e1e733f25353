"""The results file: rows of measured processes, safe against being broken off at any moment.

UTF-8 CSV. First two lines: `# hakmem-results 1` and `# {json}`, what a reader must know to believe
the figures. Then a header and one line for each process. Lines `# noise {json}` in between tell how
quiet the machine was in a round. A line counts once its end is written.
"""

from __future__ import annotations

import csv
import fcntl
import io
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from hakmem.model import RESULTS_FORMAT, ROW_COLUMNS

MAGIC = "# hakmem-results "
# A series and a histogram may be long.
FIELD_BYTES = 16 << 20
# What tells one step of a plan from another.
Done = tuple[int, str, str]


class StoreError(Exception):
    """The file can't be written or read; the text says why and what to do."""


@dataclass
class Results:
    """What a file holds. Every value of a row is the text that stands in it; "" is unknown."""

    meta: dict
    rows: list[dict[str, str]] = field(default_factory=list)
    noise: list[dict] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)  # what was wrong with the file


def one_line(value: object) -> str:
    """As text, without line breaks: a row is a line."""
    if value is None:
        return ""
    return " ".join(str(value).splitlines()) if isinstance(value, str) else str(value)


def csv_line(values: Iterable[object]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow([one_line(value) for value in values])
    return text.getvalue()


def step_of(row: Mapping[str, str]) -> Done:
    key = f"{row['workload']} {row['params']}".strip()
    return int(row["round"]), key, row["allocator"]


# ---- Reading -----------------------------------------------------------------------------------


def whole_lines(path: Path) -> tuple[list[str], bool]:
    """Lines whose end was written, and whether there is a torn one behind them."""
    try:
        text = path.read_bytes().decode("utf-8", "replace")
    except OSError as error:
        raise StoreError(f"{path} can't be read: {error.strerror}") from None
    lines = text.split("\n")
    return lines[:-1], lines[-1] != ""


def read_meta(path: Path, lines: list[str]) -> dict:
    if not lines or not lines[0].startswith(MAGIC):
        raise StoreError(f"{path} is not a results file of hakmem bench")
    version = lines[0].removeprefix(MAGIC).strip()
    if version != str(RESULTS_FORMAT):
        raise StoreError(
            f"{path} is in format {version}; this version reads format {RESULTS_FORMAT}"
        )
    try:
        meta = json.loads(lines[1].removeprefix("#"))
    except (IndexError, ValueError):
        raise StoreError(f"{path}: its second line, what was measured, is damaged") from None
    if not isinstance(meta, dict):
        raise StoreError(f"{path}: its second line, what was measured, is damaged")
    return meta


def read(path: Path) -> Results:
    """All of a file. A torn last line and lines that are no rows are left out and remarked on."""
    lines, torn = whole_lines(path)
    results = Results(read_meta(path, lines))
    columns: list[str] | None = None
    limit = csv.field_size_limit(FIELD_BYTES)
    try:
        for number, line in enumerate(lines[2:], 3):
            if line.startswith("#"):
                kind, _, text = line[1:].strip().partition(" ")
                if kind == "noise":
                    try:
                        results.noise.append(json.loads(text))
                    except ValueError:
                        results.remarks.append(f"line {number} is damaged and left out")
            elif columns is None:
                columns = next(csv.reader([line]))
            elif line:
                take_row(results, columns, line, number)
    finally:
        csv.field_size_limit(limit)
    if torn:
        results.remarks.append("the last line is torn (the run was broken off): left out")
    return results


def take_row(results: Results, columns: list[str], line: str, number: int) -> None:
    values = next(csv.reader([line]))
    row = dict.fromkeys(ROW_COLUMNS, "") | dict(zip(columns, values, strict=False))
    if len(values) != len(columns) or not row["round"].isdigit():
        results.remarks.append(f"line {number} is no row: left out")
    else:
        results.rows.append(row)


# ---- Writing -----------------------------------------------------------------------------------


def check_writable(path: Path) -> None:
    """Refuses a place that results can't be written to, before anything is measured."""
    folder = path.parent
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(f"the folder {folder} can't be made: {error.strerror}") from None
    if path.is_dir():
        raise StoreError(f"{path} is a folder: name a file")
    probe = folder / f".{path.name}.{os.getpid()}"
    try:
        probe.touch()
        probe.unlink()
        if path.exists():
            path.open("ab").close()
    except OSError as error:
        raise StoreError(f"{path} can't be written: {error.strerror}") from None


def differences(old: Mapping, new: Mapping) -> str:
    """What two plans differ in, in words."""
    found = []
    if old.get("rounds") != new.get("rounds"):
        found.append(f"rounds: {old.get('rounds')}, now {new.get('rounds')}")
    for kind in ("workloads", "allocators"):
        before, now = old.get(kind) or {}, new.get(kind) or {}
        gone, added = [k for k in before if k not in now], [k for k in now if k not in before]
        if gone or added:
            changes = [f"-{name}" for name in gone] + [f"+{name}" for name in added]
            found.append(f"{kind}: {' '.join(changes)}")
    allocators = new.get("allocators") or {}
    for name, about in (old.get("allocators") or {}).items():
        if name in allocators and about.get("sha256") != allocators[name].get("sha256"):
            found.append(f"{name} is another build")
    return "; ".join(found) or "other commands"


class Store:
    """A results file that is being written. One process writes it at a time."""

    def __init__(self, path: Path, meta: dict, file: io.BufferedWriter, done: set[Done]):
        self.path = path
        self.meta = meta
        self.done = done
        self._file = file

    @classmethod
    def create(cls, path: Path, meta: Mapping) -> Store:
        """A new file, in place of one that is there."""
        check_writable(path)
        header = f"{MAGIC}{RESULTS_FORMAT}\n# {json.dumps(meta)}\n{csv_line(ROW_COLUMNS)}"
        if path.exists():
            cls._locked(path).close()
        # Renamed when it is whole: a file without its header is never seen.
        fresh = path.with_name(f".{path.name}.{os.getpid()}")
        try:
            with fresh.open("wb") as file:
                file.write(header.encode())
                file.flush()
                os.fsync(file.fileno())
            fresh.replace(path)
        except OSError as error:
            fresh.unlink(missing_ok=True)
            raise StoreError(f"{path} can't be written: {error.strerror}") from None
        return cls(path, dict(meta), cls._locked(path), set())

    @classmethod
    def resume(cls, path: Path, meta: Mapping) -> Store:
        """Goes on with a file of the same plan. Steps that are in it are in `done`."""
        check_writable(path)
        file = cls._locked(path)
        try:
            results = read(path)
            if results.meta.get("plan") != meta.get("plan"):
                raise StoreError(
                    f"{path} was begun with another plan ({differences(results.meta, meta)}): "
                    "give the options it was begun with, another file, or --again to start anew"
                )
            # What is torn goes, so that the next row begins a line.
            lines, torn = whole_lines(path)
            if torn:
                whole = path.read_bytes().rfind(b"\n") + 1
                os.truncate(path, whole)
            if len(lines) < 3:
                file.write(csv_line(ROW_COLUMNS).encode())
        except BaseException:
            file.close()
            raise
        return cls(path, results.meta, file, {step_of(row) for row in results.rows})

    @classmethod
    def open(cls, path: Path, meta: Mapping, again: bool = False) -> Store:
        """Goes on with the file where there is one, unless `again` says to start anew."""
        if path.exists() and path.stat().st_size > 0 and not again:
            return cls.resume(path, meta)
        return cls.create(path, meta)

    @staticmethod
    def _locked(path: Path) -> io.BufferedWriter:
        file = path.open("ab")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.close()
            raise StoreError(f"{path} is being written by another run: wait, or name another file"
                             ) from None  # fmt: skip
        except OSError:
            pass  # a file system without locks
        return file

    def _write(self, text: str) -> None:
        try:
            self._file.write(text.encode())
            self._file.flush()
            os.fsync(self._file.fileno())
        except OSError as error:
            raise StoreError(
                f"{self.path} can't be written any more: {error.strerror}; what is in it is kept"
            ) from None

    def append(self, row: Mapping[str, object]) -> None:
        """Writes one row to the disk."""
        unknown = [name for name in row if name not in ROW_COLUMNS]
        if unknown:
            raise ValueError(f"no columns of a results file: {' '.join(unknown)}")
        line = csv_line(row.get(name, "") for name in ROW_COLUMNS)
        self._write(line)
        text = {name: one_line(row.get(name, "")) for name in ("round", "workload", "params",
                                                               "allocator")}  # fmt: skip
        self.done.add(step_of(text))

    def note(self, kind: str, what: Mapping[str, object]) -> None:
        """Writes a line about the run, such as the noise of a round."""
        self._write(f"# {kind} {json.dumps(what)}\n")

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
