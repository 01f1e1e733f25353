"""Tests of hakbench, the workloads of the lab: each is named by the fault that it guards.

HAKBENCH names a binary to test; without it, one is built here with gcc (or CC). Where
HAKMEM_NATIVE_DIR (by default the folder build) has libhakmem.so, workloads run under it too.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ROOT / "bench" / "workloads"
FLAGS = (
    "-std=c11 -O1 -pthread -Wall -Wextra -Werror -DHAK_BENCH_LAB -fno-builtin-malloc "
    "-fno-builtin-calloc -fno-builtin-realloc -fno-builtin-free"
).split()
NATIVE = Path(os.environ.get("HAKMEM_NATIVE_DIR") or ROOT / "build")
HAKMEM = NATIVE / "libhakmem.so"
# What keeps each run short. Names as in `hakbench list`.
SMALL = {
    "largeset": ["--mib", "2"],
    "burstidle": ["--mib", "2", "--seconds", "0.3"],
    "fragmentation": ["--mib", "1"],
    "larson-burst": ["--turns", "2"],
    "larson-loop": ["--turns", "2"],
}
# Workloads from the micro suite that are slow to set up, and are tested by bench/test_bench.py.
SLOW = {"churn256k", "churn1m"}
TIMED = {"json", "mir", "vm", "mixed", "latency"}
PROMISED = {
    "workload", "params", "threads", "seed", "ops", "repeats", "ns_best", "ns_median", "rss_kib",
    "faults", "resident_after_kib", "growth_kib", "malloc_object", "free_object", "calloc_object",
    "realloc_object", "asked_bytes_least", "hak_served_bytes",
}  # fmt: skip
PERCENTILES = ["p50_ns", "p90_ns", "p95_ns", "p99_ns", "p999_ns", "p9999_ns", "max_ns"]
LAB = {
    "json", "mir", "vm", "mixed", "patterns", "tiny", "randommixed", "reallocgrowth",
    "larson-burst", "larson-loop", "midmt", "midlargemt", "prodcons-pairs", "threadchurn",
    "fragmentation", "largeset", "burstidle", "latency",
}  # fmt: skip


def compiler() -> str:
    found = shutil.which(os.environ.get("CC", "gcc"))
    if found is None:
        pytest.skip("no C compiler")
    return found


def compile_into(folder: Path, name: str, *extra: str) -> Path:
    binary = folder / name
    sources = sorted(SOURCES.glob("lab/*.c")) + [
        SOURCES / each for each in ("micro.c", "single.c", "threads.c")
    ]
    command = [compiler(), *FLAGS, *map(str, sources), *extra, "-ldl", "-lm", "-o", str(binary)]
    subprocess.run(command, check=True)
    return binary


@pytest.fixture(scope="session")
def hakbench(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if os.environ.get("HAKBENCH"):
        return Path(os.environ["HAKBENCH"])
    return compile_into(tmp_path_factory.mktemp("hakbench"), "hakbench")


def start(
    binary: Path, *arguments: str, preload: Path | None = None
) -> subprocess.CompletedProcess:
    environment = {key: value for key, value in os.environ.items() if key != "LD_PRELOAD"}
    if preload is not None:
        environment["LD_PRELOAD"] = str(preload)
    return subprocess.run(
        [str(binary), *arguments], env=environment, capture_output=True, text=True, timeout=60
    )


def run(binary: Path, *arguments: str, preload: Path | None = None) -> dict:
    """The figures of one run: the last line of stdout."""
    done = start(binary, *arguments, preload=preload)
    assert done.returncode == 0, f"{arguments}: {done.stderr}"
    return json.loads(done.stdout.splitlines()[-1])


@cache
def listed(binary: Path) -> list[dict]:
    return json.loads(start(binary, "list", "--json").stdout)


def small(workload: dict, *extra: str) -> list[str]:
    return [workload["name"], *SMALL.get(workload["name"], []), "--repeats", "1", *extra]


def check_figures(figures: dict, name: str) -> None:
    assert figures["workload"] == name
    assert not PROMISED - set(figures), f"{name} lacks {PROMISED - set(figures)}"
    assert figures["ops"] > 0
    assert 0 < figures["ns_best"] <= figures["ns_median"]
    assert figures["rss_kib"] > 0
    if name in TIMED:
        counted = sum(count for _, count in figures["histogram_raw"])
        assert counted == 2 * figures["ops"] or name != "latency"
        values = [figures[key] for key in PERCENTILES]
        assert values == sorted(values)
        assert values[0] >= 1


def test_a_workload_is_missing_from_the_list(hakbench: Path) -> None:
    names = {each["name"] for each in listed(hakbench)}
    assert not LAB - names
    assert {"pair", "churn1k", "growstep", "ownchurn", "prodcons", "larsonloop"} <= names
    for each in listed(hakbench):
        assert each["about"], each["name"]
        assert each["name"] in start(hakbench, "list").stdout
    assert "plant" not in start(hakbench, "list", "--json").stdout


def test_listed_combinations_are_refused_or_fewer_than_thirty(hakbench: Path) -> None:
    patterns = next(each for each in listed(hakbench) if each["name"] == "patterns")
    assert len(set(patterns["params"])) == 30
    for each in listed(hakbench):
        for params in each["params"]:
            options = [f"--{one}" for one in params.split()]
            figures = run(hakbench, *small(each), *options)
            assert params in figures["params"], each["name"]


def test_a_workload_ends_in_error_or_prints_less_than_promised(hakbench: Path) -> None:
    for each in listed(hakbench):
        if each["name"] in SLOW:
            continue
        figures = run(hakbench, *small(each))
        check_figures(figures, each["name"])
        assert Path(figures["malloc_object"]).name.startswith("libc.so")
        assert figures["hak_served_bytes"] is None


@pytest.mark.skipif(not HAKMEM.exists(), reason="no libhakmem.so")
def test_hakmem_is_not_proved_or_served_less_than_was_asked(hakbench: Path) -> None:
    for each in listed(hakbench):
        if each["name"] in SLOW:
            continue
        figures = run(hakbench, *small(each), preload=HAKMEM)
        check_figures(figures, each["name"])
        assert os.path.realpath(figures["free_object"]) == os.path.realpath(HAKMEM)
        # Half, since bytes that a thread has not reported yet may be missing.
        assert figures["hak_served_bytes"] * 2 >= figures["asked_bytes_least"], each["name"]


def test_one_seed_asks_for_different_bytes(hakbench: Path) -> None:
    fixed = {"json", "mir", "vm", "mixed", "tiny", "reallocgrowth"}
    for name in sorted(LAB - fixed):
        arguments = small({"name": name})
        if name == "patterns":
            arguments += ["--pattern", "mixed"]
        first, second, other = (
            run(hakbench, *arguments, "--seed", seed)["asked_bytes_least"]
            for seed in ("7", "7", "8")
        )
        assert first == second, name
        assert first != other, name


def test_a_lost_mark_goes_unseen(hakbench: Path) -> None:
    for name in sorted(LAB):
        done = start(hakbench, *small({"name": name}), "--plant-corruption")
        assert done.returncode == 3, name
        assert "self-check" in done.stderr, name
        assert not done.stdout, name


def test_wrong_options_are_taken_silently(hakbench: Path) -> None:
    wrong = (
        ["nothing"], ["tiny", "--size", "3"], ["tiny", "--repeats", "0"], ["tiny", "--repeats"],
        ["tiny", "--seed=x"], ["tiny", "5"], ["tiny", "--threads", "2"], ["tiny", "--aged=1"],
        ["tiny", "--seconds", "nan"], ["patterns", "--pattern", "sideways"], ["-x"], [],
        ["larson-loop", "-m", "100", "-M", "50"], ["larson-loop", "-z", "1"], ["list", "all"],
        ["prodcons-pairs", "--threads", "3"], ["midmt", "--threads", "65"],
        ["ownchurn", "--threads", "3"], ["largeset", "--mib", "0"], ["pair", "--plant-corruption"],
        ["reallocgrowth", "--growth", "step", "--step", "1", "--most", "1000000"],
        ["latency", "--least", "64", "--most", "16"],
    )  # fmt: skip
    for arguments in wrong:
        done = start(hakbench, *arguments)
        assert done.returncode == 2, arguments
        assert done.stderr.strip(), arguments
        assert not done.stdout, arguments


def test_letters_of_larson_mean_something_else(hakbench: Path) -> None:
    short = "-d 0.1 -t 3 -c 50 -r 4 -m 8 -M 128 -s 9".split()
    figures = run(hakbench, "larson-burst", *short, "--turns", "3", "--repeats", "1")
    assert figures["params"] == (
        "threads=3 chunks=50 rounds=4 least=8 most=128 turns=3 seconds=0.1"
    )
    assert (figures["threads"], figures["seed"]) == (3, 9)
    assert figures["ops"] == 3 * 50 * 4 * 3
    assert figures["live_kib"] <= 3 * 50 * 128 / 1024


def test_larson_does_not_last_as_long_as_it_is_told(hakbench: Path) -> None:
    for name in ("larson-burst", "larson-loop"):
        figures = run(hakbench, name, "--seconds", "0.2", "--repeats", "2")
        lasted = figures["ops"] / figures["ops_per_second"]
        assert 0.2 <= lasted < 1


def test_tiny_is_not_ten_million_operations(hakbench: Path) -> None:
    # No bound in time, so that a slow machine does as many.
    assert run(hakbench, "tiny", "--repeats", "10")["ops"] == 10_000_000


def test_burstidle_samples_nothing(hakbench: Path) -> None:
    figures = run(hakbench, "burstidle", "--mib", "4", "--seconds", "0.5")
    times = [at for at, _ in figures["series"]]
    assert times == sorted(times)
    assert 4 <= len(times) <= 6
    assert figures["resident_after_kib"] == figures["series"][-1][1]
    sizes = [kib for _, kib in figures["series"]]
    assert min(sizes) <= figures["mean_resident_kib"] <= max(sizes)


def test_live_memory_is_not_what_was_asked_for(hakbench: Path) -> None:
    figures = run(hakbench, "largeset", "--mib", "8", "--repeats", "1")
    assert 7 << 10 < figures["live_kib"] < 9 << 10
    assert figures["resident_after_kib"] > figures["live_kib"]
    figures = run(hakbench, "fragmentation", "--mib", "4", "--repeats", "1")
    assert 2 << 10 < figures["live_kib"] < 5 << 10


def test_littering_leaves_the_heap_as_it_was(hakbench: Path) -> None:
    # One of each source file, and two micro workloads.
    for name in (
        "vm",
        "patterns",
        "larson-burst",
        "threadchurn",
        "fragmentation",
        "latency",
        "pair",
        "growstep",
    ):
        clean = run(hakbench, *small({"name": name}))
        aged = run(hakbench, *small({"name": name}, "--aged"))
        assert "aged=0.95" in aged["params"]
        assert aged["asked_bytes_least"] - clean["asked_bytes_least"] >= 500_000, name


def test_a_static_binary_prints_no_proof(tmp_path: Path) -> None:
    archive = NATIVE / "libhakmem.a"
    if not archive.exists():
        pytest.skip("no libhakmem.a")
    try:
        binary = compile_into(tmp_path, "static", "-static", str(archive))
    except subprocess.CalledProcessError:
        pytest.skip("no static C library")
    for name in ("tiny", "threadchurn"):
        figures = run(binary, name, "--repeats", "1")
        check_figures(figures, name)
        for function in ("malloc", "free", "calloc", "realloc"):
            assert os.path.realpath(figures[f"{function}_object"]) == os.path.realpath(binary)
        assert figures["hak_served_bytes"] * 2 >= figures["asked_bytes_least"]
