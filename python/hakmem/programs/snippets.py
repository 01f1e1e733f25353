"""Python programs that allocate much, with Python's own allocator and with plain malloc."""

from __future__ import annotations

import argparse
import platform
import sys
from pathlib import Path

from hakmem.model import Workload
from hakmem.programs import snippets_code
from hakmem.programs.common import environment, preload, run_to_done, times, workload

ABOUT = "Python snippets: json, objects, regex, churn, pickle, ast"
# What PYTHONMALLOC is set to: by default Python serves objects of up to 512 bytes itself.
MALLOCS = {"default": "Python's own allocator for small objects", "malloc": "malloc for all"}
# Of a quick run: about a second. A full one has so many times as many.
REPEATS = {"json": 16, "objects": 20, "regex": 40, "churn": 6, "pickle": 4, "ast": 3}
FULL = 5


def available() -> str:
    return ""


def add_options(parser: argparse.ArgumentParser) -> None:
    snippets = sorted(snippets_code.SNIPPETS)
    parser.add_argument("--snippet", choices=snippets, default="json", help="what it does")
    parser.add_argument("--malloc", choices=sorted(MALLOCS), default="default", help="PYTHONMALLOC")
    parser.add_argument("--repeats", type=int, default=5, help="of the snippet")


def workloads(full: bool) -> list[Workload]:
    return [
        workload(
            "python",
            "python",
            f"snippet={name} malloc={malloc}",
            [
                f"--snippet={name}",
                f"--malloc={malloc}",
                f"--repeats={REPEATS[name] * (FULL if full else 1)}",
            ],
            f"Python, with {what}: {snippets_code.SNIPPETS[name].__doc__}",
        )
        for name in snippets_code.SNIPPETS
        for malloc, what in MALLOCS.items()
    ]


def drive(options: argparse.Namespace, work: Path) -> dict:
    argv = [sys.executable, "-S", "-s", snippets_code.__file__]
    argv += [options.snippet, str(options.seed), str(options.repeats)]
    env = environment(preload(), PYTHONMALLOC=options.malloc, PYTHONHASHSEED="0")
    answer, took = run_to_done(argv, env, work)
    return {
        **times(answer["ops"], answer["times_ns"]),
        **took,
        "hash": answer["hash"],
        "program_version": f"Python {platform.python_version()}",
    }
