"""A search through text files in Rust, on the system's allocator or with one linked in.

`build` compiles bench/workloads/rust by cargo, a binary for each allocator that has a crate. The
versions are pinned by Cargo.lock, to the byte; the sources are those of the peers that are
preloaded. With `--linked` the driver runs the binary of the allocator in question, and preloads
nothing but what comes with it: the difference to the preloaded one is what linking is worth.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

from hakmem import locate
from hakmem.model import Workload
from hakmem.programs.common import (
    Failed,
    Need,
    Unusable,
    cache_folder,
    environment,
    missing,
    names_allocator,
    preload,
    run_to_done,
    times,
    workload,
)

ABOUT = "a search through text files in Rust"
CARGO = Need("cargo", "cargo", (str(Path.home() / ".cargo" / "bin"),))
COMPILER = Need("rustc", "rustc", (str(Path.home() / ".cargo" / "bin"),))
SYSTEM = "system"
LINKED = ("hakmem", "mimalloc2", "mimalloc3", "jemalloc", "snmalloc", "rpmalloc")
THREADS = 2
# More than this of glibc's heap in use shows that it served the search, which holds megabytes.
GLIBC_KIB_MOST = 512


class BuildError(Exception):
    """Cargo could not build a binary."""


def source() -> Path:
    """The folder of the program: of the installed package, or of the source tree."""
    places = (locate.PACKAGE / "_native" / "rust", locate.TREE / "bench" / "workloads" / "rust")
    for folder in places:
        if (folder / "Cargo.lock").exists():
            return folder
    raise BuildError(f"the Rust program's source is not in {' or '.join(map(str, places))}")


def binaries() -> Path:
    """Where the binaries are looked for."""
    return cache_folder() / "rust"


def build(into: Path, names: Iterable[str] = (SYSTEM, *LINKED)) -> dict[str, Path]:
    """Builds the binaries into a folder: those that could be built, by allocator.

    Raises BuildError where not even the one on the system's allocator can. Why another one is
    missing is in `into`/logs.
    """
    if CARGO.path() is None:
        raise BuildError("cargo is not installed (apt install cargo, or rustup)")
    into.mkdir(parents=True, exist_ok=True)
    (into / "logs").mkdir(exist_ok=True)
    made = {}
    for name in names:
        log = into / "logs" / f"{name}.log"
        if _build_one(name, into, log):
            made[name] = into / name
        elif name == SYSTEM:
            raise BuildError(f"cargo could not build the Rust program: see {log}")
    shutil.rmtree(into / "target", ignore_errors=True)
    return made


def _build_one(name: str, into: Path, log: Path) -> bool:
    # A file that is in the way of a failed build would be an old one.
    (into / name).unlink(missing_ok=True)
    folder = source()
    # Without the allocator and its settings; cargo writes nothing into the source tree.
    env = environment("", CARGO_TARGET_DIR=str(into / "target"))
    argv = [CARGO.found(), "build", "--release", "--locked"]
    if name == "hakmem":
        try:
            env["HAKMEM_NATIVE_DIR"] = str(locate.native("libhakmem.a").parent)
        except locate.Missing as reason:
            log.write_text(f"{reason}\n")
            return False
    if name != SYSTEM:
        argv += ["--features", name]
    with open(log, "wb") as file:
        done = subprocess.run(argv, cwd=folder, env=env, stdout=file, stderr=file)
    if done.returncode != 0:
        return False
    shutil.copy(into / "target" / "release" / "hakmem-search", into / name)
    return True


def available() -> str:
    if (binaries() / SYSTEM).exists():
        return ""
    lacking = missing(CARGO, COMPILER)
    return lacking or "not built: run `hakmem peers build rust`"


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--linked", action="store_true", help="the allocator linked in")
    parser.add_argument("--files", type=int, default=400, help="of 200 lines each")
    parser.add_argument("--repeats", type=int, default=5, help="searches")


def workloads(full: bool) -> list[Workload]:
    files, repeats = (1500, 25) if full else (400, 6)
    options = [f"--files={files}", f"--repeats={repeats}"]
    about = f"a search in Rust through {files} files with {THREADS} threads"
    params = f"files={files}"
    found = [workload("rust", "rust", params, options, about, threads=THREADS)]
    if any((binaries() / name).exists() for name in LINKED):
        about += ", the allocator linked in as #[global_allocator] instead of preloaded"
        found.append(
            workload("rust", "rust-linked", params, [*options, "--linked"], about, threads=THREADS)
        )
    return found


def allocator_and_rest() -> tuple[str, str]:
    """The name of the allocator's binary, and what is to be preloaded beside it.

    The allocator is the first library of the harness's; the witness comes behind it.
    """
    if not names_allocator(preload()):
        return SYSTEM, preload()
    first, _, rest = preload().partition(":")
    stem = Path(first).name.partition(".")[0]
    return stem.removeprefix("lib").partition("-")[0], rest


def choose(linked: bool) -> tuple[str, str]:
    """The name of the binary to run, and its LD_PRELOAD."""
    if not linked:
        return SYSTEM, preload()
    name, rest = allocator_and_rest()
    if name not in (SYSTEM, *LINKED):
        raise Unusable(f"{name} has no crate to link: linked are {', '.join(LINKED)}")
    return name, rest


def drive(options: argparse.Namespace, work: Path) -> dict:
    name, preloaded = choose(options.linked)
    program = binaries() / name
    if not program.exists():
        raise Unusable(f"no binary with {name} linked in: run `hakmem peers build rust`")
    root = work / "tree"
    root.mkdir()
    argv = [str(program), str(root), "--seed", str(options.seed), "--files", str(options.files)]
    argv += ["--threads", str(THREADS), "--repeats", str(options.repeats)]
    answer, took = run_to_done(argv, environment(preloaded), work)
    if answer["linked"] != name:
        raise Failed(f"{program} has {answer['linked']} linked in")
    if name != SYSTEM and answer["glibc_kib"] > GLIBC_KIB_MOST:
        raise Failed(f"glibc serves {answer['glibc_kib']} KiB, {name} was to serve all")
    linked = {"linked": name, "glibc_kib": answer["glibc_kib"]} if options.linked else {}
    return {
        **times(answer["ops"], answer["times_ns"]),
        **took,
        **linked,
        "hash": answer["hash"],
        "program_version": f"hakmem-search 0.1.0 ({answer['linked']})",
    }
