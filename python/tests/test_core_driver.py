"""Drivers: processes that start the program that is measured, and are not measured themselves."""

import os
import sys
from pathlib import Path

import pytest
from core_help import WITNESS_FLAGS, build, needs_gcc

from hakmem import runner, store
from hakmem.model import DRIVER, Allocator, Workload

PROGRAM = (
    "#include <stdlib.h>\n"
    "int main(void) { for (int i = 0; i < 99; i++) { char *volatile p = malloc(5000); free(p); }"
    " return 0; }"
)
# Starts the program as the real drivers do, or otherwise than it should.
SCRIPT = """
import json, os, subprocess, sys
program, how = sys.argv[1:3]
environment = {key: value for key, value in os.environ.items() if key != "LD_PRELOAD"}
assert "LD_PRELOAD" not in os.environ, "the driver itself is preloaded"
if how != "forgets":
    environment["LD_PRELOAD"] = os.environ["HAKMEM_LAB_PRELOAD"]
child = subprocess.Popen([program], env=environment)
child.wait()
print(json.dumps({"program_pids": [child.pid], "rss_kib": 1234, "user_s": 0.5, "system_s": 0.25,
                  "faults": 7, "ns_best": 10.0, "ns_median": 11.0, "hash": how}))
"""


class Told:
    def __init__(self):
        self.failures: list[str] = []

    def begin(self, total: int, done: int) -> None: ...
    def step(self, done: int, text: str, seconds_left: float | None) -> None: ...
    def failed(self, text: str) -> None:
        self.failures.append(text)

    def end(self) -> None: ...


@pytest.fixture(scope="module")
def tools(tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("driver")
    build(root / "witness.so", None, *WITNESS_FLAGS)
    build(root / "program", PROGRAM)
    (root / "driver.py").write_text(SCRIPT)
    return root


def run(root: Path, out: Path, how: list[str], allocators: list[Allocator]) -> list[dict]:
    """A row for each allocator, each driven in its own way."""
    rows = []
    for index, (allocator, word) in enumerate(zip(allocators, how, strict=True)):
        workload = Workload(
            "driven", "real",
            (sys.executable, str(root / "driver.py"), str(root / "program"), word),
            environment=((DRIVER, "1"),),
        )  # fmt: skip
        path = out / f"{index}.csv"
        meta = runner.describe(1, [workload], [allocator])
        with store.Store.create(path, meta) as file:
            one = runner.Runner(
                file, [allocator], [workload], rounds=1, witness=root / "witness.so", aside=root
            )
            assert one.run(Told())
        rows += store.read(path).rows
    return rows


@needs_gcc
def test_a_drivers_own_figures_are_the_programs(tools: Path, tmp_path: Path):
    (row,) = run(tools, tmp_path, ["right"], [Allocator("glibc", None, "1")])
    assert row["error"] == ""
    assert "libc" in row["proof"]
    assert row["peak_rss_kib"] == "1234" and row["minor_faults"] == "7"
    assert row["user_s"] == "0.5" and row["wall_s"] == ""
    assert row["ns_per_op"] == "10.0"


@needs_gcc
def test_a_driver_that_forgets_to_preload_is_believed(tools: Path, tmp_path: Path):
    (row,) = run(tools, tmp_path, ["forgets"], [Allocator("glibc", None, "1")])
    assert row["error"].startswith("no proof")


@needs_gcc
def test_a_wrong_result_counts(tools: Path, tmp_path: Path):
    libc = Allocator("glibc", None, "1")
    workload = Workload("driven", "real", ("unused",))
    meta = runner.describe(1, [workload], [libc])
    with store.Store.create(tmp_path / "r.csv", meta) as file:
        one = runner.Runner(
            file, [libc], [workload], rounds=1, witness=tools / "witness.so", aside=tools
        )
    step = one.steps[0]
    assert one._other_result(step, {"hash": "a"}) == ""
    assert one._other_result(step, {"hash": "a"}) == ""
    assert "not the one that glibc gave" in one._other_result(step, {"hash": "b"})
    assert one._other_result(step, {}) == ""


def test_the_tests_run_under_a_preloaded_library():
    assert "LD_PRELOAD" not in os.environ
