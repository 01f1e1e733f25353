"""Makes results files out of nothing, for the tests of reports."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np

from hakmem.model import ROW_COLUMNS

PEERS = {
    "glibc": 1.0, "mimalloc2": 0.80, "mimalloc3": 0.78, "tcmalloc": 0.82, "jemalloc": 0.9,
    "snmalloc": 0.81, "rpmalloc": 0.85, "tbb": 0.97,
}  # fmt: skip
MEMORY = {
    "glibc": 1.0, "mimalloc2": 1.2, "mimalloc3": 1.15, "tcmalloc": 1.4, "jemalloc": 0.95,
    "snmalloc": 1.3, "rpmalloc": 1.6, "tbb": 1.5,
}  # fmt: skip
META = {
    "date": "2026-01-02T03:04:05Z", "command": "hakmem bench --suite quick", "revision": "abc1234",
    "machine": "box", "cpu": "Some Processor", "cpus": 8, "memory_kib": 16_000_000,
    "kernel": "Linux 6.1", "huge_pages": "madvise", "governor": "performance", "virtual": "none",
    "compiler": "gcc 14", "flags": "-O2", "settings": {},
}  # fmt: skip


def make_row(round_: int, workload: str, allocator: str, **figures: object) -> dict:
    """One row that counts, unless the figures say otherwise."""
    row: dict = dict.fromkeys(ROW_COLUMNS, "")
    row.update(
        round=round_, position=0, suite="micro", workload=workload, allocator=allocator,
        seed=round_, proof="served", processes=1, minor_faults=1000,
    )  # fmt: skip
    row.update(figures)
    return {name: str(value) for name, value in row.items()}


def make_rows(speeds: dict[str, float], workloads: dict[str, str], rounds: int = 12,
              noise: float = 0.01, seed: int = 1, memory: dict[str, float] | None = None,
              rich: bool = False) -> list[dict]:  # fmt: skip
    """Rows of allocators with the given times. `rich`: with latency, series and the like."""
    rng = np.random.default_rng(seed)
    rows = []
    taste = np.random.default_rng(7)
    tastes = {(w, a): taste.normal(0, 0.12) if rich else 0.0 for w in workloads for a in speeds}
    for round_ in range(1, rounds + 1):
        for place, (workload, suite) in enumerate(workloads.items()):
            for name, speed in speeds.items():
                time = (20 + 7 * place) * speed * np.exp(tastes[workload, name])
                time *= np.exp(rng.normal(0, noise))
                size = 50_000 * (1 + place) * (memory or MEMORY).get(name, 1.0)
                figures = {
                    "suite": suite, "wall_s": f"{time / 20:.6g}", "ns_per_op": f"{time:.6g}",
                    "peak_rss_kib": int(size * np.exp(rng.normal(0, noise / 2))),
                }  # fmt: skip
                if rich and suite in ("latency", "memory"):
                    figures |= _rich(rng, time, size, suite)
                rows.append(make_row(round_, workload, name, **figures))
    return rows


def _rich(rng: np.random.Generator, time: float, size: float, suite: str) -> dict:
    if suite == "latency":
        return {
            name: int(time * scale)
            for name, scale in (("p50_ns", 1), ("p90_ns", 1.5), ("p95_ns", 2), ("p99_ns", 6),
                                ("p999_ns", 60), ("p9999_ns", 900))
        } | {"histogram": histogram(rng, time)}  # fmt: skip
    steps = [
        [each * 20, int(size * (0.4 + 0.6 * abs(np.sin(each / 9))) * (1 - each / 500))]
        for each in range(120)
    ]
    return {"series": json.dumps(steps), "growth_kib": int(size * 0.1)}


def histogram(rng: np.random.Generator, time: float) -> str:
    from hdrh.histogram import HdrHistogram

    whole = HdrHistogram(1, 10**10, 2)
    for value in rng.lognormal(np.log(time), 0.6, 300):
        whole.record_value(int(value) + 1)
    return whole.encode().decode()


def write(path: Path, rows: list[dict], meta: dict | None = None, noise: list[dict] = (),
          hashes: dict[str, str] | None = None) -> Path:  # fmt: skip
    names = list(dict.fromkeys(row["allocator"] for row in rows))
    allocators = {
        name: {"version": "1.0", "sha256": (hashes or {}).get(name, f"{name}-sum")}
        for name in names
    }
    header = {**META, "allocators": allocators, "workloads": {}, **(meta or {})}
    with path.open("w", encoding="utf-8", newline="") as file:
        file.write("# hakmem-results 1\n")
        file.write(f"# {json.dumps(header)}\n")
        for record in noise:
            file.write(f"# noise {json.dumps(record)}\n")
        writer = csv.DictWriter(file, ROW_COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    return path


def full_file(path: Path, rounds: int = 24, noise: float = 0.02) -> Path:
    """A file with a bit of everything, for the page and the plots."""
    workloads = {
        "pair": "micro", "batch500": "micro", "churn64k": "micro", "growhalf": "micro",
        "larson-loop threads=2": "threads", "prodcons threads=2": "threads", "json": "scenarios",
        "mixed": "scenarios", "fragmentation": "memory", "sawtooth": "memory",
        "latency-web": "latency", "latency-queue": "latency",
    }  # fmt: skip
    rows = make_rows({**PEERS, "hakmem": 0.75}, workloads, rounds, noise, rich=True,
                     memory={**MEMORY, "hakmem": 1.02})  # fmt: skip
    for row in rows:
        name, _, row["params"] = row["workload"].partition(" ")
        row["workload"] = name
    for row in rows[5 : 5 + 9 * 20 : 9 * 10]:
        row.update(error="killed by signal 11", proof="")
    return write(path, rows, noise=[{"round": 1, "spread": 0.08, "steal": 0.002}])
