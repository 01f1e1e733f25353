"""Runs workloads under allocators in interleaved rounds and writes a row for each process."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Protocol

from hakmem import locate, proof
from hakmem.allocators import LAB_SETTINGS, aside_folder, session_folder, take, take_witness
from hakmem.model import Allocator, Workload
from hakmem.process import Measurement, last_json, measure, thin
from hakmem.store import Store

# Figures of the JSON line that have a column of the same name, and those that have another.
SAME_NAME = (
    "ops", "p50_ns", "p90_ns", "p95_ns", "p99_ns", "p999_ns", "p9999_ns", "max_ns",
    "live_kib", "resident_after_kib", "growth_kib",
)  # fmt: skip
OTHER_NAME = {"ns_best": "ns_per_op", "ns_median": "ns_per_op_median"}
# Longest latency that a histogram can hold, and its digits that count.
LONGEST_NS, DIGITS = 3600 * 10**9, 3
ERROR_CHARACTERS = 300
# The loop that tells how quiet the machine is: about 4 ms on a processor of 2020, five times.
CALIBRATION_STEPS, CALIBRATION_RUNS = 60_000, 5
TICK_STEAL = 7  # which of the numbers of /proc/stat's first line


# ---- The plan ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Step:
    """One process. Round 0 warms up and is not recorded. The round is the seed: other sizes and
    orders each time, the same for all allocators of a round."""

    round: int
    position: int
    workload: Workload
    allocator: Allocator

    @property
    def seed(self) -> int:
        return max(self.round, 1)

    @property
    def recorded(self) -> bool:
        return self.round > 0

    @property
    def done_key(self) -> tuple[int, str, str]:
        return self.round, self.workload.key, self.allocator.name


def plan(
    rounds: int, workloads: Sequence[Workload], allocators: Sequence[Allocator],
    warm_up: bool = False,
) -> list[Step]:  # fmt: skip
    """Every process of the run in order. Within a round the allocators of one workload follow each
    other, so that they share the machine's mood; who goes first moves on by one each time."""
    keys = [workload.key for workload in workloads]
    repeated = sorted({key for key in keys if keys.count(key) > 1})
    if repeated:
        raise ValueError(f"given twice: {', '.join(repeated)}")
    steps = []
    for number in range(0 if warm_up else 1, rounds + 1):
        for index, workload in enumerate(workloads):
            first = (max(number - 1, 0) + index) % len(allocators)
            for position in range(len(allocators)):
                allocator = allocators[(first + position) % len(allocators)]
                steps.append(Step(number, position, workload, allocator))
    return steps


def plan_hash(steps: Sequence[Step]) -> str:
    """Names a plan: the same steps with the same commands and the same builds."""
    # Of the program its name only: it may be copied to another folder each time.
    told = [
        (
            *step.done_key, step.position, Path(step.workload.command[0]).name,
            step.workload.command[1:], step.workload.environment,
            step.allocator.about.get("sha256") or step.allocator.version, step.allocator.settings,
        )
        for step in steps
        if step.recorded
    ]  # fmt: skip
    return hashlib.sha256(json.dumps(told).encode()).hexdigest()


# ---- The machine -------------------------------------------------------------------------------


def read_text(path: str) -> str:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return ""


def first_line(*command: str, cwd: Path | None = None) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, cwd=cwd)
    except OSError:
        return ""
    return done.stdout.partition("\n")[0] if done.returncode == 0 else ""


def revision() -> str:
    """Of the source tree that this runs from; empty outside one."""
    if not (locate.TREE / ".git").exists():
        return ""
    found = first_line("git", "rev-parse", "HEAD", cwd=locate.TREE)
    changed = first_line("git", "status", "--porcelain", "--untracked-files=no", cwd=locate.TREE)
    return f"{found} and changes" if found and changed else found


def machine() -> dict:
    """What a reader must know of the machine to believe the figures, or to get them again."""
    cpu_info = read_text("/proc/cpuinfo")
    # Of the first processor, since each has the same keys.
    fields = {}
    for line in reversed(cpu_info.splitlines()):
        key, _, value = line.partition(":")
        fields[key.strip()] = value.strip()
    memory = read_text("/proc/meminfo").partition("\n")[0].split()
    compiler = os.environ.get("CC") or shutil.which("gcc") or shutil.which("cc") or ""
    return {
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "revision": revision(),
        "machine": platform.machine(),
        "cpu": fields.get("model name") or fields.get("Model") or "unknown",
        "cpus": os.cpu_count(),
        "cpus_usable": len(os.sched_getaffinity(0)),
        "memory_kib": int(memory[1]) if len(memory) > 1 else None,
        "kernel": platform.release(),
        "huge_pages": read_text("/sys/kernel/mm/transparent_hugepage/enabled"),
        "governor": read_text("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
        "load_before": read_text("/proc/loadavg"),
        "virtual": "hypervisor" in fields.get("flags", "").split(),
        "compiler": first_line(compiler, "--version") if compiler else "",
        # Those that reach hakmem: not where the lab finds its files.
        "settings": {
            k: v
            for k, v in os.environ.items()
            if k.startswith("HAKMEM_") and k not in LAB_SETTINGS
        },
    }


def describe(
    rounds: int, workloads: Sequence[Workload], allocators: Sequence[Allocator], command: str = ""
) -> dict:
    """The second line of a results file."""
    return {
        **machine(),
        "command": command,
        "rounds": rounds,
        "plan": plan_hash(plan(rounds, workloads, allocators)),
        "allocators": {one.name: {"version": one.version, **one.about} for one in allocators},
        "workloads": {one.key: one.about for one in workloads},
    }


# ---- Noise -------------------------------------------------------------------------------------


def ticks() -> tuple[int, int]:
    """Time stolen by the hypervisor, and all time, of all processors, in ticks."""
    words = read_text("/proc/stat").partition("\n")[0].split()[1:]
    numbers = [int(word) for word in words]
    # Guests' time is in user time already.
    return (numbers[TICK_STEAL] if len(numbers) > TICK_STEAL else 0), sum(numbers[:8])


def calibrate() -> list[float]:
    """Times of the same work, in ms: as far as they differ, something else took the processor."""
    times = []
    for _ in range(CALIBRATION_RUNS):
        start = time.perf_counter()
        value = 1
        for _ in range(CALIBRATION_STEPS):
            value = value * 25214903917 + 11 & 0xFFFFFFFFFFFF
        times.append((time.perf_counter() - start) * 1000)
    return times


class Noise:
    """How quiet the machine is, round by round."""

    def __init__(self) -> None:
        self.before = ticks()

    def of_round(self, number: int) -> dict:
        """Before a round: the loop's times, and the time stolen since the last round began."""
        times = calibrate()
        now = ticks()
        steal, total = now[0] - self.before[0], now[1] - self.before[1]
        self.before = now
        return {
            "round": number,
            "loop_ms": round(min(times), 3),
            "spread": round(max(times) / min(times) - 1, 4),
            "steal": round(steal / total, 4) if total > 0 else 0.0,
            "load": read_text("/proc/loadavg").partition(" ")[0],
        }


# ---- Progress ----------------------------------------------------------------------------------


class Progress(Protocol):
    """Told how far the run is."""

    def begin(self, total: int, done: int) -> None: ...

    def step(self, done: int, text: str, seconds_left: float | None) -> None:
        """`done` steps are behind, the one that `text` tells of begins."""

    def failed(self, text: str) -> None:
        """A process ended with an error, or without proof."""

    def end(self) -> None: ...


class PlainProgress:
    """Lines on stderr, a few now and then, where there is no terminal."""

    def __init__(self, every_s: float = 10.0):
        self.every_s = every_s
        self.total = 0
        self.last = float("-inf")

    def begin(self, total: int, done: int) -> None:
        self.total = total
        gone_on = f", {done} done before" if done else ""
        print(f"{total} processes to run{gone_on}", file=sys.stderr, flush=True)

    def step(self, done: int, text: str, seconds_left: float | None) -> None:
        now = time.monotonic()
        if now - self.last < self.every_s:
            return
        self.last = now
        left = ""
        if seconds_left is not None:
            left = f", about {int(seconds_left) // 60}:{int(seconds_left) % 60:02d} left"
        print(f"{done}/{self.total}{left}: {text}", file=sys.stderr, flush=True)

    def failed(self, text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    def end(self) -> None:
        pass


class Clock:
    """Guesses the time left from how long the same work took before."""

    def __init__(self) -> None:
        self.took: dict[str, list[float]] = {}

    def add(self, step: Step, seconds: float) -> None:
        self.took.setdefault(step.workload.key, []).append(seconds)

    def left(self, steps: Sequence[Step]) -> float | None:
        if not self.took:
            return None
        means = {key: sum(times) / len(times) for key, times in self.took.items()}
        overall = sum(means.values()) / len(means)
        return sum(means.get(step.workload.key, overall) for step in steps)


# ---- From a process to a row -------------------------------------------------------------------


def encode_histogram(pairs: Sequence[Sequence[int]]) -> str:
    """Pairs of a latency in ns and its count, as an HdrHistogram in base64."""
    from hdrh.histogram import HdrHistogram

    histogram = HdrHistogram(1, LONGEST_NS, DIGITS)
    for value, count in pairs:
        if count > 0:
            histogram.record_value(min(max(int(value), 1), LONGEST_NS), int(count))
    encoded = histogram.encode()
    return encoded.decode() if isinstance(encoded, bytes) else encoded


def figures_of(said: dict) -> dict:
    """The columns that a workload's own JSON line fills."""
    row = {name: said[name] for name in SAME_NAME if said.get(name) is not None}
    row |= {ours: said[theirs] for theirs, ours in OTHER_NAME.items()
            if said.get(theirs) is not None}  # fmt: skip
    if said.get("histogram"):
        row["histogram"] = said["histogram"]
    elif said.get("histogram_raw"):
        row["histogram"] = encode_histogram(said["histogram_raw"])
    if said.get("series"):
        points = [(round(at), round(kib)) for at, kib in said["series"]]
        row["series"] = json.dumps(thin(points))
    return row


def said_fault(said: dict, allocator: Allocator) -> str:
    """What a workload's own line says against the allocator; empty where nothing. One that tells
    of no objects leaves it to the witness."""
    for name in proof.FUNCTIONS:
        served_by = said.get(f"{name}_object")
        if served_by is None:
            continue
        if allocator.library is None:
            right = Path(served_by).name.startswith(("libc.so", "libc.musl", "ld-musl"))
        else:
            right = proof.same_file(served_by, allocator.library)
        if not right:
            return f"no proof: {name} was served by {Path(served_by).name or 'nobody'}"
    asked = said.get("asked_bytes_least")
    if not allocator.is_hakmem or asked is None:
        return ""
    served = said.get("hak_served_bytes")
    if served is None:
        return "no proof: the library has no hak_stats"
    # Half, since bytes that a thread has not reported yet may be missing.
    if served * 2 < asked:
        return f"no proof: {served} bytes served of {asked} asked for"
    return ""


def measured_columns(result: Measurement) -> dict:
    row = {
        name: getattr(result, name)
        for name in (
            "peak_rss_kib", "mean_rss_kib", "peak_pss_kib", "mean_pss_kib", "minor_faults",
            "major_faults", "voluntary_switches", "involuntary_switches",
        )
    }  # fmt: skip
    for name in ("wall_s", "user_s", "system_s"):
        row[name] = round(getattr(result, name), 6)
    if result.series:
        row["series"] = json.dumps(result.series)
    return row | result.counters


def with_stderr(error: str, result: Measurement) -> str:
    """The error with the end of what the process said, on one line."""
    said = " ".join(result.stderr.split())
    text = f"{error}: {said[-ERROR_CHARACTERS:]}" if said else error
    return text[: 2 * ERROR_CHARACTERS]


def program_pid(result: Measurement) -> int | None:
    """The process that a driver says it drove; None where it says nothing."""
    pids = (last_json(result.stdout) or {}).get("program_pids") or [None]
    return pids[0]


def driven_columns(said: dict) -> dict:
    """The program's own figures, in place of those of its driver and load generator."""
    unknown = ("wall_s", "voluntary_switches", "involuntary_switches", "major_faults")
    row = dict.fromkeys(unknown)
    row["peak_rss_kib"] = said.get("rss_kib")
    row["minor_faults"] = said.get("faults")
    for name in ("peak_pss_kib", "mean_rss_kib", "mean_pss_kib", "user_s", "system_s"):
        row[name] = said.get(name)
    return row


def row_of(step: Step, result: Measurement, shown: proof.Proof) -> dict:
    """The row of a process that ran. Figures of one that failed are left out: nobody should mean
    them."""
    workload = step.workload
    row = {
        "round": step.round, "position": step.position, "suite": workload.suite,
        "workload": workload.name, "params": workload.params, "allocator": step.allocator.name,
        "seed": step.seed, "proof": shown.text, "processes": shown.processes,
    }  # fmt: skip
    as_expected = result.status == workload.status != 0
    if result.error and not as_expected:
        return row | {"error": with_stderr(result.error, result)}
    if workload.status and not result.error:
        expected = f"ended with status 0, where {workload.status} is its normal end"
        return row | {"error": with_stderr(expected, result)}
    said = last_json(result.stdout) if workload.reports else {}
    if said is None:
        return row | {"error": with_stderr("printed no figures", result)}
    if said.get("linked") == step.allocator.name:
        # A driver's program with the allocator inside: the driver asked it, and glibc's heap.
        row["proof"] = f"linked in; {said.get('glibc_kib', 0)} KiB served by glibc"
    else:
        error = said_fault(said, step.allocator) or shown.error
        if error:
            return row | {"error": error}
    figures = measured_columns(result)
    if figures["peak_rss_kib"] is None:
        figures["peak_rss_kib"] = shown.peak_rss_kib
    if workload.driver:
        figures |= driven_columns(said)
    try:
        figures |= figures_of(said)
    except (TypeError, ValueError) as wrong:
        return row | {"error": f"printed figures that can't be read: {wrong}"}
    return row | figures


# ---- The run -----------------------------------------------------------------------------------


class Runner:
    """Executes a plan. `witness` is the witness's library; `aside` the folder of the libraries."""

    def __init__(
        self, store: Store, allocators: Sequence[Allocator], workloads: Sequence[Workload], *,
        rounds: int, witness: Path, aside: Path, cwd: Path | None = None,
        cpus: set[int] | None = None, counters: bool = False, warm_up: bool = False,
        sample_ms: int = 20, budget_s: float | None = None,
    ):  # fmt: skip
        self.store = store
        self.witness = witness
        self.aside = aside
        self.cwd = cwd
        self.cpus = cpus
        self.counters = counters
        self.sample_ms = sample_ms
        self.budget_s = budget_s
        self.results: dict[tuple[str, int], tuple[str, str]] = {}
        self.steps = plan(rounds, workloads, allocators, warm_up)

    def to_do(self) -> list[Step]:
        """Steps that are not in the file; of warm-ups, those of what is still to be run."""
        left = [s for s in self.steps if s.recorded and s.done_key not in self.store.done]
        wanted = {(step.workload.key, step.allocator.name) for step in left}
        warm = [
            step for step in self.steps
            if not step.recorded and (step.workload.key, step.allocator.name) in wanted
        ]  # fmt: skip
        return warm + left

    def execute(self, step: Step) -> dict:
        """One process: its row."""
        command = [part.replace("{seed}", str(step.seed)) for part in step.workload.command]
        folder = session_folder("records", self._records_in())
        # A measured program may give up its privileges before its end.
        folder.chmod(0o733 | 0o1000)
        try:
            result = measure(
                command, step.allocator,
                witness=(self.witness, folder), environment=dict(step.workload.environment),
                cwd=self.cwd, cpus=self.cpus, timeout=step.workload.timeout,
                sample_ms=self.sample_ms, counters=self.counters,
            )  # fmt: skip
            # Without a process there is nothing to prove, and its error says why.
            shown = proof.Proof(False, "", 0, "") if not result.pid else proof.judge(
                folder, step.allocator, self.aside,
                pid=program_pid(result) if step.workload.driver else result.pid,
                command=command[0],
            )  # fmt: skip
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        row = row_of(step, result, shown)
        if not row.get("error") and step.workload.reports:
            row["error"] = self._other_result(step, last_json(result.stdout) or {})
        return row

    def _other_result(self, step: Step, said: dict) -> str:
        """What is wrong where a program computed something else than under the allocator before."""
        if "hash" not in said:
            return ""
        key = (step.workload.key, step.seed)
        first, who = self.results.setdefault(key, (said["hash"], step.allocator.name))
        return "" if first == said["hash"] else f"its result is not the one that {who} gave"

    def _records_in(self) -> Path:
        """In memory where that can be had: a short process would wait for a disk."""
        memory = Path("/dev/shm")
        return memory if os.access(memory, os.W_OK | os.X_OK) else self.aside

    def run(self, progress: Progress) -> bool:
        """Runs what is to do. False where it was broken off, by Ctrl-C or by the budget: what is
        done is kept, and the process that ran is ended."""
        steps = self.to_do()
        progress.begin(len(steps), sum(1 for s in self.steps if s.done_key in self.store.done))
        try:
            return self._run(steps, progress)
        except KeyboardInterrupt:
            return False
        finally:
            progress.end()

    def _run(self, steps: list[Step], progress: Progress) -> bool:
        noise, clock, number = Noise(), Clock(), None
        begin = time.monotonic()
        for done, step in enumerate(steps):
            if step.round != number:
                number = step.round
                if self._over(begin, clock, steps[done:]):
                    return False
                if step.recorded:
                    self.store.note("noise", noise.of_round(number))
            name = f"{step.workload.key}, {step.allocator.name}"
            where = f"round {number}: {name}" if step.recorded else f"warm-up: {name}"
            progress.step(done, where, clock.left(steps[done:]))
            start = time.monotonic()
            row = self.execute(step)
            clock.add(step, time.monotonic() - start)
            if step.recorded:
                self.store.append(row)
            if row.get("error"):
                progress.failed(f"{where}: {row['error']}")
        return True

    def _over(self, begin: float, clock: Clock, ahead: list[Step]) -> bool:
        """Whether the round that begins now would end after the budget. The first is run to its
        end whatever it takes: half a round compares nothing."""
        number = ahead[0].round
        if self.budget_s is None or number <= 1:
            return False
        expected = clock.left([step for step in ahead if step.round == number]) or 0.0
        return time.monotonic() - begin + expected > self.budget_s


@contextlib.contextmanager
def session(allocators: Sequence[Allocator]):
    """A folder with copies of the libraries and the witness for as long as a run takes: yields the
    allocators, the witness and the folder."""
    aside = aside_folder()
    try:
        yield take(list(allocators), aside), take_witness(aside), aside
    finally:
        shutil.rmtree(aside, ignore_errors=True)
