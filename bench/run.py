#!/usr/bin/env python3
"""Measures hakmem against its peers on the micro workloads, in interleaved rounds.

    bench/run.py [--rounds N] [--all | --micro-suite | --threads-suite] [--workloads a,b]
                 [--peers a,b | --peers none] [--lib build/libhakmem.so]
                 [--extra-lib NAME=PATH]... [--out FILE.csv]

One process runs at a time. In each round every workload is run under every allocator, in an order
that is rotated from round to round. A process's figures count only where it proves that the
allocator in question served it; anything else (a crash, a wrong proof, a failed self-check) is a
row with an error. Rows are written to FILE.csv as they come, so that Ctrl-C keeps what is done;
FILE.json says on what machine, with what, from which revision. The table is printed at the end;
bench/table.py prints it again.

Libraries are copied aside at the start, so that a build in the meantime changes nothing.
"""

import argparse
import csv
import hashlib
import json
import os
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from pathlib import Path

import table

ROOT = Path(__file__).resolve().parent.parent
WORKLOADS = ROOT / "bench" / "workloads"
SOURCES = ("micro.c", "single.c", "threads.c")
# No builtin, so that no pair of malloc and free is optimised away; no lazy binding, so that the
# first call is like the others.
FLAGS = (
    "-std=c11 -O2 -g -pthread -fno-plt -fno-builtin-malloc -fno-builtin-calloc "
    "-fno-builtin-realloc -fno-builtin-free -Wl,-z,now"
).split()
THREAD_COUNTS = (2, 8)
TIMEOUT_SECONDS = 120
COLUMNS = (
    "round", "position", "suite", "workload", "allocator", "ns_best", "ns_median", "rss_kib",
    "faults", "user_ms", "sys_ms", "ops", "repeats", "seed", "error",
)  # fmt: skip
# Settings of any allocator under test. hakmem's own are let through and recorded.
FOREIGN_SETTINGS = (
    "LD_PRELOAD", "MALLOC_", "MIMALLOC_", "TCMALLOC_", "SNMALLOC_", "RPMALLOC_", "GLIBC_TUNABLES",
    "_RJEM_", "JE_",
)  # fmt: skip


class BenchError(Exception):
    """Something that keeps the benchmark from running at all."""


@dataclass(frozen=True)
class Workload:
    suite: str
    name: str
    arguments: tuple[str, ...]


@dataclass(frozen=True)
class Allocator:
    """One that is measured. `library` is None for the C library's own."""

    name: str
    library: Path | None
    about: dict

    @property
    def is_hakmem(self) -> bool:
        return self.name.startswith("hakmem")


def proof_error(figures: dict, allocator: Allocator) -> str:
    """Why these figures are not the allocator's; empty where they are."""
    for function in ("malloc", "free", "calloc", "realloc"):
        served_by = figures.get(f"{function}_object", "")
        if allocator.library is None:
            right = Path(served_by).name.startswith("libc.so")
        else:
            right = os.path.realpath(served_by) == os.path.realpath(allocator.library)
        if not right:
            return f"no proof: {function} was served by {Path(served_by).name or 'nobody'}"
    served = figures.get("hak_served_bytes")
    if not allocator.is_hakmem:
        return ""
    if served is None:
        return "no proof: the library has no hak_stats"
    # Half, since bytes that a thread has not reported yet may be missing.
    if served * 2 < figures["asked_bytes_least"]:
        return f"no proof: {served} bytes served of {figures['asked_bytes_least']} asked for"
    return ""


def run_one(micro: Path, workload: Workload, allocator: Allocator) -> dict:
    """One process: its figures, or a dictionary with an error."""
    environment = {
        key: value for key, value in os.environ.items() if not key.startswith(FOREIGN_SETTINGS)
    }
    if allocator.library is not None:
        environment["LD_PRELOAD"] = str(allocator.library)
    command = [str(micro), *workload.arguments]
    try:
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=TIMEOUT_SECONDS
        )
    except subprocess.TimeoutExpired:
        return {"error": f"not done after {TIMEOUT_SECONDS} s"}
    said = " ".join(done.stderr.split())[:200]
    if done.returncode < 0:
        return {"error": f"killed by signal {-done.returncode} {said}".strip()}
    if done.returncode != 0:
        return {"error": f"ended with status {done.returncode} {said}".strip()}
    try:
        figures = json.loads(done.stdout)
    except json.JSONDecodeError:
        return {"error": f"printed no figures {said}".strip()}
    wrong = proof_error(figures, allocator)
    return {"error": wrong} if wrong else figures


def build_micro(compiler: str, into: Path) -> Path:
    """Compiles the workloads."""
    into.mkdir(parents=True, exist_ok=True)
    micro = into / "micro"
    sources = [str(WORKLOADS / name) for name in SOURCES]
    command = [compiler, *FLAGS, *sources, "-ldl", "-o", str(micro)]
    try:
        subprocess.run(command, check=True)
    except FileNotFoundError:
        raise BenchError(f"no compiler called {compiler}: choose one with --cc") from None
    except subprocess.CalledProcessError:
        raise BenchError("the workloads could not be compiled") from None
    return micro


def list_workloads(micro: Path) -> list[Workload]:
    listed = subprocess.run([str(micro), "list"], check=True, capture_output=True, text=True)
    found = []
    for line in listed.stdout.splitlines():
        name, _, threads = line.partition(" ")
        if not threads:
            found.append(Workload("micro", name, (name,)))
            continue
        for count in THREAD_COUNTS:
            found.append(Workload("threads", f"{name}-{count}", (name, str(count))))
    return found


def shown_path(path: Path) -> str:
    """A path without anything of the machine in it."""
    path = path.resolve()
    return str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else path.name


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def take(name: str, path: Path, aside: Path, about: dict) -> Allocator:
    """An allocator whose library is copied aside."""
    if not path.exists():
        raise BenchError(f"{name}: there is no {path}")
    copy = aside / f"{name}.so"
    shutil.copyfile(path, copy)
    copy.chmod(0o755)
    return Allocator(name, copy, {"file": shown_path(path), "sha256": sha256(copy), **about})


def gather(options: argparse.Namespace, aside: Path) -> list[Allocator]:
    """hakmem if it is there, extra libraries, peers, and glibc."""
    allocators = []
    if options.lib.exists():
        allocators.append(take("hakmem", options.lib, aside, {}))
    elif options.lib_given:
        raise BenchError(f"hakmem: there is no {options.lib}")
    else:
        print(f"run.py: no {shown_path(options.lib)}: peers only", file=sys.stderr)
    for text in options.extra_lib:
        name, equals, path = text.partition("=")
        if not equals or not name.replace("-", "").replace("_", "").isalnum():
            raise BenchError(f"--extra-lib takes NAME=PATH, not {text}")
        allocators.append(take(name, Path(path), aside, {"extra": True}))

    versions_file = options.peers_dir / "versions.json"
    wanted = None if options.peers == "all" else options.peers.split(",")
    if wanted == ["none"]:
        wanted = []
    known: dict[str, dict] = {}
    if wanted is None or any(name != "glibc" for name in wanted):
        if not versions_file.exists():
            raise BenchError(
                f"no peers in {options.peers_dir}: build them with bench/peers/build.sh"
            )
        known = {entry["name"]: entry for entry in json.loads(versions_file.read_text())}
    for name in [*known, "glibc"] if wanted is None else wanted:
        if name == "glibc":
            version = " ".join(platform.libc_ver())
            allocators.append(Allocator("glibc", None, {"version": version}))
        elif name not in known:
            raise BenchError(f"no peer called {name}; there are: {' '.join(known)} glibc")
        else:
            peer = take(name, options.peers_dir / f"{name}.so", aside, known[name])
            if peer.about["sha256"] != sha256(peer.library):
                raise BenchError(f"{name}.so is not the one that versions.json tells of")
            allocators.append(peer)
    names = [allocator.name for allocator in allocators]
    if len(set(names)) != len(names):
        raise BenchError("two allocators have the same name")
    if not allocators:
        raise BenchError("nothing to measure")
    return allocators


def first_line(*command: str) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    except OSError:
        return ""
    return done.stdout.partition("\n")[0] if done.returncode == 0 else ""


def read_text(path: str) -> str:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return ""


def describe(options: argparse.Namespace, allocators: list[Allocator]) -> dict:
    """What a reader must know to believe the figures, or to get them again."""
    model = [
        line.partition(":")[2].strip()
        for line in read_text("/proc/cpuinfo").splitlines()
        if line.startswith("model name")
    ]
    memory = read_text("/proc/meminfo").partition("\n")[0].split()
    revision = first_line("git", "rev-parse", "HEAD") or "none"
    if revision != "none" and first_line("git", "status", "--porcelain", "--untracked-files=no"):
        revision += " and changes"
    return {
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "revision": revision,
        "command": shlex.join([f"bench/{Path(sys.argv[0]).name}", *sys.argv[1:]]).replace(
            f"{ROOT}/", ""
        ),
        "machine": platform.machine(),
        "cpu": model[0] if model else "unknown",
        "cpus": os.cpu_count(),
        "memory_kib": int(memory[1]) if len(memory) > 1 else None,
        "kernel": platform.release(),
        "huge_pages": read_text("/sys/kernel/mm/transparent_hugepage/enabled"),
        "load_before": read_text("/proc/loadavg"),
        "compiler": first_line(options.cc, "--version"),
        "flags": " ".join(FLAGS),
        "rounds": options.rounds,
        "settings": {k: v for k, v in os.environ.items() if k.startswith("HAKMEM_")},
        "allocators": {allocator.name: allocator.about for allocator in allocators},
    }


def is_candidate(allocator: Allocator) -> bool:
    return allocator.is_hakmem or allocator.about.get("extra", False)


class Progress:
    """A line on stderr with the time left, guessed from how long the same work took before."""

    def __init__(self, total: int):
        self.total = total
        self.done = 0
        self.took: dict[str, list[float]] = {}
        self.all: list[float] = []
        self.live = sys.stderr.isatty()

    def add(self, workload: str, seconds: float) -> None:
        self.done += 1
        self.took.setdefault(workload, []).append(seconds)
        self.all.append(seconds)

    def left(self, workloads: list[str]) -> float:
        overall = sum(self.all) / len(self.all) if self.all else 0.5
        mean = {w: sum(times) / len(times) for w, times in self.took.items()}
        return sum(mean.get(workload, overall) for workload in workloads)

    def show(self, text: str, to_do: list[str]) -> None:
        left = int(self.left(to_do))
        line = f"{self.done}/{self.total}, about {left // 60}:{left % 60:02d} left, {text}"
        if self.live:
            print(f"\r\x1b[K{line}", end="", file=sys.stderr, flush=True)
        elif self.done % 20 == 0:
            print(line, file=sys.stderr, flush=True)

    def end(self) -> None:
        if self.live:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)


def plan(
    rounds: int, workloads: list[Workload], allocators: list[Allocator]
) -> list[tuple[int, int, Workload, Allocator]]:
    """Every process of the run in order. Within a round the allocators of one workload follow each
    other, so that they share the machine's mood; who goes first moves on by one each time."""
    steps = []
    for number in range(1, rounds + 1):
        for index, workload in enumerate(workloads):
            first = (number - 1 + index) % len(allocators)
            for position in range(len(allocators)):
                allocator = allocators[(first + position) % len(allocators)]
                steps.append((number, position, workload, allocator))
    return steps


def measure(
    steps: list[tuple[int, int, Workload, Allocator]], micro: Path, file, progress: Progress
) -> None:
    """Runs every step and writes its row at once."""
    writer = csv.DictWriter(file, COLUMNS, extrasaction="ignore", restval="")
    writer.writeheader()
    for done, (number, position, workload, allocator) in enumerate(steps):
        progress.show(
            f"round {number}: {workload.name}, {allocator.name}",
            [step[2].name for step in steps[done:]],
        )
        start = time.monotonic()
        # The round is the seed: other sizes and orders each time, the same for all in a round.
        seeded = replace(workload, arguments=(*workload.arguments, "--seed", str(number)))
        row = run_one(micro, seeded, allocator)
        progress.add(workload.name, time.monotonic() - start)
        row.update(
            round=number, position=position, suite=workload.suite, workload=workload.name,
            allocator=allocator.name, seed=number, error=row.get("error", ""),
        )  # fmt: skip
        writer.writerow(row)
        file.flush()


def add_common_arguments(parser: argparse.ArgumentParser) -> None:
    """What start.py takes too."""
    parser.add_argument(
        "--peers", default="all", metavar="A,B", help="these only; 'none', 'glibc' (default: all)"
    )
    parser.add_argument("--peers-dir", type=Path, default=ROOT / "build" / "peers", metavar="DIR")
    parser.add_argument("--lib", type=Path, metavar="FILE", help="default: build/libhakmem.so")
    parser.add_argument("--extra-lib", action="append", default=[], metavar="NAME=FILE")
    parser.add_argument("--cc", default=os.environ.get("CC", "gcc"), help="compiler of workloads")
    parser.add_argument("--markdown", action="store_true", help="print the tables as Markdown")


def finish_arguments(parser: argparse.ArgumentParser) -> argparse.Namespace:
    options = parser.parse_args()
    if options.rounds < 1:
        parser.error("--rounds must be 1 or more")
    options.lib_given = options.lib is not None
    options.lib = options.lib or ROOT / "build" / "libhakmem.so"
    return options


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="measure hakmem against its peers on the micro workloads",
        epilog="docs/benchmarks.md says how to read the result.",
    )
    suites = parser.add_mutually_exclusive_group()
    suites.add_argument("--all", action="store_true", help="both suites (default)")
    suites.add_argument("--micro-suite", action="store_true", help="one thread only")
    suites.add_argument("--threads-suite", action="store_true", help="2 and 8 threads only")
    add_common_arguments(parser)
    parser.add_argument("--rounds", type=int, default=11, help="rounds (default 11)")
    parser.add_argument("--workloads", default="", metavar="A,B", help="these workloads only")
    parser.add_argument(
        "--out", type=Path, metavar="FILE.csv", default=ROOT / "build" / "bench" / "micro.csv",
        help="default: build/bench/micro.csv",
    )  # fmt: skip
    return finish_arguments(parser)


def choose(options: argparse.Namespace, workloads: list[Workload]) -> list[Workload]:
    if options.workloads:
        named = {workload.name: workload for workload in workloads}
        unknown = [name for name in options.workloads.split(",") if name not in named]
        if unknown:
            raise BenchError(
                f"no workload called {' '.join(unknown)}; there are: {' '.join(named)}"
            )
        return [named[name] for name in options.workloads.split(",")]
    if options.micro_suite:
        return [workload for workload in workloads if workload.suite == "micro"]
    if options.threads_suite:
        return [workload for workload in workloads if workload.suite == "threads"]
    return workloads


def bench(options: argparse.Namespace, aside: Path) -> int:
    micro = build_micro(options.cc, aside)
    workloads = choose(options, list_workloads(micro))
    allocators = gather(options, aside)
    about = describe(options, allocators)
    steps = plan(options.rounds, workloads, allocators)
    progress = Progress(len(steps))
    options.out.parent.mkdir(parents=True, exist_ok=True)
    interrupted = False
    with options.out.open("w", newline="", encoding="utf-8") as file:
        for key in (
            "date",
            "revision",
            "command",
            "cpu",
            "cpus",
            "kernel",
            "huge_pages",
            "compiler",
        ):
            file.write(f"# {key}: {about[key]}\n")
        candidates = [allocator.name for allocator in allocators if is_candidate(allocator)]
        peers = [a.name for a in allocators if not is_candidate(a) and a.name != "glibc"]
        file.write(f"# candidates: {' '.join(candidates)}\n# peers: {' '.join(peers)}\n")
        try:
            measure(steps, micro, file, progress)
        except KeyboardInterrupt:
            interrupted = True
    progress.end()
    about["load_after"] = read_text("/proc/loadavg")
    about["interrupted"] = interrupted
    options.out.with_suffix(".json").write_text(json.dumps(about, indent=2) + "\n")
    results, _ = table.load(options.out)
    if results.rows:
        print(table.report(results, options.markdown))
    print(f"\nrows: {options.out}", file=sys.stderr)
    return 130 if interrupted else 0


def main() -> int:
    options = parse_arguments()
    with tempfile.TemporaryDirectory(prefix="hakmem-bench-") as aside:
        try:
            return bench(options, Path(aside))
        except BenchError as error:
            print(f"run.py: {error}", file=sys.stderr)
            return 1


if __name__ == "__main__":
    sys.exit(main())
