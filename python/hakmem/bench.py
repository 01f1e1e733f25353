"""`hakmem bench`: chooses allocators and workloads, runs them, and says what came of it."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
from rich.progress import Progress as Bar
from rich.table import Table

from hakmem import allocators, locate, report, run, runner, stats, store, suites, sweep
from hakmem.model import Allocator, Workload
from hakmem.process import Measurement, counters_available, measure

# What goes wrong with a user's input, or with what is installed: told in a sentence.
EXPECTED = (
    run.RunError, suites.SuiteError, allocators.AllocatorError, store.StoreError, locate.Missing,
    report.ReportError, stats.StatsError,
)  # fmt: skip
# A verdict on each of m workloads takes 1 + log2(m / 5%) rounds; against the fastest peer, which
# the odd rounds choose, twice as many.
ROUNDS = {"quick": 16, "full": 24}
ROUNDS_DEFAULT = 16
# An own command: never fewer rounds than a verdict needs, nor more than it gains from.
OWN_LEAST, OWN_MOST = 6, 25
OWN_TIMEOUT = 600.0
LIBC = "glibc"


class BarProgress:
    """A bar with the time left, where there is a terminal."""

    def __init__(self, console: Console):
        self.bar = Bar(
            TextColumn("{task.description}"), BarColumn(bar_width=24), MofNCompleteColumn(),
            TextColumn("{task.fields[left]}"), console=console, transient=True,
        )  # fmt: skip
        self.console = console

    def begin(self, total: int, done: int) -> None:
        if done:
            self.console.print(f"{done} processes were done before: going on.")
        self.bar.start()
        self.task = self.bar.add_task("", total=total, left="")

    def step(self, done: int, text: str, seconds_left: float | None) -> None:
        left = ""
        if seconds_left is not None:
            left = f"about {int(seconds_left) // 60}:{int(seconds_left) % 60:02d} left"
        text = text if len(text) <= 48 else text[:45] + "..."
        self.bar.update(self.task, completed=done, description=f"{text:48}", left=left)

    def failed(self, text: str) -> None:
        self.console.print(f"[yellow]refused[/] {text}", highlight=False)

    def end(self) -> None:
        self.bar.stop()


def parse_cpus(text: str | None) -> set[int] | None:
    """`0,2-3` as numbers of processors, each of them usable."""
    if not text:
        return None
    cpus: set[int] = set()
    for part in text.split(","):
        match = re.fullmatch(r"\s*(\d+)(?:-(\d+))?\s*", part)
        if match is None:
            raise run.RunError(f"--cpus takes numbers such as 0,2-3, not {text}")
        first, last = int(match[1]), int(match[2] or match[1])
        cpus.update(range(first, last + 1))
    usable = os.sched_getaffinity(0)
    if not cpus or not cpus <= usable:
        there = ",".join(str(cpu) for cpu in sorted(usable))
        raise run.RunError(f"--cpus {text}: the processors that can be used here are {there}")
    return cpus


def choose(found: Sequence[Allocator], only: str | None) -> list[Allocator]:
    """The allocators that were asked for; hakmem is always among them."""
    if not only:
        return list(found)
    names = {one.name for one in found}
    wanted = [name.strip() for name in only.split(",") if name.strip()]
    unknown = [name for name in wanted if name not in names]
    if unknown:
        raise suites.SuiteError(
            f"no allocator called {', '.join(unknown)}; there are: {' '.join(sorted(names))}"
        )
    return [one for one in found if one.name in wanted or one.is_hakmem]


# The scenarios ask whether hakmem's learning pays: a fixed policy against one that learns.
SCENARIO_VARIANTS = ("baseline:mode=fast", "evolving:mode=learning")


def variants(texts: Sequence[str], chosen: Sequence[Allocator]) -> list[Allocator]:
    """`NAME:OPTION=VALUE,...` as hakmem with these options, called hakmem-NAME."""
    made: list[Allocator] = []
    base = next((one for one in chosen if one.name == "hakmem"), None)
    for text in texts:
        name, colon, rest = text.partition(":")
        if not colon or not re.fullmatch(r"[a-z0-9_]+", name) or base is None:
            raise run.RunError(
                f"--variant takes NAME:OPTION=VALUE,..., such as big:bin_bytes=256k, not {text}"
            )
        settings = run.parse_settings(tuple(rest.split(",")))
        about = {**base.about, "settings": settings}
        made.append(Allocator(f"hakmem-{name}", base.library, base.version, about))
    return made


def results_path(out: Path | None, title: str) -> Path:
    if out is not None:
        return out
    day = time.strftime("%Y%m%d-%H%M%S")
    word = re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")[:40] or "run"
    return Path("hakmem-results") / f"{day}-{word}.csv"


def flag(name: str) -> str:
    """How an option of a workload is given: by its letter too, where it has one. --rounds is how
    often the lab measures."""
    letter = next((f"-{short}" for short, long in suites.LETTERS.items() if long == name), "")
    return letter if name == "rounds" else ", ".join(filter(None, (letter, f"--{name}")))


def show_workload(name: str, console: Console) -> int:
    """One workload with the options that it takes."""
    entry = suites.find(name, locate.native("hakbench"))
    console.print(f"{entry['name']} ({entry['suite']}): {entry.get('about', '')}\n")
    table = Table("option", "default", "meaning", box=None, pad_edge=False)
    for option in entry.get("options", []):
        values = ", ".join(option.get("words", []))
        meaning = f"{option['meaning']}: {values}" if values else option["meaning"]
        table.add_row(flag(option["name"]), str(option["default"]), meaning)
    if entry.get("threads"):
        table.add_row(flag("threads"), ",".join(map(str, suites.THREADS)), "threads")
    table.add_row(flag("seconds"), "1", "how long it is repeated")
    table.add_row(flag("repeats"), "", "exactly so many repeats instead")
    table.add_row(flag("aged"), "", "the heap littered first; --aged=0.9: 90% of the litter freed")
    table.add_row(flag("seed"), "the round", "of sizes and orders")
    console.print(table)
    console.print("\nLists of values are crossed: -t 1,2,4")
    return 0


def show_list(console: Console) -> int:
    entries = suites.listed(locate.native("hakbench"))
    table = Table("suite", "workload", "what it stands for", box=None, pad_edge=False)
    for entry in sorted(entries, key=lambda one: (one["suite"], one["name"])):
        table.add_row(entry["suite"], entry["name"], entry.get("about", ""))
    found, missing = suites.program_workloads("full")
    for workload in found:
        table.add_row(workload.suite, workload.key, workload.about)
    console.print(table)
    for sentence in missing:
        console.print(sentence, highlight=False)
    console.print("\nSuites: quick, full, and each of the above.")
    console.print("`hakmem bench --list WORKLOAD` shows what a workload takes.")
    return 0


def find_allocators(options: dict, console: Console) -> list[Allocator]:
    found, missing = allocators.find(options["peers_dir"], list(options["extra"]))
    chosen = choose(found, options["only"])
    if not any(one.is_hakmem for one in chosen):
        raise locate.Missing("libhakmem.so was not found: pip install . bundles it")
    chosen += variants(options["variants"], chosen)
    for sentence in missing:
        console.print(f"[dim]not compared: {sentence}[/]", highlight=False)
    names = ", ".join(f"{one.name} {one.version}".strip() for one in chosen)
    console.print(f"Allocators: {names}", highlight=False)
    return chosen


# ---- The user's own program --------------------------------------------------------------------


def trial(workload: Workload, cpus: set[int] | None) -> Measurement:
    """One run under the C library's own allocator: how long it takes, and how it ends."""
    libc = Allocator(LIBC, None)
    result = measure(list(workload.command), libc, timeout=workload.timeout, cpus=cpus)
    if result.status is None or (result.error and result.status < 0):
        said = " ".join(result.stderr.split())[-300:]
        raise run.RunError(
            f"the command fails without any of the allocators: {result.error}"
            + (f"; it said: {said}" if said else "")
        )
    if result.error and result.status == 0:
        raise run.RunError(f"the command is {result.error}: --timeout gives it more")
    return result


def own_rounds(seconds: float, allocators_count: int, options: dict, console: Console) -> int:
    """As many as the time allows, once around as a warm-up set aside."""
    if options["rounds"]:
        return options["rounds"]
    one_round = max(seconds, 0.02) * allocators_count
    rounds = int(options["budget"] / one_round) - 1
    if rounds < OWN_LEAST:
        took = (OWN_LEAST + 1) * one_round
        console.print(
            f"One run takes about {seconds:.1f} s, so this takes about {took / 60:.0f} min: "
            f"{OWN_LEAST} rounds are the fewest that tell anything. --only or --rounds shorten it."
        )
    return min(max(rounds, OWN_LEAST), OWN_MOST)


def bench_own(command: list[str], options: dict, console: Console) -> int:
    path = run.find_command(command[0])
    run.check(path)
    timeout = options["timeout"] or OWN_TIMEOUT
    workload = suites.own(command, path.absolute(), timeout)
    cpus = parse_cpus(options["cpus"])
    out = results_path(options["out"], Path(command[0]).name)
    store.check_writable(out)
    chosen = find_allocators(options, console)
    first = trial(workload, cpus)
    if first.status:
        console.print(
            f"The command ends with status {first.status} under the C library's own allocator: "
            "taken as its normal end.", highlight=False,
        )  # fmt: skip
    workload = replace(workload, status=first.status or 0)
    rounds = own_rounds(first.wall_s, len(chosen), options, console)
    finished = execute([workload], chosen, rounds, out, cpus, options, console)
    results = store.read(out)
    print_verdict(stats.verdict_own(results.rows), results.rows, console)
    noise_sentences(results, console)
    return finish(out, finished, options, console)


def print_verdict(verdict: stats.OwnVerdict, rows: list[dict], console: Console) -> None:
    cells = stats.Cells.of(rows)
    table = Table(box=None, pad_edge=False)
    for name in ("allocator", "time", "CPU", "peak memory", "page faults", "÷ best time", "rounds"):
        table.add_column(name, justify="left" if name == "allocator" else "right")
    # The same figure that the sentence below is about.
    source = verdict.memory.source or "peak_rss_kib"
    times = {}
    for name in cells.allocators:
        good = cells.good(verdict.workload, name)
        if good:
            times[name] = median(good.values(), "wall_s")
    best = min(times.values(), default=0.0)
    for name in sorted(times, key=times.__getitem__):
        good = cells.good(verdict.workload, name).values()
        cpu = median(good, "user_s") + median(good, "system_s")
        memory = median(good, source) / 1024
        faults = median(good, "minor_faults")
        style = "bold" if stats.is_hakmem(name) else ""
        table.add_row(
            name, show_seconds(times[name]), show_seconds(cpu), f"{memory:.1f} MiB",
            f"{faults:,.0f}", f"{times[name] / best:.2f}" if best else "", str(len(good)),
            style=style,
        )  # fmt: skip
    console.print()
    console.print(table)
    console.print()
    for sentence in verdict.sentences:
        console.print(f"[bold]{sentence}[/]", highlight=False)
    for name, reasons in verdict.refused.items():
        kinds = sorted(set(reasons))
        console.print(
            f"{name}: {len(reasons)} runs don't count: {'; '.join(kinds[:2])}", highlight=False
        )


def median(rows, column: str) -> float:
    values = sorted(float(row[column]) for row in rows if row.get(column) not in (None, ""))
    if not values:
        return 0.0
    middle = len(values) // 2
    return values[middle] if len(values) % 2 else (values[middle - 1] + values[middle]) / 2


def show_seconds(seconds: float) -> str:
    return f"{seconds:.2f} s" if seconds >= 1 else f"{seconds * 1000:.1f} ms"


# ---- Workloads and suites ----------------------------------------------------------------------


def bench_workloads(words: list[str], options: dict, console: Console) -> int:
    hakbench = locate.native("hakbench")
    if words:
        workloads, left_out = suites.matrix(words[0], words[1:], hakbench), []
        title = words[0]
    else:
        title = options["suite_name"] or "quick"
        workloads, left_out = suites.suite(title, hakbench)
    if options["timeout"]:
        workloads = [replace(one, timeout=options["timeout"]) for one in workloads]
    out = results_path(options["out"], title)
    store.check_writable(out)
    if title == "scenarios" and not options["variants"]:
        options = {**options, "variants": SCENARIO_VARIANTS}
    chosen = find_allocators(options, console)
    for sentence in left_out:
        console.print(f"[dim]{sentence}[/]", highlight=False)
    rounds = options["rounds"] or ROUNDS.get(title, ROUNDS_DEFAULT)
    cpus = parse_cpus(options["cpus"])
    finished = execute(workloads, chosen, rounds, out, cpus, options, console)
    return finish(out, finished, options, console, tables=True)


def execute(
    workloads: list[Workload], chosen: list[Allocator], rounds: int, out: Path,
    cpus: set[int] | None, options: dict, console: Console,
) -> bool:  # fmt: skip
    """Runs the plan, or what is left of it. False where it was broken off."""
    counters = options["counters"]
    if counters and not counters_available():
        console.print("Hardware counters can't be read here: left out.")
        counters = False
    with runner.session(chosen) as (aside_allocators, witness, aside):
        command = shlex.join(["hakmem", *sys.argv[1:]])
        meta = runner.describe(rounds, workloads, aside_allocators, command)
        progress = BarProgress(console) if console.is_terminal else runner.PlainProgress()
        with store.Store.open(out, meta, again=options["again"]) as file:
            one = runner.Runner(
                file, aside_allocators, workloads, rounds=rounds, witness=witness, aside=aside,
                cpus=cpus, counters=counters, warm_up=options["warm_up"],
            )  # fmt: skip
            return one.run(progress)


def noise_sentences(results, console: Console) -> None:
    for sentence in stats.noise(results.rows, "time", results.noise).sentences:
        console.print(sentence, highlight=False)


def finish(
    out: Path, finished: bool, options: dict, console: Console, tables: bool = False
) -> int:
    """Tables where they are wanted, the page, and where all of it is."""
    rows = store.read(out).rows
    if not any(row.get("error") == "" for row in rows):
        console.print(f"No run counts. The reasons are in {out}.", highlight=False)
        return 1
    if tables or not options["no_html"]:
        draw = not options["no_html"]
        with contextlib.ExitStack() as stack:
            if not tables:
                nowhere = stack.enter_context(open(os.devnull, "w"))
                stack.enter_context(contextlib.redirect_stdout(nowhere))
            shown = report.show(out, html=draw, plots=draw)
        if not tables and shown.page is not None:
            console.print(f"\nPage: {shown.page}", highlight=False)
    console.print(f"Results: {out}", highlight=False)
    if not finished:
        again = shlex.join(["hakmem", *sys.argv[1:]])
        again += "" if options["out"] else f" --out {out}"
        console.print(f"Broken off. To go on: {again}", highlight=False)
        return 130
    return 0


def self_profile(words: list[str], options: dict, console: Console) -> int:
    """The sweep takes -t and --sizes, as workloads take their options."""
    entry = {"name": "--self-profile", "options": [{"name": "sizes"}]}
    given = suites.split_options(words, entry)
    unknown = sorted(set(given) - {"sizes", "threads"})
    if unknown:
        raise suites.SuiteError(f"--self-profile takes -t and --sizes, not {', '.join(unknown)}")
    sizes, threads = (",".join(given.get(name, [])) for name in ("sizes", "threads"))
    return sweep.main(sizes, threads, results_path(options["out"], "self-profile"), console)


def main(words: list[str], command: list[str], options: dict) -> int:
    console = Console()
    if options["show_list"]:
        return show_workload(words[0], console) if words else show_list(console)
    if options["self_profile"]:
        return self_profile(words, options, console)
    if command and (words or options["suite_name"]):
        raise run.RunError("either a command after --, or a workload or suite: not both")
    if words and options["suite_name"]:
        raise run.RunError("either a workload or --suite: not both")
    if command:
        return bench_own(command, options, console)
    return bench_workloads(words, options, console)

