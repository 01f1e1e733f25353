#!/usr/bin/env python3
"""demo.py: a real program under glibc's malloc and under hakmem, side by side.

    demo.py --lib build/libhakmem.so [--rounds 5] [-- COMMAND ARGUMENTS...]

Without a command the program is Python itself: JSON, dicts and lists, an SQLite database in memory,
regular expressions and byte strings. A command may also come from HAK_DEMO_COMMAND, split as a
shell splits words; no shell runs it. HAKMEM_* options in the environment reach the runs under
hakmem.

The two allocators take turns in every round. No run counts that doesn't prove who served it: the
built-in program asks the loader which object malloc is in and, under hakmem, whether hakmem knows
the block that malloc returned; any other command must leave hakmem's report behind at exit. Needs
Python's standard library, nothing else.
"""

import argparse
import json
import os
import re
import resource
import shlex
import statistics
import subprocess
import sys
import tempfile
import time

WIDTH = 80
CLASS_ROWS = 5
ALLOCATORS = ("glibc", "hakmem")


# ---- The built-in program: runs in a process of its own ------------------------------------------


def workload_json():
    rows = [
        {
            "id": i,
            "name": f"customer {i % 997}",
            "tags": [f"t{i % 7}", f"t{i % 31}", "all"],
            "address": {"street": f"{i} High Street", "code": str(10000 + i % 9000)},
            "amounts": [i * 0.5, i * 0.25, i % 100],
        }
        for i in range(20000)
    ]
    text = json.dumps(rows)
    back = json.loads(text)
    return len(text) + sum(len(row["tags"]) for row in back)


def workload_objects():
    index = {}
    for i in range(150000):
        index.setdefault(f"key {i * 7919 % 30011}", []).append((i, str(i)))
    for key in list(index)[::2]:
        del index[key]
    nested = [[j for j in range(i % 50)] for i in range(20000)]
    return sum(len(v) for v in index.values()) + sum(map(len, nested))


def workload_sqlite():
    import sqlite3

    database = sqlite3.connect(":memory:")
    database.execute("create table event (id integer primary key, kind text, body text)")
    database.executemany(
        "insert into event (kind, body) values (?, ?)",
        ((f"kind {i % 53}", f"body of event {i} " * (1 + i % 5)) for i in range(40000)),
    )
    database.execute("create index by_kind on event (kind)")
    total = 0
    for _ in range(3):
        query = "select kind, count(*), sum(length(body)) from event group by kind order by kind"
        total += sum(row[1] + row[2] for row in database.execute(query))
    database.execute("delete from event where id % 3 = 0")
    total += database.execute("select count(*) from event").fetchone()[0]
    database.close()
    return total


def workload_text():
    lines = [
        f"2026-01-{1 + i % 28:02} host{i % 13} GET /page/{i} {200 + i % 5}" for i in range(40000)
    ]
    pattern = re.compile(r"(\S+) (\w+) (GET|PUT) /(\w+)/(\d+) (\d{3})")
    fields = [pattern.match(line).groups() for line in lines]
    words = re.sub(r"\d+", "n", "\n".join(lines)).split()
    buffers = [bytes(1000 + 37 * i % 60000) for i in range(2000)]
    return len(fields) + len(set(words)) + sum(map(len, buffers))


def where_malloc_is():
    """Asks this process which object malloc is in, and whether hakmem knows malloc's block."""
    import ctypes

    class DlInfo(ctypes.Structure):
        _fields_ = [
            ("file", ctypes.c_char_p),
            ("base", ctypes.c_void_p),
            ("symbol", ctypes.c_char_p),
            ("address", ctypes.c_void_p),
        ]

    process = ctypes.CDLL(None)
    address = ctypes.cast(process.malloc, ctypes.c_void_p)
    info = DlInfo()
    process.dladdr.argtypes = [ctypes.c_void_p, ctypes.POINTER(DlInfo)]
    found = process.dladdr(address, ctypes.byref(info))
    with open("/proc/self/maps") as maps:
        mapped = sorted({line.split()[-1] for line in maps if "libhakmem" in line})
    usable = None
    if hasattr(process, "hak_usable_size"):
        process.malloc.argtypes = [ctypes.c_size_t]
        process.malloc.restype = ctypes.c_void_p
        process.free.argtypes = [ctypes.c_void_p]
        process.hak_usable_size.argtypes = [ctypes.c_void_p]
        process.hak_usable_size.restype = ctypes.c_size_t
        block = process.malloc(1000)
        usable = process.hak_usable_size(block)
        process.free(block)
    return {
        "object": info.file.decode() if found and info.file else "",
        "mapped": mapped,
        "usable": usable,
    }


def workload():
    result = [part() for part in (workload_json, workload_objects, workload_sqlite, workload_text)]
    print(json.dumps({"result": result, "proof": where_malloc_is()}))


# ---- Measuring -----------------------------------------------------------------------------------


class DemoError(Exception):
    pass


def environment(allocator, library, builtin, report_path):
    env = {k: v for k, v in os.environ.items() if k not in ("LD_PRELOAD", "HAK_DEMO_COMMAND")}
    if builtin:
        # Python keeps small objects to itself unless told to use malloc for them too.
        env["PYTHONMALLOC"] = "malloc"
        env["PYTHONHASHSEED"] = "0"
    if allocator == "hakmem":
        env["LD_PRELOAD"] = library
        env["HAKMEM_STATS"] = "1"
        env["HAKMEM_STATS_FILE"] = report_path
    return env


def prove_builtin(allocator, output):
    """Returns a line that says who served the run, or raises."""
    proof = json.loads(output)["proof"]
    name = os.path.basename(proof["object"]) or "an unknown object"
    known = proof["usable"] is not None and proof["usable"] >= 1000
    if allocator == "hakmem":
        if not (known and proof["mapped"]):
            raise DemoError(f"hakmem did not serve the program: malloc is in {name}")
        return f"hakmem knows malloc's block; malloc is in {name}"
    if proof["mapped"] or "hakmem" in name:
        raise DemoError("the run under glibc has hakmem mapped")
    return f"no hakmem in the process; malloc is in {name}"


def prove_command(allocator, report):
    """Likewise, for a program that can't be asked."""
    if allocator == "glibc":
        return "started without hakmem"
    if not report:
        raise DemoError(
            "the program left no report of hakmem's: it did not run under it (a static or a"
            " privileged program ignores LD_PRELOAD) or was killed"
        )
    return "left hakmem's report at exit"


def run(command, allocator, library, builtin):
    with (
        tempfile.TemporaryFile() as out,
        tempfile.TemporaryFile() as err,
        tempfile.NamedTemporaryFile() as report_file,
    ):
        start = time.perf_counter()
        try:
            child = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                env=environment(allocator, library, builtin, report_file.name),
            )
        except OSError as error:
            raise DemoError(f"{command[0]}: {error.strerror}") from error
        _, status, usage = os.wait4(child.pid, 0)
        seconds = time.perf_counter() - start
        child.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        err.seek(0)
        output = out.read().decode(errors="replace")
        errors = err.read().decode(errors="replace")
        report = report_file.read().decode(errors="replace").splitlines()
    if child.returncode != 0:
        tail = "\n".join(errors.splitlines()[-15:])
        raise DemoError(f"under {allocator} the program ended with {child.returncode}\n{tail}")
    if builtin:
        proof = prove_builtin(allocator, output)
    else:
        proof = prove_command(allocator, report)
    return {
        "output": json.loads(output)["result"] if builtin else None,
        "proof": proof,
        "report": report,
        "time": seconds,
        "user": usage.ru_utime,
        "system": usage.ru_stime,
        "peak": usage.ru_maxrss,
        "minor": usage.ru_minflt,
        "major": usage.ru_majflt,
    }


# ---- Showing -------------------------------------------------------------------------------------


def seconds_text(value):
    return f"{value:.3f} s" if value < 10 else f"{value:.1f} s"


def table(runs, floor_kib):
    def peak_text(value):
        # A child's peak begins with that of the process that started it, which is this one.
        text = f"{value / 1024:.1f} MiB"
        return "< " + text if value <= floor_kib else text

    def count_text(value):
        return f"{value:,.0f}"

    rows = [
        ("time, fastest", "time", min, seconds_text),
        ("time, median", "time", statistics.median, seconds_text),
        ("CPU in the program", "user", statistics.median, seconds_text),
        ("CPU in the kernel", "system", statistics.median, seconds_text),
        ("peak memory", "peak", statistics.median, peak_text),
        ("page faults, soft", "minor", statistics.median, count_text),
        ("page faults, hard", "major", statistics.median, count_text),
    ]
    lines = [f"  {'':24}{'glibc':>15}{'hakmem':>15}{'hakmem/glibc':>16}"]
    for title, key, pick, text in rows:
        first, second = (pick([r[key] for r in runs[name]]) for name in ALLOCATORS)
        if key == "peak" and min(first, second) <= floor_kib or not first:
            ratio = ""
        else:
            ratio = f"{second / first:.2f}"
        lines.append(f"  {title:24}{text(first):>15}{text(second):>15}{ratio:>16}".rstrip())
    return lines


def last_report(lines):
    """The last of the reports in these lines (a command that starts others leaves several), its
    table of classes cut to a few rows; and how many reports there are."""
    starts = [i for i, line in enumerate(lines) if re.match(r"process \d+ ", line)]
    if not starts:
        return lines, 0
    shown = []
    row = None  # of the table of classes, where that is what these lines are
    for line in lines[max(starts[-1] - 1, 0) :]:
        if line.startswith("class "):
            row = 0
        elif row is not None and re.match(r" *\d+ ", line):
            row += 1
        elif row is not None:
            if row > CLASS_ROWS:
                shown.append(f"({row - CLASS_ROWS} rows are left out here)")
            row = None
        if row is None or row <= CLASS_ROWS:
            shown.append(line)
    return shown, len(starts)


def demo(library, command, rounds):
    builtin = not command
    if builtin:
        command = [sys.executable, os.path.abspath(__file__), "--workload"]
        title = "Python: JSON, dicts and lists, SQLite in memory, text (PYTHONMALLOC=malloc)"
    else:
        title = shlex.join(command)
    if len(title) > WIDTH - 2:
        title = title[: WIDTH - 5] + "..."
    print(f"  {title}\n  {rounds} rounds, taking turns: ", end="", flush=True)

    runs = {name: [] for name in ALLOCATORS}
    run(command, "glibc", library, builtin)  # files come from disk once, before anything counts
    for number in range(rounds):
        for name in ALLOCATORS if number % 2 == 0 else reversed(ALLOCATORS):
            runs[name].append(run(command, name, library, builtin))
        print(number + 1, end=" ", flush=True)
    print("\n")
    if len({str(r["output"]) for name in ALLOCATORS for r in runs[name]}) != 1:
        raise DemoError("the program's results differ between runs")

    floor_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print("\n".join(table(runs, floor_kib)))
    print("\nWho served (said by each of the runs above; this is the last one's):")
    for name in ALLOCATORS:
        print(f"  {name:8}{runs[name][-1]['proof']}")
    if builtin:
        print("  The results of the program were the same in all runs.")
    report, processes = last_report(runs["hakmem"][-1]["report"])
    if report:
        last = f" (of {processes} processes, the last to end)" if processes > 1 else ""
        print(f"\nhakmem's own report, HAKMEM_STATS=1{last}:\n")
        print("\n".join(report))
    print("\nOne program on one machine; docs/benchmarks.md has the measurements.")


def main():
    parser = argparse.ArgumentParser(
        description="A real program under glibc's malloc and under hakmem, side by side."
    )
    parser.add_argument("--lib", help="path of libhakmem.so")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--workload", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("command", nargs=argparse.REMAINDER)
    arguments = parser.parse_args()
    if arguments.workload:
        workload()
        return 0
    command = arguments.command
    if command and command[0] == "--":
        command = command[1:]
    if not command:
        command = shlex.split(os.environ.get("HAK_DEMO_COMMAND", ""))
    if not arguments.lib or not os.path.exists(arguments.lib):
        print("demo.py: no library: build it first (make), then --lib PATH", file=sys.stderr)
        return 2
    try:
        demo(os.path.abspath(arguments.lib), command, max(1, arguments.rounds))
    except DemoError as error:
        print(f"\ndemo.py: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
