"""g++ compiles a file with many templates; the object must be the same each time."""

from __future__ import annotations

import argparse
import os
import random
import time
from pathlib import Path

from hakmem.model import Workload
from hakmem.programs.common import (
    Failed,
    Need,
    Watch,
    digest,
    end,
    environment,
    missing,
    preload,
    started,
    times,
    version_of,
    workload,
)

ABOUT = "g++ on a file with many templates"
COMPILER = Need("g++", "g++")
# What each kind includes, and whether it compiles regular expressions, which take most of the time.
KINDS = {"light": "containers", "heavy": "containers and regular expressions"}

HEAD = """
#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <unordered_map>
#include <vector>

template <int N> struct depth { static constexpr int value = depth<N - 1>::value + 1; };
template <> struct depth<0> { static constexpr int value = 0; };
"""
REGEX = """
#include <regex>
int words(const std::string &text)
{
    static const std::regex word("(\\\\w+)");
    return std::distance(std::sregex_iterator(text.begin(), text.end(), word),
                         std::sregex_iterator());
}
"""
PIECE = """
struct key{i} {{ int value[{size}]; bool operator<(const key{i} &o) const
    {{ return value[0] < o.value[0]; }} }};
int piece{i}(int n)
{{
    std::map<key{i}, std::vector<std::string>> tree;
    std::unordered_map<std::string, std::tuple<int, key{i}, std::shared_ptr<int>>> table;
    for (int i = 0; i < n; i++) {{
        tree[key{i}{{{{i * {factor}}}}}].push_back(std::to_string(i));
        table[std::to_string(i)] = std::make_tuple(i, key{i}{{}}, std::make_shared<int>(i));
    }}
    std::function<int(int)> f = [&](int x) {{ return x + int(tree.size()) + {factor}; }};
    return f(int(table.size())) + depth<{depth}>::value;
}}
"""


def available() -> str:
    return missing(COMPILER)


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--kind", choices=sorted(KINDS), default="light", help="of source file")
    parser.add_argument("--repeats", type=int, default=1, help="times the file is compiled")


def workloads(full: bool) -> list[Workload]:
    kind = "heavy" if full else "light"
    return [
        workload(
            "gcc",
            "gcc",
            f"kind={kind}",
            [f"--kind={kind}", "--repeats=1"],
            f"g++ -O2 compiles a file that instantiates {KINDS[kind]}",
        )
    ]


def source(seed: int, kind: str) -> str:
    chance = random.Random(seed)
    pieces = [
        PIECE.format(
            i=i,
            size=chance.randint(2, 40),
            factor=chance.randint(2, 999),
            depth=chance.randint(100, 400),
        )
        for i in range(3 if kind == "heavy" else 2)
    ]
    return HEAD + (REGEX if kind == "heavy" else "") + "".join(pieces)


def compile_once(argv: list[str], work: Path) -> tuple[int, Watch, int, int]:
    """One compilation: its time in ns, the memory of all its processes, the compiler's pid and the
    largest peak of one process in KiB."""
    began = time.monotonic_ns()
    with started(argv, environment(preload()), work / "log", cwd=work) as process:
        with Watch(process.pid, every=0.02) as watch:
            # The peak is taken from the system: a process that is gone can't be looked at.
            _, status, used = os.wait4(process.pid, 0)
        took = time.monotonic_ns() - began
        process.returncode = os.waitstatus_to_exitcode(status)
        watch.used = {
            "user_s": round(used.ru_utime, 4),
            "system_s": round(used.ru_stime, 4),
            "minor_faults": used.ru_minflt,
        }
        end(process)
    return took, watch, process.pid, used.ru_maxrss


def drive(options: argparse.Namespace, work: Path) -> dict:
    (work / "source.cpp").write_text(source(options.seed, options.kind))
    # The name of the folder must not get into the object.
    argv = [COMPILER.found(), "-std=c++17", "-O2", "-frandom-seed=1", "-c", "source.cpp"]
    spent, hashes, pids = [], set(), []
    best: tuple[int, Watch] | None = None
    for repeat in range(options.repeats):
        target = f"object{repeat}.o"
        took, watch, pid, peak = compile_once([*argv, "-o", target], work)
        watch.peak_rss = max(watch.peak_rss, peak)
        spent.append(took)
        pids.append(pid)
        hashes.add(digest((work / target).read_bytes()))
        if best is None or watch.peak_rss > best[0]:
            best = watch.peak_rss, watch
    if len(hashes) != 1 or best is None:
        raise Failed("two compilations of one file gave different objects")
    return {
        **times(1, spent),
        **best[1].figures(),
        "hash": hashes.pop(),
        "program_version": version_of([COMPILER.found(), "--version"]),
        "program_pids": pids,
    }
