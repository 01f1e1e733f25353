"""One measured process: started clean under an allocator, watched, and ended if it must be."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import json
import os
import platform
import resource
import selectors
import signal
import struct
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from hakmem import proof
from hakmem.allocators import clean_environment
from hakmem.model import DRIVER, PRELOAD, Allocator

STDOUT_BYTES = 1 << 20
STDERR_BYTES = 64 << 10
SERIES_POINTS = 200
# Fewer samples than these tell nothing of a mean or a peak.
LEAST_SAMPLES = 3
# Reading page tables holds a lock of the process: it gets at least this many times as long without.
SAMPLE_REST = 20
# How long output may still come after the end, from what is left in pipes.
DRAIN_SECONDS = 1.0
PAGE_KIB = os.sysconf("SC_PAGESIZE") >> 10


@dataclass
class Measurement:
    """What one process took. `error` is empty where it ended well. Memory in KiB."""

    error: str = ""
    pid: int = 0
    wall_s: float = 0.0
    user_s: float = 0.0
    system_s: float = 0.0
    peak_rss_kib: int | None = None
    mean_rss_kib: int | None = None
    peak_pss_kib: int | None = None
    mean_pss_kib: int | None = None
    minor_faults: int = 0
    major_faults: int = 0
    voluntary_switches: int = 0
    involuntary_switches: int = 0
    # [ms since the start, KiB], thinned.
    series: list[tuple[int, int]] = field(default_factory=list)
    counters: dict[str, int] = field(default_factory=dict)
    stdout: str = ""
    stderr: str = ""
    status: int | None = None


# ---- Hardware counters -------------------------------------------------------------------------
# By the system call that perf(1) uses: an event opened here, disabled, is inherited by what is
# started, and is enabled there by its exec. So neither this process nor a perf in between is
# counted, and LD_PRELOAD meets the measured program only. Layout: perf_event_open(2).

PERF_SYSCALL = {"x86_64": 298, "aarch64": 241, "riscv64": 241, "ppc64le": 319}
TYPE_HARDWARE, TYPE_SOFTWARE, TYPE_CACHE = 0, 1, 3
# Cache events: which cache, the operation << 8, the result << 16.
DTLB_LOAD_MISSES = 3 | 0 << 8 | 1 << 16
HARDWARE_EVENTS = {
    "instructions": (TYPE_HARDWARE, 1),
    "cycles": (TYPE_HARDWARE, 0),
    "cache_misses": (TYPE_HARDWARE, 3),
    "tlb_misses": (TYPE_CACHE, DTLB_LOAD_MISSES),
}
ATTRIBUTE_BYTES = 64  # the first published size of struct perf_event_attr
TIME_ENABLED_AND_RUNNING = 1 | 2
DISABLED, INHERIT, EXCLUDE_KERNEL, EXCLUDE_HV, ENABLE_ON_EXEC = (
    1 << 0, 1 << 1, 1 << 5, 1 << 6, 1 << 12
)  # fmt: skip
CLOSE_ON_EXEC = 8


def open_event(kind: int, config: int) -> int:
    """File descriptor of a counter for what this thread starts. OSError where there is none."""
    number = PERF_SYSCALL.get(platform.machine())
    if number is None:
        raise OSError("no performance counters on this machine")
    flags = DISABLED | INHERIT | EXCLUDE_KERNEL | EXCLUDE_HV | ENABLE_ON_EXEC
    packed = struct.pack(
        "=IIQQQQQ", kind, ATTRIBUTE_BYTES, config, 0, 0, TIME_ENABLED_AND_RUNNING, flags
    )
    attribute = ctypes.create_string_buffer(packed, ATTRIBUTE_BYTES)
    libc = ctypes.CDLL(None, use_errno=True)
    fd = libc.syscall(number, attribute, 0, -1, -1, ctypes.c_ulong(CLOSE_ON_EXEC))
    if fd < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return fd


def read_event(fd: int) -> int | None:
    """What was counted, scaled up where counters had to be shared; None where nothing was."""
    count, enabled, running = struct.unpack("=QQQ", os.read(fd, 24))
    if running == 0:
        return None
    return count if running >= enabled else round(count * enabled / running)


@contextlib.contextmanager
def counting(events: Mapping[str, tuple[int, int]]) -> Iterator[dict[str, int]]:
    """Counts what is started within; the figures are in the dictionary afterwards."""
    opened: dict[str, int] = {}
    figures: dict[str, int] = {}
    try:
        for name, (kind, config) in events.items():
            with contextlib.suppress(OSError):
                opened[name] = open_event(kind, config)
        yield figures
        for name, fd in opened.items():
            value = read_event(fd)
            if value is not None:
                figures[name] = value
    finally:
        for fd in opened.values():
            os.close(fd)


@functools.cache
def counters_available() -> bool:
    """Whether hardware counters count here; many virtual machines have none."""
    with counting({"instructions": HARDWARE_EVENTS["instructions"]}) as figures:
        subprocess.run(["true"], check=False)
    return figures.get("instructions", 0) > 0


# ---- Memory of a tree of processes -------------------------------------------------------------


def rollup(text: bytes) -> tuple[int, int] | None:
    """Rss and Pss in KiB from smaps_rollup."""
    rss = pss = None
    for line in text.splitlines():
        if line.startswith(b"Rss:"):
            rss = int(line.split()[1])
        elif line.startswith(b"Pss:"):
            pss = int(line.split()[1])
            break
    return None if rss is None or pss is None else (rss, pss)


def memory_of(pid: int) -> tuple[int, int]:
    """Resident memory of one process and its proportional share of it; the first twice where the
    second can't be read; zeros where the process is gone."""
    try:
        with open(f"/proc/{pid}/smaps_rollup", "rb", buffering=0) as file:
            both = rollup(file.read())
        if both is not None:
            return both
    except OSError:
        pass
    try:
        with open(f"/proc/{pid}/statm", "rb", buffering=0) as file:
            rss = int(file.read().split()[1]) * PAGE_KIB
        return rss, rss
    except (OSError, IndexError):
        return 0, 0


def children_of(pid: int) -> list[int]:
    """Its children, by the kernel's own list, else by psutil."""
    found: list[int] = []
    try:
        for task in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{task}/children", "rb", buffering=0) as file:
                found += map(int, file.read().split())
        return found
    except FileNotFoundError:
        if not os.path.exists("/proc/self/task"):
            return []
        try:
            return [child.pid for child in psutil.Process(pid).children()]
        except psutil.Error:
            return []
    except (OSError, ValueError):
        return found


def tree_of(pid: int) -> list[int]:
    pids, left = [], [pid]
    while left:
        here = left.pop()
        if here not in pids:
            pids.append(here)
            left += children_of(here)
    return pids


def thin(points: list[tuple[int, int]], most: int = SERIES_POINTS) -> list[tuple[int, int]]:
    """Evenly thinned, with the first and the last."""
    if len(points) <= most:
        return points
    step = (len(points) - 1) / (most - 1)
    return [points[round(i * step)] for i in range(most)]


class Sampler(threading.Thread):
    """Watches a tree of processes: sums its memory now and then, and ends it when time is up."""

    def __init__(self, pid: int, start: float, sample_ms: int, timeout: float):
        super().__init__(daemon=True)
        self.pid = pid
        self.start_s = start
        self.period_s = sample_ms / 1000
        self.deadline = start + timeout
        self.points: list[tuple[float, int, int]] = []
        self.timed_out = False
        self.stopped = threading.Event()

    def run(self) -> None:
        wait = 0.0
        while not self.stopped.wait(wait):
            now = time.perf_counter()
            if now >= self.deadline:
                self.timed_out = True
                end_group(self.pid)
                return
            rss = pss = 0
            for pid in tree_of(self.pid):
                one = memory_of(pid)
                rss, pss = rss + one[0], pss + one[1]
            if rss > 0:
                self.points.append((now - self.start_s, rss, pss))
            took = time.perf_counter() - now
            wait = max(self.period_s, SAMPLE_REST * took)
            wait = max(0.0, min(wait, self.deadline - time.perf_counter()))

    def stop(self) -> None:
        self.stopped.set()
        self.join()

    def fill(self, into: Measurement) -> None:
        """Peaks, and means weighted by the time that each sample stands for."""
        into.series = thin([(round(at * 1000), pss) for at, _, pss in self.points])
        if len(self.points) < LEAST_SAMPLES:
            return
        into.peak_pss_kib = max(pss for _, _, pss in self.points)
        total = rss_sum = pss_sum = 0.0
        ends = [at for at, _, _ in self.points[1:]] + [max(into.wall_s, self.points[-1][0])]
        for (at, rss, pss), end in zip(self.points, ends, strict=True):
            total += end - at
            rss_sum += rss * (end - at)
            pss_sum += pss * (end - at)
        if total > 0:
            into.mean_rss_kib = round(rss_sum / total)
            into.mean_pss_kib = round(pss_sum / total)


# ---- Output ------------------------------------------------------------------------------------


class Tail:
    """The last bytes of a stream."""

    def __init__(self, most: int):
        self.most = most
        self.bytes = bytearray()

    def add(self, data: bytes) -> None:
        self.bytes += data
        if len(self.bytes) > 2 * self.most:
            del self.bytes[: -self.most]

    def text(self) -> str:
        return bytes(self.bytes[-self.most :]).decode("utf-8", "replace")


class Drain(threading.Thread):
    """Reads what a process prints, so that it never blocks, and keeps the last of it."""

    def __init__(self, streams: Mapping[int, Tail]):
        super().__init__(daemon=True)
        self.streams = streams
        self.wake_read, self.wake_write = os.pipe()

    def run(self) -> None:
        with selectors.DefaultSelector() as waiting:
            for fd in (*self.streams, self.wake_read):
                waiting.register(fd, selectors.EVENT_READ)
            while len(waiting.get_map()) > 1:
                for key, _ in waiting.select():
                    if key.fd == self.wake_read:
                        return
                    data = os.read(key.fd, 1 << 16)
                    if data:
                        self.streams[key.fd].add(data)
                    else:
                        waiting.unregister(key.fd)

    def finish(self) -> None:
        """Waits for the end of output; not for long, since a process in the background that left
        the group may hold the pipe open."""
        self.join(DRAIN_SECONDS)
        os.write(self.wake_write, b"x")
        self.join()
        os.close(self.wake_read)
        os.close(self.wake_write)


# ---- Start and end -----------------------------------------------------------------------------


def end_group(pid: int) -> None:
    """Ends a process that was started here as the first of a group and session, and all that it
    started. `pid` must not have been waited for, so that the number is still its own."""
    try:
        descendants = psutil.Process(pid).children(recursive=True)
    except psutil.Error:
        descendants = []
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)
    for one in descendants:
        # psutil looks at the time of its start first: a number used anew is let be.
        with contextlib.suppress(psutil.Error):
            one.kill()


def environment_for(
    allocator: Allocator, witness: Path | None, folder: Path | None, own: Mapping[str, str]
) -> dict[str, str]:
    environment = {**clean_environment(allocator), **allocator.settings, **own}
    preloaded = [str(path) for path in (allocator.library, witness) if path is not None]
    if preloaded:
        environment[PRELOAD if DRIVER in own else "LD_PRELOAD"] = ":".join(preloaded)
    if folder is not None:
        environment[proof.FOLDER] = str(folder)
    return environment


@contextlib.contextmanager
def on_cpus(cpus: set[int] | None) -> Iterator[None]:
    """What this thread starts within runs on these processors only."""
    if cpus is None:
        yield
        return
    before = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, cpus)
    except OSError as error:
        listed = ",".join(map(str, sorted(cpus)))
        raise ValueError(f"processors {listed} can't be used here: {error.strerror}") from None
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def ending(status: int) -> str:
    """How a process failed, as wait4 tells it; empty where it did not."""
    code = os.waitstatus_to_exitcode(status)
    if code < 0:
        try:
            name = signal.Signals(-code).name
        except ValueError:
            name = f"signal {-code}"
        return f"killed by {name}"
    return f"ended with status {code}" if code > 0 else ""


def start_fault(error: OSError, command: str, cwd: Path | None) -> str:
    if isinstance(error, FileNotFoundError):
        if cwd is not None and not cwd.is_dir():
            return f"there is no folder {cwd}"
        return f"there is no program {command}, or its interpreter is missing"
    if isinstance(error, PermissionError):
        return f"{command} is not a program that may be run: check its permissions (chmod +x)"
    return f"{command} can't be run: {error.strerror}"


def own_peak_kib() -> int:
    """Peak of this process. The kernel counts a child's from before its exec, when it still shares
    this process's memory: a smaller figure of a child is not its own."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1])
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def end_leftovers(group: int) -> None:
    """Ends what a process left running in its group. It must not have been waited for: until then
    nobody else gets its number."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGKILL)


def measure(
    command: Sequence[str],
    allocator: Allocator,
    *,
    witness: tuple[Path, Path] | None = None,
    environment: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    cpus: set[int] | None = None,
    timeout: float = 120.0,
    sample_ms: int = 20,
    counters: bool = False,
    output_limit: int = STDOUT_BYTES,
) -> Measurement:
    """Runs a command under an allocator and measures it. `witness` is the library and the folder
    for its records. Whatever goes wrong with the command is in the `error` of the result."""
    result = Measurement()
    library, folder = witness if witness is not None else (None, None)
    whole = environment_for(allocator, library, folder, environment or {})
    floor = own_peak_kib()
    events = HARDWARE_EVENTS if counters and counters_available() else {}
    with counting(events) as figures:
        start = time.perf_counter()
        try:
            with on_cpus(cpus):
                # A session of its own: Ctrl-C at the terminal is this process's to handle.
                process = subprocess.Popen(
                    list(command), env=whole, cwd=cwd, start_new_session=True,
                    stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                )  # fmt: skip
        except OSError as error:
            result.error = start_fault(error, command[0], cwd)
            return result
        result.pid = process.pid
        watch(process, result, start, timeout, sample_ms, output_limit, floor)
    result.counters = figures
    return result


def watch(
    process: subprocess.Popen, result: Measurement, start: float, timeout: float, sample_ms: int,
    output_limit: int, floor: int,
) -> None:  # fmt: skip
    """Sees the process to its end and fills in the result."""
    out, err = Tail(output_limit), Tail(STDERR_BYTES)
    drain = Drain({process.stdout.fileno(): out, process.stderr.fileno(): err})
    sampler = Sampler(process.pid, start, sample_ms, timeout)
    drain.start()
    sampler.start()
    try:
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        end = time.perf_counter()
    except BaseException:
        end_group(process.pid)
        raise
    finally:
        sampler.stop()
        end_leftovers(process.pid)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        drain.finish()
        process.stdout.close()
        process.stderr.close()
    result.wall_s = end - start
    result.user_s, result.system_s = usage.ru_utime, usage.ru_stime
    result.peak_rss_kib = usage.ru_maxrss if usage.ru_maxrss > floor else None
    result.minor_faults, result.major_faults = usage.ru_minflt, usage.ru_majflt
    result.voluntary_switches, result.involuntary_switches = usage.ru_nvcsw, usage.ru_nivcsw
    result.status = os.waitstatus_to_exitcode(status)
    result.stdout, result.stderr = out.text(), err.text()
    sampler.fill(result)
    if sampler.timed_out:
        result.error = f"not done after {timeout:g} s"
    else:
        result.error = ending(status)


def last_json(text: str) -> dict | None:
    """The object on the last line that is not empty, or None."""
    lines = text.rstrip().rsplit("\n", 1)
    try:
        found = json.loads(lines[-1])
    except ValueError:
        return None
    return found if isinstance(found, dict) else None
