"""Real programs as workloads of the lab: each is driven by a process of its own.

A module here drives one program. It has ABOUT (one sentence), `available()` (empty where the
program can be run, else what is missing and the package that has it), `add_options(parser)`,
`drive(options, work)` (the figures of one run, everything written below `work`) and
`workloads(full)`.
"""

from __future__ import annotations

from hakmem.model import Workload
from hakmem.programs import gcc, nginx, node, postgres, redis, rust, snippets, sqlite

DRIVERS = {
    "redis": redis,
    "nginx": nginx,
    "postgres": postgres,
    "python": snippets,
    "node": node,
    "gcc": gcc,
    "sqlite": sqlite,
    "rust": rust,
}
SCALES = ("quick", "full")


def workloads(scale: str) -> list[Workload]:
    """All workloads of the suite "real", of programs that are missing too: see `available`.

    A process of scale "quick" takes up to 3 s, one of "full" up to 15 s.
    """
    if scale not in SCALES:
        raise ValueError(f"scale must be one of {', '.join(SCALES)}, not {scale!r}")
    return [item for driver in DRIVERS.values() for item in driver.workloads(scale == "full")]


def available(name: str) -> str:
    """Why a workload's program can't be run, by the name of either; empty where it can."""
    return DRIVERS[name.partition("-")[0]].available()


def prepare() -> None:
    """Makes what is made once and kept: Postgres's empty cluster. Otherwise the first run does."""
    if not postgres.available():
        postgres.template()
