"""What the drivers of real programs share: the environment, memory over time, the end of it all.

A driver is a process of its own that starts a program under the allocator in question and puts load
on it. The allocator is to serve the program, not the driver or the load generator, so it comes in
HAKMEM_LAB_PRELOAD: the value that LD_PRELOAD has for the program alone.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import json
import os
import pwd
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from hakmem.model import Workload

PRELOAD = "HAKMEM_LAB_PRELOAD"
WITNESS = "HAKWITNESS"
# Tells the harness that a workload is a driver: it gets PRELOAD and no LD_PRELOAD.
DRIVER = "HAKMEM_LAB_DRIVER"
# Settings of the drivers' own, and of interpreters, that change what a program does.
NOT_INHERITED = (
    "LD_PRELOAD", "HAKMEM_LAB_", "HAKMEM_NATIVE_DIR", "HAKMEM_PEERS", "LC_", "LANG", "PYTHON",
    "NODE_", "PG", "REDISCLI_",
)  # fmt: skip
SERIES_POINTS = 200
# A driver gives up before the harness does, which can only kill it.
DRIVER_SECONDS = 100
TIMEOUT_SECONDS = 120.0


class Failed(Exception):
    """A program ended badly, or a self-check found a wrong result."""


class Unusable(Exception):
    """The program is not installed, or this workload does not apply to the allocator."""


# ---- What can be run -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Need:
    """A program that must be there, the package that has it, and where else to look for it."""

    program: str
    package: str
    folders: tuple[str, ...] = ()

    def path(self) -> str | None:
        places = os.pathsep.join((os.environ.get("PATH", os.defpath), *self.folders))
        return shutil.which(self.program, path=places)

    def found(self) -> str:
        path = self.path()
        if path is None:
            raise Unusable(f"{self.program} is not installed: install the package {self.package}")
        return path


def missing(*needs: Need) -> str:
    """What is not installed, in one line; empty where all is there."""
    absent = [need for need in needs if need.path() is None]
    if not absent:
        return ""
    programs = ", ".join(need.program for need in absent)
    packages = " ".join(dict.fromkeys(need.package for need in absent))
    return f"not installed: {programs} (apt install {packages})"


def workload(
    program: str,
    name: str,
    params: str,
    options: Sequence[str],
    about: str,
    threads: int = 1,
) -> Workload:
    """A workload of the suite "real": a driver of this package with its options."""
    command = (sys.executable, "-m", "hakmem.programs", program, *options, "--seed", "{seed}")
    return Workload(
        name=name,
        suite="real",
        command=command,
        params=params,
        threads=threads,
        timeout=TIMEOUT_SECONDS,
        about=about,
        environment=((DRIVER, "1"),),
    )


def cache_folder() -> Path:
    """Where things are kept that are made once, and are the same under every allocator."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "hakmem"


def version_of(argv: Sequence[str]) -> str:
    """The first line that a program says about its version, without the allocator."""
    done = subprocess.run(argv, env=environment(""), capture_output=True, text=True, timeout=30)
    lines = (done.stdout or done.stderr).strip().splitlines()
    return lines[0] if lines else "unknown"


# ---- The allocator -------------------------------------------------------------------------------


def preload() -> str:
    """The value of LD_PRELOAD for the program under test; empty for the C library's own."""
    return os.environ.get(PRELOAD, "")


def names_allocator(value: str) -> bool:
    """Whether the first library of a value of LD_PRELOAD is an allocator, not the witness."""
    first = os.path.basename(value.partition(":")[0])
    return bool(first) and not first.startswith("libhakwitness")


def c_library() -> str:
    """The file of the C library that this process runs on."""
    with open("/proc/self/maps") as file:
        for line in file:
            path = line.rstrip("\n").partition("/")[2]
            if os.path.basename(path).startswith(("libc.so", "libc-2")):
                return "/" + path
    raise Unusable("this Python runs on no glibc")


def preload_over_own() -> str:
    """`preload()` for a program that is linked with an allocator of its own, as a library.

    Where no allocator is preloaded, the C library is, so that it serves and not the program's.
    """
    value = preload()
    if names_allocator(value):
        return value
    return ":".join(filter(None, (c_library(), value)))


def leave_preload() -> None:
    """Starts this process again without LD_PRELOAD, if it has one: a driver is not under test."""
    inherited = os.environ.pop("LD_PRELOAD", "")
    if not inherited:
        return
    os.environ.setdefault(PRELOAD, inherited)
    os.execv(sys.executable, [sys.executable, "-m", "hakmem.programs", *sys.argv[1:]])


def environment(preloaded: str, **extra: str) -> dict[str, str]:
    """The environment of a program: with `preloaded` as its LD_PRELOAD, or with none."""
    env = {key: value for key, value in os.environ.items() if not key.startswith(NOT_INHERITED)}
    env["LC_ALL"] = "C.UTF-8"
    if preloaded:
        env["LD_PRELOAD"] = preloaded
    else:
        env.pop(WITNESS, None)
    env.update(extra)
    return env


def reachable(path: str) -> bool:
    """Whether any user can read the file."""
    try:
        folders = Path(os.path.abspath(path)).parents
        return bool(os.stat(path).st_mode & 0o4) and all(
            os.stat(folder).st_mode & 0o1 for folder in folders
        )
    except OSError:
        return False


class ForOtherUser:
    """The allocator and the witness's folder, where a program of another user can reach them.

    Libraries that only this user can read are copied into `work`. The witness's records come to a
    folder in `work` and are moved to the harness's at the end; there they name the library that was
    copied, to the byte, instead of its copy.
    """

    def __init__(self, work: Path):
        self.copies: dict[str, str] = {}
        self.preload = ":".join(self._usable(name, work) for name in preload().split(":") if name)
        self.records = work / "witness"
        self.records.mkdir()
        self.records.chmod(0o777)

    def _usable(self, name: str, work: Path) -> str:
        if "/" not in name or reachable(name):
            return name
        folder = work / "libraries"
        folder.mkdir(exist_ok=True)
        folder.chmod(0o755)
        copy = folder / os.path.basename(name)
        shutil.copy(name, copy)
        copy.chmod(0o755)
        self.copies[str(copy)] = name
        return str(copy)

    def environment(self, **extra: str) -> dict[str, str]:
        env = environment(self.preload, **extra)
        if WITNESS in env:
            env[WITNESS] = str(self.records)
        return env

    def hand_over(self) -> None:
        target = os.environ.get(WITNESS)
        if not target:
            return
        for record in sorted(self.records.iterdir()):
            text = record.read_text(encoding="utf-8", errors="replace")
            for copy, original in self.copies.items():
                text = text.replace(copy, original)
            (Path(target) / record.name).write_text(text, encoding="utf-8")


def other_user() -> tuple[int, int] | None:
    """(uid, gid) for programs that refuse to run as root; None where we are not root."""
    if os.geteuid() != 0:
        return None
    entry = pwd.getpwnam("nobody")
    return entry.pw_uid, entry.pw_gid


# ---- Processes -----------------------------------------------------------------------------------

_libc = ctypes.CDLL(None, use_errno=True)
_PR_SET_PDEATHSIG = 1


def _before_exec(user: tuple[int, int] | None, stop: signal.Signals) -> Callable[[], None]:
    def prepare() -> None:
        if user:
            os.setgroups([])
            os.setgid(user[1])
            os.setuid(user[0])
        # A program does not outlive a driver that is killed. After the change of user, which
        # clears it.
        _libc.prctl(_PR_SET_PDEATHSIG, stop, 0, 0, 0)

    return prepare


@contextlib.contextmanager
def started(
    argv: Sequence[str],
    env: dict[str, str],
    log: Path,
    stop: signal.Signals = signal.SIGTERM,
    user: tuple[int, int] | None = None,
    seconds: float = 20,
    **popen,
) -> Iterator[subprocess.Popen]:
    """A program that runs inside the block, ended by its own pid; it must end with status 0.

    Where its input is a pipe, the end of its input ends it; else the signal `stop` does.
    """
    with open(log, "ab") as file:
        popen.setdefault("stdin", subprocess.DEVNULL)
        popen.setdefault("stdout", file)
        process = subprocess.Popen(
            argv, env=env, stderr=file, preexec_fn=_before_exec(user, stop), **popen
        )
    try:
        yield process
        if process.stdin is not None:
            with contextlib.suppress(BrokenPipeError):  # it ended by itself: its status says how
                process.stdin.close()
        elif process.poll() is None:
            process.send_signal(stop)
        try:
            status = process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise Failed(f"{argv[0]} did not end in {seconds} s") from None
        if status != 0:
            raise Failed(f"{argv[0]} ended with status {status}")
    except Failed as failure:
        raise Failed(f"{failure}{tail(log)}") from None
    finally:
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()
        end(process, stop)


def start_of(pid: int) -> str:
    """When a process was started, which tells it from a later one of the same number."""
    with contextlib.suppress(OSError), open(f"/proc/{pid}/stat") as file:
        return file.read().rpartition(")")[2].split()[19]
    return ""


def end(process: subprocess.Popen, stop: signal.Signals = signal.SIGTERM) -> None:
    """Makes sure that a process and what it started are gone."""
    if process.poll() is not None:
        return
    members = {pid: start_of(pid) for pid in tree(process.pid)}
    process.send_signal(stop)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(5)
    for pid, started_at in members.items():
        if started_at and start_of(pid) == started_at:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
    process.wait()


def tail(log: Path) -> str:
    try:
        text = " ".join(log.read_text(encoding="utf-8", errors="replace").split())
    except OSError:
        return ""
    return f" ({text[-600:]})" if text else ""


def tool(argv: Sequence[str], seconds: float = 60, **run) -> str:
    """What a helper prints that is not under test: load generator or client."""
    run.setdefault("env", environment(""))
    try:
        done = subprocess.run(
            argv,
            capture_output=True,
            text=True,
            timeout=seconds,
            stdin=subprocess.DEVNULL,
            **run,
        )
    except subprocess.TimeoutExpired:
        raise Failed(f"{argv[0]} was not done after {seconds} s") from None
    if done.returncode != 0:
        said = " ".join((done.stderr or done.stdout).split())[-600:]
        raise Failed(f"{argv[0]} ended with status {done.returncode} ({said})")
    return done.stdout


def wait_for(condition: Callable[[], object], what: str, process: subprocess.Popen) -> object:
    """Waits until the condition holds. It may raise OSError or Failed while it does not."""
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError, Failed):
            value = condition()
            if value:
                return value
        if process.poll() is not None:
            raise Failed(f"{what}: the program ended with status {process.returncode}")
        time.sleep(0.02)
    raise Failed(f"no {what} within 20 s")


def children(pid: int) -> list[int]:
    found = []
    with contextlib.suppress(OSError):
        for thread in os.listdir(f"/proc/{pid}/task"):
            with contextlib.suppress(OSError), open(f"/proc/{pid}/task/{thread}/children") as file:
                found += [int(word) for word in file.read().split()]
    return found


def tree(pid: int) -> list[int]:
    """The process and all its descendants."""
    found = [pid]
    for member in found:
        found += children(member)
    return found


def free_port() -> int:
    """A loopback port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@contextlib.contextmanager
def work_folder() -> Iterator[Path]:
    """An empty folder that any user may enter, removed at the end."""
    with tempfile.TemporaryDirectory(prefix="hakmem-lab-", ignore_cleanup_errors=True) as name:
        os.chmod(name, 0o755)
        yield Path(name)


# ---- Memory and processor time -------------------------------------------------------------------


def memory_fields(pid: int, name: str, wanted: tuple[str, ...]) -> dict[str, int]:
    """Fields in KiB of /proc/PID/status or smaps_rollup; those that can't be read are missing."""
    found = {}
    with contextlib.suppress(OSError), open(f"/proc/{pid}/{name}") as file:
        for line in file:
            key, _, rest = line.partition(":")
            if key in wanted:
                found[key] = int(rest.split()[0])
    return found


def usage(pid: int) -> dict[str, float]:
    """Processor seconds and minor faults of the process and its descendants, ended ones too."""
    ticks = os.sysconf("SC_CLK_TCK")
    total = {"user_s": 0.0, "system_s": 0.0, "minor_faults": 0.0}
    for member in tree(pid):
        with contextlib.suppress(OSError), open(f"/proc/{member}/stat") as file:
            words = file.read().rpartition(")")[2].split()
            total["user_s"] += (int(words[11]) + int(words[13])) / ticks
            total["system_s"] += (int(words[12]) + int(words[14])) / ticks
            total["minor_faults"] += int(words[7]) + int(words[8])
    return total


@dataclass
class Watch:
    """Memory and processor time of a process and its descendants, sampled while it is under load.

    rss_kib adds up the peaks of the processes that lived at one time, so pages that they share
    count more than once; the PSS figures share them out.
    """

    pid: int
    every: float = 0.05
    peak_rss: int = 0
    samples: list[tuple[float, int, int]] = field(default_factory=list)
    before: dict[str, float] = field(default_factory=dict)

    def __enter__(self) -> Watch:
        self.start = time.monotonic()
        self.before = usage(self.pid)
        self.over = threading.Event()
        self.thread = threading.Thread(target=self._sample_all, daemon=True)
        self.thread.start()
        return self

    def __exit__(self, *_) -> None:
        self.over.set()
        self.thread.join()
        self.sample()
        after = usage(self.pid)
        self.used = {key: round(after[key] - self.before[key], 4) for key in after}

    def _sample_all(self) -> None:
        while not self.over.wait(self.every):
            self.sample()

    def sample(self) -> None:
        peak = pss = rss = 0
        for pid in tree(self.pid):
            peak += memory_fields(pid, "status", ("VmHWM",)).get("VmHWM", 0)
            now = memory_fields(pid, "smaps_rollup", ("Pss", "Rss"))
            pss += now.get("Pss", 0)
            rss += now.get("Rss", 0)
        self.peak_rss = max(self.peak_rss, peak)
        if pss:
            self.samples.append((time.monotonic() - self.start, pss, rss))

    def figures(self) -> dict:
        found: dict = {"rss_kib": self.peak_rss}
        if self.samples:
            pss = [sample[1] for sample in self.samples]
            found["peak_pss_kib"] = max(pss)
            found["mean_pss_kib"] = round(statistics.fmean(pss))
            found["mean_rss_kib"] = round(statistics.fmean(sample[2] for sample in self.samples))
            step = -(-len(self.samples) // SERIES_POINTS)
            found["series"] = [[round(at * 1e3), kib] for at, kib, _ in self.samples[::step]]
        found["user_s"] = self.used["user_s"]
        found["system_s"] = self.used["system_s"]
        found["faults"] = int(self.used["minor_faults"])
        return found


# ---- Figures -------------------------------------------------------------------------------------


def times(ops: int, times_ns: Sequence[int]) -> dict:
    """The figures of a program that did `ops` operations in each of its repeats."""
    if ops <= 0 or not times_ns:
        raise Failed("the program did nothing")
    seconds = sum(times_ns) / 1e9
    return {
        "ops": ops * len(times_ns),
        "repeats": len(times_ns),
        "seconds": round(seconds, 6),
        "throughput": round(ops * len(times_ns) / seconds, 3),
        "ns_best": round(min(times_ns) / ops, 3),
        "ns_median": round(statistics.median(times_ns) / ops, 3),
    }


def whole(ops: int, seconds: float) -> dict:
    """The figures of one stretch of load."""
    return times(ops, [round(seconds * 1e9)])


# Of ten thousand samples, how many are not above it.
PERCENTILES = {
    "p50_ns": 5000, "p90_ns": 9000, "p95_ns": 9500, "p99_ns": 9900, "p999_ns": 9990,
    "p9999_ns": 9999, "max_ns": 10000,
}  # fmt: skip


def percentiles(latencies_ns: Sequence[int]) -> dict[str, int]:
    """Nearest-rank percentiles; those above which no whole sample lies are left out."""
    ordered = sorted(latencies_ns)
    found = {}
    for name, share in PERCENTILES.items():
        if share == 10000 or len(ordered) * (10000 - share) >= 10000:
            found[name] = ordered[-(-len(ordered) * share // 10000) - 1]
    return found


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]


def run_to_done(argv: Sequence[str], env: dict[str, str], work: Path) -> tuple[dict, dict]:
    """Runs a program that prints one line of JSON when it is done and waits for end of input.

    Returns what it printed and what it took. It is looked at while it waits, so that its peak is
    its own and whole.
    """
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with started(argv, env, work / "log", **pipes) as process:
        with Watch(process.pid) as watch:
            line = process.stdout.readline()
        if not line:
            process.wait()
            raise Failed(f"{argv[0]} ended with status {process.returncode} and no figures")
        try:
            answer = json.loads(line)
        except ValueError:
            raise Failed(f"{argv[0]} printed no figures: {line[:200]!r}") from None
    return answer, watch.figures() | {"program_pids": [process.pid]}
