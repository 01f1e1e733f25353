"""One measured process: its proof, its end, its output. Small programs, built here."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from core_help import WITNESS_FLAGS, build, needs_gcc

from hakmem import process, proof, runner
from hakmem.model import Allocator, Workload

pytestmark = needs_gcc
GLIBC = Allocator("glibc", None)

ALLOCATES = """
#include <stdlib.h>
#include <string.h>
int main(int argc, char **argv) {
    char *volatile p = malloc(100000 + (size_t)argc); memset(p, 1, 100000); (void)argv;
    return 0;
}
"""
# An allocator that is no good for much, but is one: it gives out a big array and frees nothing.
PLAIN_MALLOC = """
#include <stddef.h>
#include <string.h>
static char heap[1 << 26]; static size_t used;
void *malloc(size_t n) { size_t at = used; used += (n + 31) & ~(size_t)15;
    if (used > sizeof heap) return NULL; *(size_t *)(heap + at) = n; return heap + at + 16; }
void free(void *p) { (void)p; }
void *calloc(size_t a, size_t b) { return malloc(a * b); }
void *realloc(void *p, size_t n) { void *q = malloc(n);
    if (p && q) { size_t old = ((size_t *)p)[-2]; memcpy(q, p, old < n ? old : n); } return q; }
"""


@pytest.fixture(scope="module")
def tools(tmp_path_factory):
    """Programs, libraries and the witness, in one folder."""
    root = tmp_path_factory.mktemp("core")
    build(root / "witness.so", None, *WITNESS_FLAGS)
    build(root / "allocates", ALLOCATES)
    build(root / "static", ALLOCATES, "-static")
    build(root / "plain.so", PLAIN_MALLOC, "-shared", "-fPIC", "-fno-builtin")
    return root


def run(tools: Path, tmp_path: Path, *command: object, allocator: Allocator = GLIBC, **options):
    folder = tmp_path / "records"
    folder.mkdir(parents=True, exist_ok=True)
    words = [str(word) for word in command]
    result = process.measure(words, allocator, witness=(tools / "witness.so", folder), **options)
    return result, proof.judge(folder, allocator, pid=result.pid, command=words[0])


def plain(tools: Path, name: str = "plain") -> Allocator:
    return Allocator(name, tools / "plain.so")


# ---- Proof -------------------------------------------------------------------------------------


def test_a_proved_run_is_refused(tools, tmp_path):
    for number, allocator in enumerate((GLIBC, plain(tools))):
        result, shown = run(tools, tmp_path / str(number), tools / "allocates", allocator=allocator)
        assert result.error == "" and shown.ok and shown.processes == 1, shown
        assert shown.peak_rss_kib > 100


def test_a_mislabelled_run_counts(tools, tmp_path):
    """glibc under the name hakmem: nothing was preloaded, or another library was."""
    hakmem = Allocator("hakmem", tools / "plain.so")
    folder = tmp_path / "records"
    folder.mkdir()
    result = process.measure(
        [str(tools / "allocates")], GLIBC, witness=(tools / "witness.so", folder)
    )
    shown = proof.judge(folder, hakmem, pid=result.pid, command=str(tools / "allocates"))
    assert not shown.ok and "malloc is served by libc.so" in shown.error
    # The right object, but without hakmem's meter.
    _, shown = run(tools, tmp_path, tools / "allocates", allocator=hakmem)
    assert not shown.ok and "no hak_stats" in shown.error


def test_a_library_from_elsewhere_counts(tools, tmp_path):
    shown = proof.judge(tmp_path, plain(tools), tmp_path / "aside", pid=1, command="true")
    assert not shown.ok and "not a copy" in shown.error


def test_a_process_that_allocates_nothing_counts(tools, tmp_path):
    build(tmp_path / "idle", "int main(void) { return 0; }")
    _, shown = run(tools, tmp_path, tmp_path / "idle")
    assert not shown.ok and "allocated nothing" in shown.error


def test_the_c_librarys_heap_served_and_counts(tools, tmp_path):
    """The four functions are the peer's, but what was served came from glibc."""
    source = (
        "#include <stddef.h>\nvoid *__libc_malloc(size_t); void __libc_free(void *);"
        "void *__libc_calloc(size_t, size_t); void *__libc_realloc(void *, size_t);"
        "void *malloc(size_t n) { return __libc_malloc(n); } void free(void *p) { __libc_free(p); }"
        "void *calloc(size_t a, size_t b) { return __libc_calloc(a, b); }"
        "void *realloc(void *p, size_t n) { return __libc_realloc(p, n); }"
    )
    build(tmp_path / "wrap.so", source, "-shared", "-fPIC", "-fno-builtin")
    peer = Allocator("peer", tmp_path / "wrap.so")
    _, shown = run(tools, tmp_path, tools / "allocates", allocator=peer)
    assert not shown.ok and "own heap served" in shown.error


def test_a_static_program_counts(tools, tmp_path):
    result, shown = run(tools, tmp_path, tools / "static", allocator=plain(tools))
    assert result.error == ""
    assert not shown.ok and "statically linked" in shown.error


def test_a_script_of_a_static_program_is_unexplained(tools, tmp_path):
    script = tmp_path / "script"
    script.write_text(f"#!{tools / 'static'}\n")
    script.chmod(0o755)
    _, shown = run(tools, tmp_path, script)
    assert not shown.ok and "is a script: static: it is statically linked" in shown.error


def test_a_program_that_clears_the_preload_counts(tools, tmp_path):
    for words in (["-i"], ["-u", "LD_PRELOAD"]):
        _, shown = run(tools, tmp_path, "env", *words, tools / "allocates", allocator=plain(tools))
        assert not shown.ok and "no word at its end" in shown.error, shown
        shutil.rmtree(tmp_path / "records")


def test_a_set_user_id_program_counts(tools, tmp_path):
    if os.getuid() != 0:
        pytest.skip("needs root, to give a file to another user")
    program = tmp_path / "raised"
    shutil.copyfile(tools / "allocates", program)
    os.chown(program, 65534, 65534)
    program.chmod(0o4755)
    tmp_path.chmod(0o755)
    if os.statvfs(tmp_path).f_flag & os.ST_NOSUID:
        pytest.skip("mounted nosuid")
    result, shown = run(tools, tmp_path, program, allocator=plain(tools))
    assert result.error == ""
    assert not shown.ok and "set-user-ID" in shown.error


def test_a_program_for_another_machine_is_unexplained(tools, tmp_path):
    other = bytearray((tools / "allocates").read_bytes())
    other[18:20] = (243).to_bytes(2, "little")
    (tmp_path / "riscv").write_bytes(other)
    (tmp_path / "riscv").chmod(0o755)
    assert "another machine (riscv" in proof.why_no_record(str(tmp_path / "riscv"))


def test_what_a_command_execs_into_is_not_judged(tools, tmp_path):
    _, shown = run(tools, tmp_path, "sh", "-c", f"exec {tools / 'allocates'}")
    assert shown.ok and shown.processes == 1


def test_children_are_not_counted(tools, tmp_path):
    source = """
        #include <stdlib.h>
        #include <sys/wait.h>
        #include <unistd.h>
        int main(void) {
            char *volatile p = malloc(10); int i;
            for (i = 0; i < 3; i++)
                if (fork() == 0) { free(p); if (i == 2) _Exit(0); if (i == 1) _exit(0); exit(0); }
            while (wait(NULL) > 0) ;
            quick_exit(0);
        }"""
    build(tmp_path / "forks", source)
    result, shown = run(tools, tmp_path, tmp_path / "forks", allocator=plain(tools))
    assert result.error == "" and shown.ok and shown.processes == 4
    forked = [r for r in proof.read_records(tmp_path / "records") if r["forked"]]
    assert len(forked) == 3 and all(r["ended"] for r in forked)


def test_a_child_of_another_allocator_is_not_named(tools, tmp_path):
    code = f"env LD_PRELOAD={tools / 'witness.so'} {tools / 'allocates'}; true"
    _, shown = run(tools, tmp_path, "sh", "-c", code, allocator=plain(tools))
    assert shown.ok and any("malloc is served by libc" in name for name in shown.strangers)
    assert "served by others" in shown.text


def test_a_vforked_child_writes_its_parents_record(tools, tmp_path):
    source = """
        #define _GNU_SOURCE
        #include <signal.h>
        #include <stdlib.h>
        #include <unistd.h>
        int main(void) {
            if (vfork() == 0) _exit(7);
            raise(SIGKILL);
        }"""
    build(tmp_path / "vforks", source)
    run(tools, tmp_path, tmp_path / "vforks")
    assert [record["ended"] for record in proof.read_records(tmp_path / "records")] == [False]


def test_an_end_within_a_handler_hangs(tools, tmp_path):
    """A handler that interrupted malloc may end the process; counters then may never answer."""
    source = """
        #include <pthread.h>
        #include <unistd.h>
        static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
        int mallctl(const char *a, void *b, void *c, void *d, unsigned long e);
        int mallctl(const char *a, void *b, void *c, void *d, unsigned long e)
        { (void)a; (void)b; (void)c; (void)d; (void)e; pthread_mutex_lock(&lock); return 1; }
        """
    build(tmp_path / "locks.so", PLAIN_MALLOC + source, "-shared", "-fPIC", "-fno-builtin")
    build(tmp_path / "leaves", "#include <unistd.h>\n#include <stdlib.h>\n"
          "int main(void) { char *volatile p = malloc(9); (void)p; _exit(5); }")  # fmt: skip
    locks = Allocator("locks", tmp_path / "locks.so")
    result, _ = run(tools, tmp_path, tmp_path / "leaves", allocator=locks, timeout=10)
    assert result.status == 5 and result.wall_s < 5


def test_the_witness_is_heard(tools, tmp_path):
    done = subprocess.run(
        [tools / "allocates"], env={"LD_PRELOAD": str(tools / "witness.so")}, cwd=tmp_path,
        capture_output=True,
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    assert not list(tmp_path.iterdir())


def test_a_program_that_takes_frees_address_is_taken_for_its_definer(tools, tmp_path):
    """Linked at a fixed place, the address of free is a stub in the program itself."""
    source = (
        "#include <stdlib.h>\nvoid (*volatile f)(void *) = free;"
        "int main(void) { f(malloc(10)); return f == free ? 0 : 1; }"
    )
    build(tmp_path / "fixed", source, "-no-pie", "-fno-pie")
    _, shown = run(tools, tmp_path, tmp_path / "fixed", allocator=plain(tools))
    assert shown.ok, shown


def test_a_torn_record_breaks_the_judgement(tools, tmp_path):
    folder = tmp_path / "records"
    folder.mkdir()
    (folder / "1-1.json").write_text('{"pid": 1, "pp')
    _, shown = run(tools, tmp_path, tools / "allocates")
    assert shown.ok


# ---- How a process ends ------------------------------------------------------------------------


def test_a_command_that_does_not_exist_is_unclear():
    result = process.measure(["./no-such-program"], GLIBC)
    assert "no program ./no-such-program" in result.error and result.pid == 0


def test_a_file_that_is_no_program_is_unclear(tmp_path):
    (tmp_path / "text").write_text("x")
    assert "chmod +x" in process.measure([str(tmp_path / "text")], GLIBC).error


def test_a_crash_under_one_allocator_only_is_unclear(tools, tmp_path):
    aborts = PLAIN_MALLOC.replace("if (used > sizeof heap) return NULL;", "if (n > 99999) abort();")
    build(tmp_path / "aborts.so", "void abort(void);" + aborts, "-shared", "-fPIC", "-fno-builtin")
    bad = Allocator("bad", tmp_path / "aborts.so")
    result, _ = run(tools, tmp_path, tools / "allocates", allocator=bad)
    assert result.error == "killed by SIGABRT"
    result, _ = run(tools, tmp_path / "other", tools / "allocates")
    assert result.error == ""


def test_a_status_is_lost():
    result = process.measure(["sh", "-c", "echo why >&2; exit 9"], GLIBC)
    assert result.error == "ended with status 9" and result.stderr == "why\n"


def test_a_hang_is_waited_for(tools, tmp_path):
    """With a child in a session of its own, which is ended too."""
    source = """
        #include <stdio.h>
        #include <unistd.h>
        int main(void) {
            int child = fork();
            if (child == 0) setsid(); else { printf("%d\\n", child); fflush(stdout); }
            for (;;) pause();
        }"""
    build(tmp_path / "hangs", source)
    start = time.monotonic()
    result, _ = run(tools, tmp_path, tmp_path / "hangs", timeout=0.4)
    assert result.error == "not done after 0.4 s" and time.monotonic() - start < 5
    assert_gone(int(result.stdout))


def assert_gone(pid: int) -> None:
    for _ in range(100):
        try:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX":
                return
        except OSError:
            return
        time.sleep(0.02)
    raise AssertionError(f"{pid} still runs")


def test_a_process_left_in_the_background_runs_on():
    result = process.measure(["sh", "-c", "sleep 60 & echo $!"], GLIBC)
    assert result.error == "" and result.wall_s < 10
    assert_gone(int(result.stdout))


def test_much_output_blocks_or_is_kept():
    code = "head -c 50000000 /dev/zero | tr '\\0' x; echo; echo the end"
    result = process.measure(["sh", "-c", code], GLIBC, timeout=60)
    assert result.error == "" and result.stdout.endswith("x\nthe end\n")
    assert len(result.stdout) <= process.STDOUT_BYTES


def test_all_output_is_held_in_memory():
    tail = process.Tail(10)
    for number in range(1000):
        tail.add(b"%3d" % number)
        assert len(tail.bytes) <= 20
    assert tail.text() == "6997998999"


def test_settings_of_other_allocators_get_through(monkeypatch, tools):
    monkeypatch.setenv("MALLOC_CONF", "x:y")
    monkeypatch.setenv("HAKMEM_MODE", "fast")
    monkeypatch.setenv("HAKMEM_NATIVE_DIR", "/nowhere")
    names = {line.partition("=")[0] for line in process.measure(["env"], GLIBC).stdout.split("\n")}
    assert "MALLOC_CONF" not in names
    assert not [name for name in names if name.startswith("HAKMEM_")]
    hakmem = process.environment_for(Allocator("hakmem-old", tools / "plain.so"), None, None, {})
    assert hakmem["HAKMEM_MODE"] == "fast" and "HAKMEM_NATIVE_DIR" not in hakmem
    assert process.measure(["env"], GLIBC, environment={"OWN": "set"}).stdout.count("OWN=set") == 1


def test_a_process_runs_on_other_processors():
    cpu = min(os.sched_getaffinity(0))
    before = os.sched_getaffinity(0)
    code = "import os; print(*os.sched_getaffinity(0))"
    assert process.measure([sys.executable, "-c", code], GLIBC, cpus={cpu}).stdout.split() == [
        str(cpu)
    ]
    assert os.sched_getaffinity(0) == before
    with pytest.raises(ValueError, match="can't be used here"):
        process.measure(["true"], GLIBC, cpus={4000})


def test_memory_of_children_is_missed(tools, tmp_path):
    source = """
        #include <stdlib.h>
        #include <string.h>
        #include <sys/wait.h>
        #include <unistd.h>
        int main(void) {
            if (fork() == 0) { char *volatile p = malloc(64 << 20); memset(p, 1, 64 << 20);
                usleep(300000); return 0; }
            wait(NULL); return 0;
        }"""
    build(tmp_path / "big", source)
    result, shown = run(tools, tmp_path, tmp_path / "big")
    assert result.peak_pss_kib > 60 << 10 and result.mean_rss_kib > 30 << 10
    assert shown.peak_rss_kib > 60 << 10
    assert 3 <= len(result.series) <= process.SERIES_POINTS


def test_a_series_loses_its_ends():
    points = [(i, i * i) for i in range(1001)]
    thinned = process.thin(points)
    assert len(thinned) == 200 and thinned[0] == points[0] and thinned[-1] == points[-1]


def test_the_harness_own_memory_is_taken_for_a_small_programs(tools, tmp_path):
    """The kernel's figure for a child starts from the parent's memory before the exec."""
    ballast = bytearray(100 << 20)
    result, shown = run(tools, tmp_path, tools / "allocates")
    assert len(ballast) > 0
    assert result.peak_rss_kib is None and shown.peak_rss_kib < 20 << 10


def test_a_counter_counts_the_harness():
    """A software event, which every machine has; hardware events take the same way."""
    faults = {"faults": (process.TYPE_SOFTWARE, 2)}
    try:
        os.close(process.open_event(*faults["faults"]))
    except OSError:
        pytest.skip("no performance counters")
    code = "b = bytearray(64 << 20); print(len(b[::4096]))"
    with process.counting(faults) as figures:
        bytearray(64 << 20)
        subprocess.run([sys.executable, "-S", "-c", "pass"], check=True)
    small = figures["faults"]
    with process.counting(faults) as figures:
        subprocess.run([sys.executable, "-S", "-c", code], check=True, stdout=subprocess.DEVNULL)
    assert 0 < small < 10_000 < 16_000 < figures["faults"] + 10_000


# ---- Rows --------------------------------------------------------------------------------------


def step_of(command: tuple[str, ...], **options) -> runner.Step:
    return runner.Step(1, 0, Workload("w", "own", command, **options), GLIBC)


def test_a_workloads_own_figures_are_lost():
    said = {"ns_best": 1.5, "ns_median": 2, "p99_ns": 9, "histogram_raw": [[100, 5], [2000, 1]],
            "malloc_object": "/lib/libc.so.6"}  # fmt: skip
    result = process.Measurement(pid=1, stdout="talk\n" + json.dumps(said) + "\n")
    row = runner.row_of(step_of(("x",)), result, proof.Proof(True, "proved", 1, ""))
    assert (row["ns_per_op"], row["ns_per_op_median"], row["p99_ns"]) == (1.5, 2, 9)
    from hdrh.histogram import HdrHistogram

    assert HdrHistogram.decode(row["histogram"]).get_total_count() == 6


def test_a_run_without_proof_counts():
    said = json.dumps({"ns_best": 1.5})
    result = process.Measurement(pid=1, wall_s=1.0, stdout=said)
    row = runner.row_of(step_of(("x",)), result, proof.Proof(False, "", 0, "no proof: why"))
    assert row["error"] == "no proof: why" and "ns_per_op" not in row and "wall_s" not in row


def test_a_lines_own_proof_is_ignored():
    hakmem = Allocator("hakmem", Path("/x/hakmem.so"))
    said = {f"{name}_object": "/x/hakmem.so" for name in proof.FUNCTIONS}
    said |= {"asked_bytes_least": 1000, "hak_served_bytes": 499}
    assert "499 bytes served of 1000" in runner.said_fault(said, hakmem)
    assert runner.said_fault(said | {"hak_served_bytes": 500}, hakmem) == ""
    wrong = runner.said_fault(said | {"free_object": "/lib/libc.so.6"}, hakmem)
    assert wrong == "no proof: free was served by libc.so.6"


def test_a_silent_workload_counts():
    result = process.Measurement(pid=1, stdout="no json\n", stderr="odd")
    row = runner.row_of(step_of(("x",)), result, proof.Proof(True, "", 1, ""))
    assert row["error"] == "printed no figures: odd"


def test_a_normal_end_with_a_status_is_an_error_or_any_end_is_normal():
    """A command whose end is normal with status 1, as of grep, which found nothing."""
    proved = proof.Proof(True, "proved", 1, "")
    for status, error in ((1, ""), (2, "ended with status 2"), (0, "ended with status 0")):
        said = f"ended with status {status}" if status else ""
        result = process.Measurement(pid=1, status=status, error=said, wall_s=1.0)
        row = runner.row_of(step_of(("x",), reports=False, status=1), result, proved)
        assert row.get("error", "").startswith(error) and bool(row.get("error")) == bool(error)
