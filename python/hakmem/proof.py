"""Whether the allocator in question served a process: judged by what the witness wrote inside it.

A figure without proof is worth nothing: LD_PRELOAD is dropped without a word by programs that are
linked statically, that run with raised privileges, or that clean their environment.
"""

from __future__ import annotations

import json
import os
import shutil
import stat
from dataclasses import dataclass, field
from pathlib import Path

from hakmem.model import Allocator

# Names the folder that processes write their records to. Not HAKMEM_*: hakmem takes those for its
# options.
FOLDER = "HAKWITNESS"
FUNCTIONS = ("malloc", "free", "calloc", "realloc")
# glibc's first request from its own heap takes 132 KiB from the system.
UNUSED_HEAP_BYTES = 64 << 10
# Counters that show that a peer served, where its public interface has one.
PEER_COUNTERS = (
    "jemalloc_thread_bytes", "jemalloc_live_bytes", "mimalloc_peak_bytes", "tcmalloc_heap_bytes",
)  # fmt: skip
ELF_MACHINES = {
    3: "x86", 40: "arm", 62: "x86-64", 183: "aarch64", 243: "riscv", 21: "ppc64", 22: "s390x",
}  # fmt: skip
PT_INTERP = 3


@dataclass(frozen=True)
class Proof:
    """`processes` counts those that the allocator served, `strangers` says which others ran."""

    ok: bool
    text: str
    processes: int
    error: str
    strangers: tuple[str, ...] = field(default=())
    peak_rss_kib: int | None = None


def same_file(one: str | Path, other: str | Path) -> bool:
    return bool(one) and os.path.realpath(one) == os.path.realpath(other)


def read_records(folder: Path) -> list[dict]:
    """All records, oldest image first. A record that is torn (its process was killed while it
    wrote) is left out."""
    records = []
    for path in folder.glob("*.json"):
        try:
            record = json.loads(path.read_text(encoding="utf-8", errors="replace"))
        except (OSError, ValueError):
            continue
        if isinstance(record, dict) and isinstance(record.get("pid"), int):
            records.append(record)
    return sorted(records, key=lambda record: (record.get("start_ns", 0), record["pid"]))


def other_object(record: dict, allocator: Allocator) -> str:
    """The first of the four functions that is not the allocator's, and whose it is; else empty."""
    library = allocator.library or record.get("libc", "")
    for name in FUNCTIONS:
        served_by = record.get(f"{name}_object", "")
        if not same_file(served_by, library):
            return f"{name} is served by {Path(served_by).name or 'nobody'}"
    return ""


def counter_fault(record: dict, allocator: Allocator) -> str:
    """What the counters say against the allocator; empty where they are for it."""
    if not record.get("ended"):
        return (
            "it left no word at its end: it became a program that can't be witnessed (statically "
            "linked, raised privileges, a cleaned environment), or ended by a bare system call"
        )
    own = record.get("libc_arena_bytes", 0) + record.get("libc_mapped_bytes", 0)
    if allocator.library is None:
        # The C library may have no counters (musl): then its objects are all there is to go by.
        if "libc_arena_bytes" in record and own == 0:
            return "the process allocated nothing"
        return ""
    if own >= UNUSED_HEAP_BYTES:
        return f"the C library's own heap served {own} bytes"
    if allocator.is_hakmem:
        served = record.get("hak_served_bytes")
        if served is None:
            return "the library has no hak_stats"
        return "" if served > 0 else "the process allocated nothing"
    counts = [record[name] for name in PEER_COUNTERS if name in record]
    return "" if not counts or max(counts) > 0 else "the process allocated nothing"


def describe(record: dict, allocator: Allocator) -> str:
    """Short text for the results."""
    if allocator.library is None:
        used = record.get("libc_arena_bytes", 0) + record.get("libc_mapped_bytes", 0)
        counted = f", {used} bytes of heap" if "libc_arena_bytes" in record else ""
        return f"{Path(record.get('libc', '')).name}{counted}"
    name = allocator.library.name
    if record.get("hak_served_bytes") is not None:
        return f"{name}, {record['hak_served_bytes']} bytes served"
    counts = [
        " ".join([*key.split("_"), str(record[key])]) for key in PEER_COUNTERS if key in record
    ]
    unused = "the C library's heap unused" if "libc_arena_bytes" in record else ""
    return ", ".join(part for part in (name, *counts, unused) if part)


# ---- Why there is no record --------------------------------------------------------------------


def own_head() -> bytes:
    with open("/proc/self/exe", "rb") as file:
        return file.read(20)


def machine_fault(head: bytes) -> str:
    """Whether an ELF file, by its first 20 bytes, is for a machine other than this program's."""
    mine = own_head()
    if head[4:6] == mine[4:6] and head[18:20] == mine[18:20]:
        return ""
    machine = int.from_bytes(head[18:20], "little" if head[5] == 1 else "big")
    bits = "64" if head[4] == 2 else "32"
    return f"it is for another machine ({ELF_MACHINES.get(machine, machine)}, {bits} bits)"


def elf_fault(head: bytes, path: Path) -> str:
    """What in an ELF file keeps the witness out; empty where nothing does."""
    order = "little" if head[5] == 1 else "big"

    def number(at: int, size: int) -> int:
        return int.from_bytes(head[at : at + size], order)

    fault = machine_fault(head)
    if fault:
        return fault
    wide = head[4] == 2
    table, size, count = (number(32, 8), number(54, 2), number(56, 2)) if wide else (
        number(28, 4), number(42, 2), number(44, 2))  # fmt: skip
    with path.open("rb") as file:
        file.seek(table)
        entries = file.read(size * count)
    kinds = {int.from_bytes(entries[i * size : i * size + 4], order) for i in range(count)}
    if PT_INTERP not in kinds:
        return "it is statically linked, nothing can be preloaded into it"
    return ""


def privilege_fault(path: Path) -> str:
    mode = path.stat().st_mode
    if mode & stat.S_ISUID:
        return "it is set-user-ID, the system ignores LD_PRELOAD for it"
    if mode & stat.S_ISGID:
        return "it is set-group-ID, the system ignores LD_PRELOAD for it"
    try:
        capable = "security.capability" in os.listxattr(path)
    except OSError:
        capable = False
    return "it has file capabilities, the system ignores LD_PRELOAD for it" if capable else ""


def why_no_record(command: str, depth: int = 4) -> str:
    """What about the program may have kept the witness out."""
    found = shutil.which(command)
    if found is None:
        return f"there is no program {command}"
    path = Path(found)
    name = path.name
    try:
        with path.open("rb") as file:
            head = file.read(256)
        if head.startswith(b"#!"):
            words = head[2:].split(b"\n")[0].split()
            # `env NAME` starts what NAME is in the path.
            if len(words) > 1 and words[0].endswith(b"/env"):
                words = words[1:]
            if words and depth > 0:
                why = why_no_record(os.fsdecode(words[0]), depth - 1)
                return f"{name} is a script: {why}"
            return f"{name} is a script without an interpreter"
        fault = privilege_fault(path)
        if not fault and head.startswith(b"\x7fELF") and len(head) >= 64:
            fault = elf_fault(head, path)
    except OSError as error:
        return f"{name} can't be read: {error.strerror}"
    if fault:
        return f"{name}: {fault}"
    return f"{name} is dynamically linked: LD_PRELOAD was cleared, or its C library is another one"


# ---- The judgement -----------------------------------------------------------------------------


def peak_of(records: list[dict]) -> int | None:
    """Peak of resident memory of the largest process, as those that ended tell it."""
    peaks = [record["peak_rss_kib"] for record in records if record.get("peak_rss_kib")]
    return max(peaks, default=None)


def stranger_names(strangers: list[dict], allocator: Allocator) -> tuple[str, ...]:
    """Programs that another allocator served, each once."""
    names = {
        f"{Path(record.get('executable', '')).name}: {other_object(record, allocator)}": None
        for record in strangers
    }
    return tuple(names)


def judge(
    folder: Path, allocator: Allocator, aside: Path | None = None, *,
    pid: int | None = None, command: str = "",
) -> Proof:  # fmt: skip
    """Judges one run by the records in `folder`. `aside` is where libraries were copied to: an
    allocator's library from elsewhere is not the one that is measured. `pid` is the process that
    was started; without it, the parent of the others. `command` is what it was started as."""
    library = allocator.library
    if aside and library and aside.resolve() not in library.resolve().parents:
        return Proof(False, "", 0, f"no proof: {library} is not a copy in {aside}")
    records = read_records(folder)
    peak = peak_of(records)
    strangers = [record for record in records if other_object(record, allocator)]
    names = stranger_names(strangers, allocator)
    served = len({record["pid"] for record in records if not other_object(record, allocator)})

    def refuse(why: str) -> Proof:
        return Proof(False, "", served, f"no proof: {why}", names, peak)

    if pid is None and records:
        pid = records[0]["pid"]
    first = [record for record in records if record["pid"] == pid and not record.get("forked")]
    if not first:
        others = f"; {len(records)} processes that it started left some" if records else ""
        why = why_no_record(command) if command else "the program could not be looked at"
        return refuse(f"the process left no record: {why}{others}")
    # What the command exec'd into is the last image under its number.
    last = first[-1]
    fault = other_object(last, allocator) or counter_fault(last, allocator)
    if fault:
        executable = Path(last.get("executable", "")).name
        return refuse(f"{executable}: {fault}")
    text = describe(last, allocator)
    if names:
        text += f"; {len(strangers)} other processes were served by others: {'; '.join(names[:3])}"
    return Proof(True, text, served, "", names, peak)
