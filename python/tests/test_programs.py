"""Real programs as workloads: the drivers end to end, and what they must not do."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hakmem import programs
from hakmem.programs import common, gcc, node, postgres, redis, rust, snippets_code, sqlite

PACKAGES = Path(programs.__file__).resolve().parents[2]
BUILD_PEERS = PACKAGES.parent / "bench" / "peers" / "build.sh"


def start(words: list[str], **extra: str) -> subprocess.Popen:
    env = {key: value for key, value in os.environ.items() if not key.startswith("LD_PRELOAD")}
    env |= {"PYTHONPATH": str(PACKAGES), **extra}
    return subprocess.Popen(
        [sys.executable, "-m", "hakmem.programs", *words],
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def drive(*words: str, status: int = 0, **extra: str) -> dict:
    process = start(list(words), **extra)
    out, err = process.communicate(timeout=60)
    assert process.returncode == status, err
    return json.loads(out.splitlines()[-1]) if status == 0 else {"said": err}


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def needs(program: str) -> None:
    reason = programs.available(program)
    if reason:
        pytest.skip(reason)


@pytest.fixture(scope="session")
def other_allocator(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A library to preload that leaves malloc alone, and notes every program it comes into."""
    folder = tmp_path_factory.mktemp("library")
    source, library = folder / "mark.c", folder / "libmark.so"
    source.write_text(
        """
        #include <fcntl.h>
        #include <stdlib.h>
        #include <string.h>
        #include <unistd.h>
        __attribute__((constructor)) static void mark(void)
        {
            char name[4096];
            ssize_t length = readlink("/proc/self/exe", name, sizeof name - 1);
            const char *log = getenv("MARK_LOG");
            int file = log ? open(log, O_WRONLY | O_APPEND | O_CREAT, 0666) : -1;
            if (length <= 0 || file < 0)
                return;
            name[length] = '\\n';
            if (write(file, name, (size_t)length + 1) < 0)
                _exit(99);
            close(file);
        }
        """
    )
    compiler = common.Need("cc", "gcc").path()
    if compiler is None:
        pytest.skip("no C compiler")
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, source], check=True)
    return library


def figures_are_whole(figures: dict) -> None:
    assert figures["ops"] > 0 and figures["ns_best"] > 0
    assert figures["ns_best"] <= figures["ns_median"]
    assert figures["throughput"] == pytest.approx(figures["ops"] / figures["seconds"], rel=1e-3)
    assert figures["rss_kib"] > 500
    assert 0 < figures["mean_pss_kib"] <= figures["peak_pss_kib"] <= figures["rss_kib"]
    assert figures["program_version"] and figures["program_pids"]


# ---- End to end ----------------------------------------------------------------------------------


@pytest.mark.parametrize("malloc", ["default", "malloc"])
def test_python_snippet_has_no_figures_or_another_result_under_a_preload(
    malloc: str, other_allocator: Path
) -> None:
    words = ("python", "--snippet=json", f"--malloc={malloc}", "--repeats=3", "--seed=7")
    plain = drive(*words)
    served = drive(*words, HAKMEM_LAB_PRELOAD=str(other_allocator))
    figures_are_whole(plain)
    assert plain["repeats"] == 3 and plain["seed"] == 7
    assert plain["hash"] == served["hash"]


def test_python_is_told_nothing_of_which_malloc(tmp_path: Path) -> None:
    small, plain = (
        drive("python", "--snippet=churn", f"--malloc={malloc}", "--repeats=1")
        for malloc in ("default", "malloc")
    )
    assert small["hash"] == plain["hash"]
    # Python's own allocator asks for arenas by mmap: figures that agree to the KiB are one setting.
    assert small["rss_kib"] != plain["rss_kib"]


def test_sqlite_answers_wrongly() -> None:
    needs("sqlite")
    figures = drive("sqlite", "--rows=20000")
    figures_are_whole(figures)
    assert figures["ops"] == 20000
    assert figures["hash"] == drive("sqlite", "--rows=20000")["hash"]
    assert figures["hash"] != drive("sqlite", "--rows=20000", "--seed=2")["hash"]


def test_gcc_makes_no_object_or_another_one() -> None:
    needs("gcc")
    figures = drive("gcc", "--kind=light", "--repeats=1")
    figures_are_whole(figures)
    # The peak is that of the compiler proper, not of the driver of gcc alone.
    assert figures["rss_kib"] > 40_000


def test_rust_search_runs_the_wrong_binary(tmp_path: Path) -> None:
    if not (rust.binaries() / rust.SYSTEM).exists():
        pytest.skip("the Rust program is not built: hakmem peers build")
    figures = drive("rust", "--files=50", "--repeats=2")
    figures_are_whole(figures)
    said = drive("rust", "--linked", status=2, HAKMEM_LAB_PRELOAD="/nowhere/tcmalloc.so")["said"]
    assert "tcmalloc has no crate" in said


# ---- Under whose allocator -----------------------------------------------------------------------


def test_driver_or_load_is_served_instead_of_the_program(
    tmp_path: Path, other_allocator: Path
) -> None:
    needs("redis")
    log = tmp_path / "log"
    words = ("redis", "--requests=2000", "--size=16")
    drive(*words, HAKMEM_LAB_PRELOAD=str(other_allocator), MARK_LOG=str(log))
    names = {Path(line).name for line in log.read_text().split()}
    assert names and all(name.startswith("redis") for name in names)
    # Debian's redis-server and redis-benchmark are different files.
    assert os.path.basename(os.path.realpath(redis.LOAD.found())) not in names


def test_inherited_preload_stays_in_the_driver(tmp_path: Path, other_allocator: Path) -> None:
    log = tmp_path / "log"
    words = ("python", "--snippet=churn", "--repeats=1")
    drive(*words, LD_PRELOAD=str(other_allocator), MARK_LOG=str(log))
    # Once in the driver as it starts, which it leaves at once, and once in the program.
    assert len(log.read_text().split()) == 2


def test_program_with_its_own_allocator_keeps_it_for_glibc(monkeypatch) -> None:
    monkeypatch.setenv(common.PRELOAD, "/x/libhakwitness.so")
    first, witness = common.preload_over_own().split(":")
    assert Path(first).name.startswith("libc") and witness == "/x/libhakwitness.so"
    monkeypatch.setenv(common.PRELOAD, "/x/jemalloc.so:/x/libhakwitness.so")
    assert common.preload_over_own() == "/x/jemalloc.so:/x/libhakwitness.so"


def test_linked_binary_is_taken_from_the_witness(monkeypatch) -> None:
    for value, expected in (
        ("", ("system", "")),
        ("/x/libhakwitness.so", ("system", "/x/libhakwitness.so")),
        ("/x/libhakmem.so:/x/libhakwitness.so", ("hakmem", "/x/libhakwitness.so")),
        ("/x/mimalloc2.so", ("mimalloc2", "")),
    ):
        monkeypatch.setenv(common.PRELOAD, value)
        assert rust.allocator_and_rest() == expected


def test_other_user_cannot_reach_library_or_records(tmp_path: Path, monkeypatch) -> None:
    hidden = tmp_path / "hidden"
    hidden.mkdir(mode=0o700)
    library, records, work = hidden / "alloc.so", hidden / "records", tmp_path / "work"
    library.write_bytes(b"library")
    records.mkdir()
    work.mkdir()
    monkeypatch.setenv(common.PRELOAD, str(library))
    monkeypatch.setenv(common.WITNESS, str(records))
    served = common.ForOtherUser(work)
    copy = Path(served.preload)
    assert copy != library and copy.read_bytes() == b"library"
    assert served.environment()[common.WITNESS] == str(work / "witness")
    (work / "witness" / "1-0.json").write_text(json.dumps({"malloc_object": str(copy)}))
    served.hand_over()
    assert json.loads((records / "1-0.json").read_text()) == {"malloc_object": str(library)}


# ---- Ends ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("words", [("redis", "--requests=100000000"), ("gcc", "--repeats=99")])
def test_driver_that_is_ended_leaves_a_process_or_a_folder(
    words: tuple[str, ...], tmp_path: Path
) -> None:
    needs(words[0])
    process = start(list(words), TMPDIR=str(tmp_path))
    deadline = time.monotonic() + 10
    # The server and the load on it; the driver of gcc and the compiler proper.
    while len(found := common.tree(process.pid)[1:]) < 2 and time.monotonic() < deadline:
        time.sleep(0.02)
    assert len(found) >= 2
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=20)
    # What was left to init is gone as soon as init has seen its end.
    deadline = time.monotonic() + 5
    while (left := [pid for pid in found if alive(pid)]) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not left
    assert not list(tmp_path.iterdir())


def test_failed_program_counts_as_done(tmp_path: Path) -> None:
    broken = tmp_path / "sqlite3"
    broken.write_text("#!/bin/sh\necho broken >&2\nexit 5\n")
    broken.chmod(0o755)
    path = f"{tmp_path}:{os.environ['PATH']}"
    said = drive("sqlite", "--rows=1000", status=3, PATH=path)["said"]
    assert "status 5" in said and "broken" in said


def test_wrong_answer_counts(tmp_path: Path) -> None:
    needs("sqlite")
    real = sqlite.SHELL.found()
    broken = tmp_path / "sqlite3"
    broken.write_text(
        f"#!/bin/sh\nsed -u 's/^DELETE FROM t.*/SELECT 1;/' | exec {real} -batch :memory:\n"
    )
    broken.chmod(0o755)
    path = f"{tmp_path}:{os.environ['PATH']}"
    said = drive("sqlite", "--rows=5000", status=3, PATH=path)["said"]
    assert "wrong answers" in said


def test_missing_program_is_a_riddle(monkeypatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert node.available() == "not installed: node (apt install nodejs)"
    said = drive("node", status=2, PATH=str(tmp_path))["said"]
    assert "apt install nodejs" in said


# ---- Figures and the list ------------------------------------------------------------------------


def test_percentiles_of_too_few_samples_are_made_up() -> None:
    found = common.percentiles(range(1, 1001))
    assert found["p50_ns"] == 500 and found["p90_ns"] == 900 and found["p99_ns"] == 990
    assert found["p999_ns"] == 999
    assert "p9999_ns" not in found and found["max_ns"] == 1000
    assert common.percentiles([5]) == {"max_ns": 5}


def test_nothing_done_gives_figures() -> None:
    with pytest.raises(common.Failed):
        common.times(0, [1])
    with pytest.raises(common.Failed):
        common.times(1, [])


def test_transactions_of_pgbench_are_misread(tmp_path: Path) -> None:
    (tmp_path / "transactions.12").write_text(
        "0 1 2000 0 1700000000 500000\n1 1 1000 0 1700000000 800000\n"
    )
    times, seconds = postgres.transactions(tmp_path)
    assert times == [2_000_000, 1_000_000]
    assert seconds == pytest.approx(0.302)


def test_two_workloads_are_one() -> None:
    for scale in programs.SCALES:
        found = programs.workloads(scale)
        assert len({item.key for item in found}) == len(found)
        for item in found:
            assert item.suite == "real" and "{seed}" in item.command and item.about
            assert isinstance(programs.available(item.name), str)
    with pytest.raises(ValueError):
        programs.workloads("huge")


def test_workload_has_options_that_its_driver_does_not_take() -> None:
    from hakmem.programs.__main__ import parser

    for scale in programs.SCALES:
        for item in programs.workloads(scale):
            words = [word.replace("{seed}", "3") for word in item.command[3:]]
            assert parser().parse_args(words).seed == 3


@pytest.mark.parametrize("name", sorted(snippets_code.SNIPPETS))
def test_snippet_depends_on_more_than_its_seed(name: str) -> None:
    run = snippets_code.SNIPPETS[name]
    digests = [hashlib.sha256(run(seed)[1]).digest() for seed in (1, 1, 2)]
    assert digests[0] == digests[1] != digests[2]


def test_source_for_gcc_is_the_same_for_all_seeds() -> None:
    assert gcc.source(1, "heavy") == gcc.source(1, "heavy") != gcc.source(2, "heavy")


# ---- Peers of the distribution -------------------------------------------------------------------


@pytest.mark.skipif(not BUILD_PEERS.exists(), reason="not a source tree")
def test_peer_that_is_missing_or_unknown_passes_unsaid(tmp_path: Path) -> None:
    tools = tmp_path / "tools"
    tools.mkdir()
    # A system that has no library at all.
    (tools / "ldconfig").write_text("#!/bin/sh\n")
    (tools / "ldconfig").chmod(0o755)
    env = os.environ | {"PATH": f"{tools}:{os.environ['PATH']}"}
    out = tmp_path / "peers"

    def build(*words: str) -> subprocess.CompletedProcess:
        argv = ["bash", str(BUILD_PEERS), str(out), *words]
        return subprocess.run(argv, env=env, capture_output=True, text=True, timeout=60)

    done = build("tbbmalloc")
    assert done.returncode == 1 and "missing peers: tbbmalloc" in done.stderr
    assert "libtbbmalloc2" in (out / "logs" / "tbbmalloc.log").read_text()
    assert json.loads((out / "versions.json").read_text()) == []
    assert "no peer called nosuch" in build("nosuch").stderr
