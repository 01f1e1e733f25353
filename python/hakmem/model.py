"""What the lab measures, under what, and what it writes down."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

RESULTS_FORMAT = 1
# In the environment of a workload that drives another program; what is to be preloaded into that
# then stands in PRELOAD.
DRIVER = "HAKMEM_LAB_DRIVER"
PRELOAD = "HAKMEM_LAB_PRELOAD"


@dataclass(frozen=True)
class Allocator:
    """One that a program can be run under. `library` is None for the C library's own."""

    name: str
    library: Path | None
    version: str = ""
    about: dict = field(default_factory=dict, hash=False, compare=False)

    @property
    def settings(self) -> dict[str, str]:
        """Environment variables that make it a variant."""
        return self.about.get("settings", {})

    @property
    def is_hakmem(self) -> bool:
        return self.name.partition("-")[0] == "hakmem"


@dataclass(frozen=True)
class Workload:
    """A command whose time and memory are compared. Name and params together identify it."""

    name: str
    suite: str
    command: tuple[str, ...]
    params: str = ""
    threads: int = 1
    timeout: float = 120.0
    reports: bool = True
    about: str = ""
    environment: tuple[tuple[str, str], ...] = ()
    status: int = 0  # with which the command ends where all is well

    @property
    def driver(self) -> bool:
        """Whether the command starts what is measured, and is not to be served itself."""
        return any(name == DRIVER for name, _ in self.environment)

    @property
    def key(self) -> str:
        return f"{self.name} {self.params}".strip()


# A row is one process. Empty where a figure is unknown.
ROW_COLUMNS = (
    "round", "position", "suite", "workload", "params", "allocator", "seed", "error",
    "wall_s", "user_s", "system_s",
    "peak_rss_kib", "mean_rss_kib", "peak_pss_kib", "mean_pss_kib",
    "minor_faults", "major_faults", "voluntary_switches", "involuntary_switches",
    "ops", "ns_per_op", "ns_per_op_median",
    "p50_ns", "p90_ns", "p95_ns", "p99_ns", "p999_ns", "p9999_ns", "max_ns",
    "live_kib", "resident_after_kib", "growth_kib",
    "instructions", "cycles", "cache_misses", "tlb_misses",
    "series", "histogram", "proof", "processes",
)  # fmt: skip
