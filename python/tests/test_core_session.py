"""A whole run: allocators, plan, results file, resume."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from core_help import TREE, WITNESS_FLAGS, build, needs_gcc

from hakmem import allocators, locate, runner, store
from hakmem.model import ROW_COLUMNS, Allocator, Workload

GLIBC = Allocator("glibc", None, "glibc 2.36")
SPARE = "void *malloc(unsigned long); void *malloc(unsigned long n) { (void)n; return 0; }"


class Silent:
    """Progress that keeps what it is told."""

    def __init__(self):
        self.failures: list[str] = []

    def begin(self, total, done):
        self.total, self.done_before = total, done

    def step(self, done, text, seconds_left):
        pass

    def failed(self, text):
        self.failures.append(text)

    def end(self):
        pass


def row(number: int, name: str = "w", allocator: str = "glibc", **more) -> dict:
    return {"round": number, "workload": name, "params": "", "allocator": allocator, **more}


# ---- The plan ----------------------------------------------------------------------------------


def workloads(*names: str) -> list[Workload]:
    return [Workload(name, "own", ("true",)) for name in names]


def test_one_allocator_goes_first_more_often():
    three = [Allocator(name, None) for name in "abc"]
    steps = runner.plan(6, workloads("x", "y", "z"), three)
    firsts = [step.allocator.name for step in steps if step.position == 0]
    assert [firsts.count(name) for name in "abc"] == [6, 6, 6]
    assert len({step.done_key for step in steps}) == len(steps) == 54


def test_allocators_of_a_workload_are_apart():
    steps = runner.plan(2, workloads("x", "y"), [Allocator(name, None) for name in "ab"])
    names = [step.workload.name for step in steps]
    assert names == ["x", "x", "y", "y"] * 2


def test_warm_ups_are_recorded_or_change_the_plan():
    one, two = (runner.plan(2, workloads("x"), [GLIBC], warm_up=warm) for warm in (False, True))
    assert [step.recorded for step in two] == [False, True, True]
    assert runner.plan_hash(one) == runner.plan_hash(two)


def test_another_build_or_command_is_the_same_plan():
    def named(command: str, checksum: str) -> str:
        library = Allocator("a", Path("a.so"), "", {"sha256": checksum})
        return runner.plan_hash(runner.plan(1, [Workload("w", "own", ("x", command))], [library]))

    assert len({named("1", "aa"), named("2", "aa"), named("1", "bb")}) == 3


def test_a_workload_given_twice_is_mixed_up():
    with pytest.raises(ValueError, match="given twice: x"):
        runner.plan(1, workloads("x", "x"), [GLIBC])


# ---- The results file --------------------------------------------------------------------------


def test_a_row_comes_back_changed(tmp_path):
    path = tmp_path / "deep" / "r.csv"
    error = 'two\nlines, a "quote" and # a hash'
    with store.Store.create(path, {"plan": "p", "note": "ü"}) as made:
        made.append(row(1, series="[[0, 5], [20, 9]]", error=error, wall_s=0.25))
        made.note("noise", {"round": 1, "spread": 0.1})
        made.append(row(2))
    results = store.read(path)
    assert results.meta == {"plan": "p", "note": "ü"} and results.remarks == []
    assert results.rows[0]["error"] == error.replace("\n", " ")
    assert results.rows[0]["series"] == "[[0, 5], [20, 9]]" and results.rows[0]["wall_s"] == "0.25"
    assert results.rows[1]["wall_s"] == "" and results.noise == [{"round": 1, "spread": 0.1}]
    assert list(results.rows[0]) == list(ROW_COLUMNS)
    with pytest.raises(ValueError, match="no columns"):
        store.Store.create(path, {}).append(row(1, wrong=1))


def test_a_torn_last_line_spoils_the_file(tmp_path):
    path = tmp_path / "r.csv"
    with store.Store.create(path, {"plan": "p"}) as made:
        made.append(row(1))
        made.append(row(2))
    whole = path.read_bytes()
    path.write_bytes(whole[:-3])
    results = store.read(path)
    assert [r["round"] for r in results.rows] == ["1"] and "torn" in results.remarks[0]
    with store.Store.resume(path, {"plan": "p"}) as again:
        assert again.done == {(1, "w", "glibc")}
        again.append(row(2))
    assert path.read_bytes() == whole


def test_another_plan_is_gone_on_with(tmp_path):
    path = tmp_path / "r.csv"
    meta = {"plan": "p", "rounds": 3, "allocators": {"a": {"sha256": "1"}}, "workloads": {"x": ""}}
    store.Store.create(path, meta).close()
    other = meta | {"plan": "q", "rounds": 5, "allocators": {"a": {"sha256": "2"}, "b": {}}}
    with pytest.raises(store.StoreError, match=r"rounds: 3, now 5; allocators: \+b; a is another"):
        store.Store.open(path, other)
    with store.Store.open(path, other, again=True) as made:
        assert made.done == set()


def test_two_runs_write_one_file(tmp_path):
    path = tmp_path / "r.csv"
    with store.Store.create(path, {"plan": "p"}):
        for again in (False, True):
            with pytest.raises(store.StoreError, match="written by another run"):
                store.Store.open(path, {"plan": "p"}, again=again)


def test_an_unwritable_place_is_found_out_late(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(store.StoreError, match="can't be made"):
        store.check_writable(tmp_path / "file" / "r.csv")
    with pytest.raises(store.StoreError, match="is a folder"):
        store.check_writable(tmp_path)
    # Where even root may not write.
    with pytest.raises(store.StoreError, match="can't be"):
        store.check_writable(Path("/proc/1/r.csv"))


def test_any_file_is_taken_for_results(tmp_path):
    path = tmp_path / "r.csv"
    for text, said in (
        ("a,b\n1,2\n", "not a results file"),
        ("", "not a results file"),
        ("# hakmem-results 9\n# {}\n", "in format 9"),
        ("# hakmem-results 1\n# {torn\n", "damaged"),
    ):
        path.write_text(text)
        with pytest.raises(store.StoreError, match=said):
            store.read(path)
    with pytest.raises(store.StoreError, match="can't be read"):
        store.read(tmp_path / "none.csv")


# ---- Allocators --------------------------------------------------------------------------------


@pytest.fixture
def bare(monkeypatch, tmp_path):
    """A machine without allocators but the C library's own."""
    monkeypatch.setattr(allocators, "system_libraries", dict)
    monkeypatch.setattr(allocators, "peers_folder_default", lambda: tmp_path / "no-peers")

    def missing(name):
        raise locate.Missing(f"{name} is missing: build it")

    monkeypatch.setattr(locate, "native", missing)


def test_a_missing_peer_goes_unsaid(bare):
    found, missing = allocators.find(None, [])
    assert [one.library for one in found] == [None]
    for known in allocators.KNOWN:
        assert (
            sum(text.startswith(f"{known.name} is missing: `hakmem peers") for text in missing) == 1
        )
    assert any(text.startswith("libhakmem.so is missing") for text in missing)


@needs_gcc
def test_a_library_that_can_not_be_loaded_is_measured(bare, tmp_path):
    build(tmp_path / "good.so", SPARE, "-shared", "-fPIC", "-fno-builtin")
    lib = build(tmp_path / "libdep.so", "int dep(void) { return 1; }", "-shared", "-fPIC")
    build(tmp_path / "needs.so", "int dep(void); int use(void) { return dep(); }", "-shared",
          "-fPIC", f"-L{tmp_path}", "-Wl,--no-as-needed", "-ldep")  # fmt: skip
    lib.unlink()
    other = bytearray((tmp_path / "good.so").read_bytes())
    other[18:20] = (243).to_bytes(2, "little")
    (tmp_path / "other.so").write_bytes(other)
    (tmp_path / "text.so").write_text("text")
    (tmp_path / "a b.so").write_bytes((tmp_path / "good.so").read_bytes())
    names = {"needs": "needs.so", "other": "other.so", "text": "text.so", "spaced": "a b.so"}
    found, missing = allocators.find(None, [f"{k}={tmp_path / v}" for k, v in names.items()])
    assert [one.library for one in found] == [None]
    said = "\n".join(missing)
    whys = {
        "needs": "libdep.so",
        "other": "another machine (riscv",
        "text": "no shared library",
        "spaced": "no path with a space",
    }
    for name, why in whys.items():
        line = next(text for text in missing if text.startswith(f"{name} is left out"))
        assert why in line, said


@needs_gcc
def test_a_library_without_malloc_is_measured(tmp_path, monkeypatch):
    witness = build(tmp_path / "witness.so", None, *WITNESS_FLAGS)
    monkeypatch.setattr(locate, "native", lambda name: witness)
    library = build(tmp_path / "empty.so", "int nothing;", "-shared", "-fPIC")
    assert "defines no malloc" in allocators.preload_fault(library)


def test_two_allocators_share_a_name(bare, tmp_path):
    (tmp_path / "x.so").write_text("")
    for name in ("glibc", "x"):
        with pytest.raises(allocators.AllocatorError, match=f"two allocators are called {name}"):
            allocators.find(None, [f"{name}={tmp_path / 'x.so'}"] * 2)


def test_a_malformed_peer_is_guessed_at(bare, tmp_path):
    for text in ("x", "=x.so", "x=", "a/b=x.so"):
        with pytest.raises(allocators.AllocatorError, match="NAME=FILE.so"):
            allocators.find(None, [text])
    with pytest.raises(allocators.AllocatorError, match="there is no"):
        allocators.find(None, ["x=/no/x.so"])
    with pytest.raises(allocators.AllocatorError, match="no peers in"):
        allocators.find(tmp_path, [])


@needs_gcc
def test_a_built_peer_was_swapped(bare, tmp_path):
    build(tmp_path / "one.so", SPARE, "-shared", "-fPIC", "-fno-builtin")
    good = allocators.sha256(tmp_path / "one.so")
    listing = tmp_path / "versions.json"
    listing.write_text(
        json.dumps([{"name": "one", "version": "1", "sha256": good, "flags": "-O3"}])
    )
    found, _ = allocators.built_peers(tmp_path)
    assert found[0].version == "1" and found[0].about["flags"] == "-O3"
    listing.write_text(json.dumps([{"name": "one", "sha256": "0"}, {"name": "two"}]))
    found, missing = allocators.built_peers(tmp_path)
    assert found == [] and "not the one" in missing[0] and "is gone" in missing[1]
    listing.write_text("[{")
    with pytest.raises(allocators.AllocatorError, match="damaged"):
        allocators.built_peers(tmp_path)


def test_copies_lie_where_nothing_can_be_loaded(monkeypatch, tmp_path):
    spaced = tmp_path / "a b"
    spaced.mkdir()
    monkeypatch.setattr(allocators.tempfile, "gettempdir", lambda: str(spaced))
    folder = allocators.aside_folder()
    try:
        assert " " not in str(folder)
    finally:
        folder.rmdir()


def test_what_a_killed_run_left_is_kept_or_a_living_runs_is_removed(tmp_path):
    gone = subprocess.Popen(["true"])
    gone.wait()
    dead = tmp_path / f"hakmem-bench-{gone.pid}-x"
    fresh = tmp_path / f"hakmem-bench-{gone.pid}-y"
    living = tmp_path / f"hakmem-bench-{os.getpid()}-x"
    for folder in (dead, fresh, living):
        folder.mkdir()
        if folder is not fresh:
            os.utime(folder, (1, 1))
    made = allocators.session_folder("bench", tmp_path)
    assert set(tmp_path.iterdir()) == {made, fresh, living}


# ---- A run -------------------------------------------------------------------------------------

PROGRAM = (
    "#include <stdlib.h>\n#include <unistd.h>\n"
    "int main(void) { char *volatile p = malloc(5000); free(p); usleep(%s); return %s; }"
)
HARNESS = """
import sys
from pathlib import Path
from hakmem import runner, store
from hakmem.model import Allocator, Workload
root = Path(sys.argv[1])
runner.Runner._records_in = lambda self: root  # it is killed: nothing is left lying elsewhere
workloads = [Workload(n, "own", (str(root / "works"), "{seed}"), reports=False) for n in "ab"]
found = [Allocator("glibc", None, "1"), Allocator("other", None, "1")]
meta = runner.describe(4, workloads, found)
with store.Store.open(root / "r.csv", meta) as results:
    run = runner.Runner(results, found, workloads, rounds=4, witness=root / "witness.so",
                        aside=root, warm_up=True)
    whole = run.run(runner.PlainProgress())
sys.exit(0 if whole else 130)
"""


@pytest.fixture(scope="module")
def tools(tmp_path_factory):
    root = tmp_path_factory.mktemp("session")
    build(root / "witness.so", None, *WITNESS_FLAGS)
    build(root / "works", PROGRAM % ("60000", "0"))
    build(root / "fails", PROGRAM % ("0", "3"))
    (root / "harness.py").write_text(HARNESS)
    return root


def start_harness(root: Path) -> subprocess.Popen:
    environment = {**os.environ, "PYTHONPATH": str(TREE / "python")}
    return subprocess.Popen(
        [sys.executable, root / "harness.py", root], env=environment, start_new_session=True,
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def wait_for_rows(path: Path, count: int) -> None:
    for _ in range(1000):
        if path.exists() and path.read_text().count(",own,") >= count:
            return
        time.sleep(0.01)
    raise AssertionError("no rows were written")


@needs_gcc
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_a_broken_off_run_loses_or_doubles_rows(tools, tmp_path, number):
    for name in ("witness.so", "works", "harness.py"):
        shutil.copy(tools / name, tmp_path / name)
    path = tmp_path / "r.csv"
    first = start_harness(tmp_path)
    wait_for_rows(path, 5)
    os.kill(first.pid, number)
    first.communicate(timeout=10)
    assert first.returncode == (-9 if number == signal.SIGKILL else 130)
    before = store.read(path).rows
    assert 5 <= len(before) < 16
    second = start_harness(tmp_path)
    _, said = second.communicate(timeout=30)
    assert second.returncode == 0, said
    results = store.read(path)
    assert [row for row in results.rows[: len(before)]] == before
    keys = [store.step_of(row) for row in results.rows]
    assert len(keys) == len(set(keys)) == 16
    assert all(row["error"] == "" and row["proof"] for row in results.rows), results.rows
    assert {note["round"] for note in results.noise} == {1, 2, 3, 4}
    assert f"{len(before)} done before" in said


@needs_gcc
def test_an_error_ends_the_run_or_goes_unsaid(tools, tmp_path):
    kinds = [Workload(n, "own", (str(tools / n),), reports=False) for n in ("fails", "works")]
    kinds.append(Workload("absent", "own", ("/no/such",), reports=False))
    progress = Silent()
    with store.Store.create(tmp_path / "r.csv", runner.describe(1, kinds, [GLIBC])) as results:
        run = runner.Runner(
            results, [GLIBC], kinds, rounds=1, witness=tools / "witness.so", aside=tmp_path
        )
        assert run.run(progress)
        assert run.to_do() == []
    errors = [row["error"] for row in store.read(tmp_path / "r.csv").rows]
    assert errors[0] == "ended with status 3" and errors[1] == "" and "no program" in errors[2]
    assert len(progress.failures) == 2


@needs_gcc
def test_a_budget_is_overrun_or_nothing_is_compared(tools, tmp_path):
    works = [Workload("works", "own", (str(tools / "works"),), reports=False)]
    with store.Store.create(tmp_path / "r.csv", {}) as results:
        run = runner.Runner(
            results, [GLIBC], works, rounds=9, witness=tools / "witness.so", aside=tmp_path,
            budget_s=0.01,
        )  # fmt: skip
        assert not run.run(Silent())
    assert len(store.read(tmp_path / "r.csv").rows) == 1


def test_a_results_file_tells_where_the_lab_finds_its_files(monkeypatch):
    monkeypatch.setenv("HAKMEM_PEERS", "/somewhere/peers")
    monkeypatch.setenv("HAKMEM_MODE", "fast")
    settings = runner.machine()["settings"]
    assert settings["HAKMEM_MODE"] == "fast" and "HAKMEM_PEERS" not in settings


def test_the_machine_is_not_described():
    about = runner.machine()
    assert about["cpus"] >= 1 and about["kernel"] and isinstance(about["virtual"], bool)
    json.dumps(about)


def test_noise_is_not_measured():
    noise = runner.Noise().of_round(3)
    assert noise["round"] == 3 and noise["loop_ms"] > 0 and 0 <= noise["steal"] <= 1
