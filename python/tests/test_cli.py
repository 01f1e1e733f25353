"""The command line: what it says to wrong input, and one comparison from end to end."""

import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from hakmem import bench, locate, run, suites


def hakmem(*words: str, cwd: Path | None = None, **environment: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "-m", "hakmem", *words], capture_output=True, text=True, timeout=120,
        cwd=cwd, env={**os.environ, "COLUMNS": "160", **environment},
    )  # fmt: skip


@pytest.fixture(scope="session", autouse=True)
def native():
    for name in ("libhakmem.so", "hakbench", "libhakwitness.so"):
        try:
            locate.native(name)
        except locate.Missing as missing:
            pytest.skip(str(missing), allow_module_level=True)


# ---- run


def test_a_command_runs_without_hakmem():
    code = "print(any('libhakmem' in line for line in open('/proc/self/maps')))"
    done = hakmem("run", "--", sys.executable, "-c", code)
    assert done.stdout.strip() == "True"


def test_the_status_of_a_command_is_lost():
    assert hakmem("run", "--", sys.executable, "-c", "raise SystemExit(7)").returncode == 7


def test_an_option_does_not_reach_the_library():
    done = hakmem(
        "run", "-o", "bin_bytes=32k", "-o", "HAKMEM_HELP=1", "--", sys.executable, "-c", ""
    )
    line = next(line for line in done.stderr.splitlines() if "BIN_BYTES" in line)
    assert "32 KiB" in line


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("run",), "run what?"),
        (("run", "--", "no-such-command-here"), "no command called no-such-command-here"),
        (("run", "--", "/"), "is a folder"),
        (("run", "-o", "bin_bytes", "--", "true"), "takes OPTION=VALUE"),
        (("bench", "no-such-workload"), "no workload called no-such-workload"),
        (("bench", "--suite", "no-such"), "no suite called no-such; there are: quick full"),
        (("bench", "pair", "--suite", "quick"), "not both"),
        (("bench", "pair", "--", "true"), "not both"),
        (("bench", "pair", "--no-such-option", "3"), "does not take --no-such-option"),
        (("bench", "--only", "nobody", "pair"), "no allocator called nobody"),
        (("bench", "--peer", "mine", "pair"), "NAME="),
        (("bench", "--peer", "mine=/no/such.so", "pair"), "such.so"),
        (("bench", "--cpus", "9999", "pair"), "--cpus 9999"),
        (("bench", "--cpus", "x", "pair"), "--cpus takes numbers"),
        (("bench", "--", "no-such-command-here"), "no command called no-such-command-here"),
        (("bench", "--variant", "big", "pair"), "--variant takes NAME:OPTION=VALUE"),
        (("bench", "--variant", "a b:x=1", "pair"), "--variant takes NAME:OPTION=VALUE"),
        (("report",), "report on what?"),
        (("report", "/no/such.csv"), "such.csv"),
    ],
)
def test_wrong_input_is_not_explained(words: tuple[str, ...], says: str, tmp_path: Path):
    done = hakmem(*words, cwd=tmp_path)
    assert done.returncode != 0
    assert says in done.stderr + done.stdout
    assert "Traceback" not in done.stderr
    assert not list(tmp_path.rglob("*.csv"))


def test_a_file_that_may_not_be_run_is_run(tmp_path: Path):
    script = tmp_path / "script.sh"
    script.write_text("echo hello\n")
    with pytest.raises(run.RunError, match="chmod"):
        run.find_command(str(script))


def test_a_static_program_seems_to_be_served(tmp_path: Path):
    source = tmp_path / "static.c"
    source.write_text("int main(void) { return 0; }\n")
    program = tmp_path / "static"
    if subprocess.run(["gcc", "-static", source, "-o", program], capture_output=True).returncode:
        pytest.skip("no static C library")
    with pytest.raises(run.RunError, match="statically"):
        run.check(program)


def test_raised_privileges_go_unnoticed(tmp_path: Path):
    program = tmp_path / "program"
    shutil.copy(shutil.which("true") or "/bin/true", program)
    try:
        os.chown(program, 65534, 65534)
    except PermissionError:
        pytest.skip("needs root")
    program.chmod(program.stat().st_mode | stat.S_ISUID)
    with pytest.raises(run.RunError, match="privileges"):
        run.check(program)


# ---- bench


def test_letters_and_lists_do_not_make_a_matrix():
    made = suites.matrix("larson", ["-t", "1,2", "-M", "128,1024", "-d", "1"], native_hakbench())
    assert len(made) == 4
    assert {one.name for one in made} == {"larson-loop"}
    assert {one.threads for one in made} == {1, 2}
    assert all("--seconds=1" in one.command for one in made)
    assert len({one.key for one in made}) == 4


def test_a_seed_of_the_users_own_is_overridden():
    (one,) = suites.matrix("pair", ["-s", "42"], native_hakbench())
    assert "--seed=42" in one.command and "--seed={seed}" not in one.command


def test_the_quick_suite_names_workloads_that_are_gone():
    made, _ = suites.suite("quick", native_hakbench())
    assert len(made) == len(suites.QUICK)


def test_every_workload_of_the_full_suite_has_a_key_of_its_own():
    made = suites.suite("full", native_hakbench())[0]
    assert len({one.key for one in made}) == len(made) > 80


def native_hakbench() -> Path:
    return locate.native("hakbench")


def test_processors_are_misread():
    usable = sorted(os.sched_getaffinity(0))
    assert bench.parse_cpus(f"{usable[0]}-{usable[0]}") == {usable[0]}
    assert bench.parse_cpus(None) is None


def test_an_own_command_gets_no_verdict(tmp_path: Path):
    out = tmp_path / "own.csv"
    done = hakmem(
        "bench", "--rounds", "5", "--only", "glibc", "--out", str(out), "--no-html", "--",
        sys.executable, "-c", "x = [str(i) for i in range(20000)]", cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "Time:" in done.stdout and "Peak memory:" in done.stdout
    assert out.read_text().startswith("# hakmem-results 1")
    # Given again, nothing is left to do.
    again = hakmem(
        "bench", "--rounds", "5", "--only", "glibc", "--out", str(out), "--no-html", "--",
        sys.executable, "-c", "x = [str(i) for i in range(20000)]", cwd=tmp_path,
    )  # fmt: skip
    assert again.returncode == 0 and "Time:" in again.stdout


def test_a_workload_of_the_users_own_making_is_not_shown(tmp_path: Path):
    done = hakmem(
        "bench", "larson", "-d", "0.05", "-t", "2", "-M", "128,1024", "--rounds", "2",
        "--only", "glibc", "--out", str(tmp_path / "r.csv"), cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "most=128" in done.stdout and "Results:" in done.stdout
    page = next(tmp_path.rglob("*.html"))
    assert "larson-loop" in page.read_text()


def test_a_variant_runs_with_the_options_of_hakmem_itself(tmp_path: Path):
    out = tmp_path / "r.csv"
    code = "import os, sys; sys.exit(0 if os.environ.get('HAKMEM_BIN_BYTES', '') == '256k' else 3)"
    done = hakmem(
        "bench", "--rounds", "1", "--only", "glibc", "--variant", "big:bin_bytes=256k", "--no-html",
        "--out", str(out), "--", sys.executable, "-c", code, cwd=tmp_path,
    )  # fmt: skip
    # Only the variant has the option: under the others the command ends as it does without.
    assert "hakmem-big: 1 runs don't count" in done.stdout, done.stdout + done.stderr
    assert "hakmem: 1 runs" not in done.stdout


def test_a_sweep_of_the_self_profile_is_empty(tmp_path: Path):
    out = tmp_path / "profile.csv"
    done = hakmem("bench", "--self-profile", "--sizes", "64,1024", "-t", "2", "--out", str(out))
    assert done.returncode == 0, done.stderr
    lines = out.read_text().splitlines()
    assert any(line.startswith("64,2,refill,") for line in lines)
    assert any(line.startswith("1024,2,heartbeat,") for line in lines)
    assert "refill" in done.stdout


@pytest.mark.parametrize("words", [("--sizes", "x"), ("--sizes", "0"), ("--chunks", "5")])
def test_a_sweep_guesses_at_its_options(words: tuple[str, ...]):
    done = hakmem("bench", "--self-profile", *words)
    assert done.returncode == 2 and "Traceback" not in done.stderr


def test_the_options_of_a_workload_are_a_secret():
    done = hakmem("bench", "--list", "larson")
    assert "-M, --most" in done.stdout and "-t, --threads" in done.stdout


def test_a_command_that_fails_by_itself_is_blamed_on_an_allocator(tmp_path: Path):
    code = "import os; os.abort()"
    done = hakmem("bench", "--", sys.executable, "-c", code, cwd=tmp_path)
    assert done.returncode == 2
    assert "fails without any of the allocators" in done.stderr


def test_a_status_that_is_normal_counts_as_an_error(tmp_path: Path):
    done = hakmem(
        "bench", "--rounds", "5", "--only", "glibc", "--no-html", "--",
        sys.executable, "-c", "raise SystemExit(1)", cwd=tmp_path,
    )  # fmt: skip
    assert "taken as its normal end" in done.stdout
    assert "don't count" not in done.stdout


def test_a_folder_that_cannot_be_written_is_noticed_late(tmp_path: Path):
    blocked = tmp_path / "file"
    blocked.write_text("")
    done = hakmem("bench", "--out", str(blocked / "x.csv"), "--", "true", cwd=tmp_path)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr and str(blocked) in done.stderr
