"""Which allocators there are on this machine, and whether a program can be run under them."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path

from hakmem import locate, proof
from hakmem.model import Allocator

# Settings of any allocator, which would reach a measured program. hakmem's are in HAKMEM_*.
FOREIGN_SETTINGS = (
    "LD_PRELOAD", "LD_AUDIT", "MALLOC_", "MIMALLOC_", "TCMALLOC_", "SNMALLOC_", "RPMALLOC_",
    "GLIBC_TUNABLES", "_RJEM_", "JE_", "TBB_MALLOC_",
)  # fmt: skip
OWN_SETTINGS = "HAKMEM_"
# The lab's own among those: they tell hakmem nothing, and it would say so.
LAB_SETTINGS = ("HAKMEM_NATIVE_DIR", "HAKMEM_PEERS")
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]*")
PROBE_SECONDS = 20
STALE_SECONDS = 3600
# Asks an allocator that is preloaded into this very interpreter for its version.
VERSION_SCRIPT = """
import ctypes
here = ctypes.CDLL(None)
def text(name, *arguments):
    function = getattr(here, name, None)
    if function is None:
        return ""
    function.restype = ctypes.c_char_p
    return (function(*arguments) or b"").decode()
version = text("hak_version") or text("tc_version", None, None, None)
if not version and hasattr(here, "mallctl"):
    value, size = ctypes.c_char_p(), ctypes.c_size_t(8)
    if here.mallctl(b"version", ctypes.byref(value), ctypes.byref(size), None, 0) == 0:
        version = (value.value or b"").decode()
if not version and hasattr(here, "mi_version"):
    number = here.mi_version()
    parts = (number // 10000, number // 100 % 100, number % 100) if number >= 10000 else (
        number // 100, number // 10 % 10, number % 10)
    version = ".".join(map(str, parts))
print(version)
"""


class AllocatorError(Exception):
    """What was asked for can't be measured; the text says why."""


@dataclass(frozen=True)
class Known:
    """A peer that is looked for: names of its library on a system, best first, and the package of
    Debian and its kin that has it."""

    name: str
    libraries: tuple[str, ...]
    package: str = ""


KNOWN = (
    Known("mimalloc2", ("libmimalloc.so.2",), "libmimalloc2.0"),
    Known("mimalloc3", ("libmimalloc.so.3",)),
    Known("snmalloc", ("libsnmallocshim.so",)),
    Known("jemalloc", ("libjemalloc.so.2",), "libjemalloc2"),
    Known("rpmalloc", ("librpmallocwrap.so", "librpmalloc.so")),
    Known("tcmalloc", ("libtcmalloc_minimal.so.4", "libtcmalloc.so.4"), "libtcmalloc-minimal4"),
    Known("tbbmalloc", ("libtbbmalloc_proxy.so.2",), "libtbbmalloc2"),
)


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def shown_path(path: Path) -> str:
    """A path without anything of the machine in it."""
    path = path.resolve()
    tree = locate.TREE.resolve()
    return str(path.relative_to(tree)) if path.is_relative_to(tree) else path.name


def clean_environment(allocator: Allocator | None = None) -> dict[str, str]:
    """This process's environment without the settings of any allocator but the one given."""
    environment = {
        key: value for key, value in os.environ.items() if not key.startswith(FOREIGN_SETTINGS)
    }
    for key in list(environment):
        ours = allocator is not None and allocator.is_hakmem and key not in LAB_SETTINGS
        if key.startswith(OWN_SETTINGS) and not ours:
            del environment[key]
    return environment


def peers_folder_default() -> Path:
    """Where peers are built to: HAKMEM_PEERS, else build/peers of a source tree that has them, else
    the user's cache."""
    if os.environ.get("HAKMEM_PEERS"):
        return Path(os.environ["HAKMEM_PEERS"])
    in_tree = locate.TREE / "build" / "peers"
    if (in_tree / "versions.json").exists():
        return in_tree
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "hakmem" / "peers"


# ---- Whether a library works -------------------------------------------------------------------


def preload_fault(library: Path) -> str:
    """Why a program can't be run under the library; empty where it can. A small program is, and the
    dynamic linker says what is wrong."""
    if re.search(r"[\s:]", str(library)):
        return "LD_PRELOAD takes no path with a space or a colon in it: move the file"
    # The dynamic linker says of a file for another machine only that it can't open it.
    try:
        with library.open("rb") as file:
            head = file.read(20)
    except OSError as error:
        return f"it can't be read: {error.strerror}"
    if len(head) < 20 or not head.startswith(b"\x7fELF"):
        return "it is no shared library"
    if proof.machine_fault(head):
        return proof.machine_fault(head)
    program = shutil.which("true") or "/bin/true"
    environment = {**clean_environment(), "LC_ALL": "C", "LD_PRELOAD": str(library)}
    try:
        done = subprocess.run(
            [program], env=environment, capture_output=True, text=True, timeout=PROBE_SECONDS
        )
    except subprocess.TimeoutExpired:
        return f"a program under it does not end ({PROBE_SECONDS} s)"
    refused = re.search(r"cannot be preloaded \((.*)\)", done.stderr)
    if refused:
        return f"it can't be loaded: {refused.group(1)}"
    if done.returncode != 0:
        said = done.stderr.strip().partition("\n")[0].removeprefix(f"{program}: ")
        ending = f"signal {-done.returncode}" if done.returncode < 0 else "an error"
        return f"a program under it ends by {ending}: {said}".rstrip(": ")
    return serves_fault(program, library)


def serves_fault(program: str, library: Path) -> str:
    """Whether malloc is the library's once it is loaded, as far as there is a witness."""
    try:
        witness = locate.native("libhakwitness.so")
    except locate.Missing:
        return ""
    with tempfile.TemporaryDirectory(prefix="hakmem-probe-") as folder:
        preloaded = f"{library}:{witness}"
        environment = {**clean_environment(), "LD_PRELOAD": preloaded, proof.FOLDER: folder}
        subprocess.run([program], env=environment, capture_output=True, timeout=PROBE_SECONDS)
        records = proof.read_records(Path(folder))
    if records and not proof.same_file(records[0].get("malloc_object", ""), library):
        return "it defines no malloc"
    return ""


def version_of(library: Path) -> str:
    """What the allocator says of itself; else the tail of its file's name; else nothing."""
    environment = {**clean_environment(), "LD_PRELOAD": str(library)}
    try:
        done = subprocess.run(
            [sys.executable, "-I", "-S", "-c", VERSION_SCRIPT],
            env=environment, capture_output=True, text=True, timeout=PROBE_SECONDS,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return ""
    said = done.stdout.strip() if done.returncode == 0 else ""
    return said or library.resolve().name.partition(".so.")[2]


# ---- Where they come from ----------------------------------------------------------------------


def own_libc() -> Allocator:
    """The C library's own allocator."""
    name, version = platform.libc_ver()
    if name == "glibc":
        return Allocator("glibc", None, f"glibc {version}", {"source": "the C library's own"})
    return Allocator("musl", None, f"musl {version}".strip(), {"source": "the C library's own"})


def built_peers(folder: Path) -> tuple[list[Allocator], list[str]]:
    """Those that versions.json in the folder tells of."""
    listing = folder / "versions.json"
    if not listing.exists():
        return [], []
    try:
        entries = json.loads(listing.read_text())
        named = [(entry["name"], entry) for entry in entries]
    except (ValueError, KeyError, TypeError):
        raise AllocatorError(f"{listing} is damaged: build the peers anew") from None
    found, missing = [], []
    for name, entry in named:
        library = folder / f"{name}.so"
        if not library.exists():
            missing.append(f"{name} is left out: {library} is gone; build the peers anew")
        elif entry.get("sha256") not in (None, sha256(library)):
            missing.append(
                f"{name} is left out: {library} is not the one that versions.json tells of; "
                "build the peers anew"
            )
        else:
            about = {key: value for key, value in entry.items() if key not in ("name", "version")}
            found.append(Allocator(name, library, str(entry.get("version", "")), about))
    return found, missing


def system_libraries() -> dict[str, Path]:
    """Shared libraries that the dynamic linker knows, by name; the first of each name."""
    # Not every user has the folder of ldconfig in the path.
    path = f"{os.environ.get('PATH', '')}:/sbin:/usr/sbin"
    ldconfig = shutil.which("ldconfig", path=path)
    found: dict[str, Path] = {}
    if ldconfig is not None:
        done = subprocess.run([ldconfig, "-p"], capture_output=True, text=True)
        for line in done.stdout.splitlines():
            name, arrow, where = line.strip().partition(" => ")
            if arrow:
                found.setdefault(name.split()[0], Path(where))
    # ldconfig of musl lists nothing.
    for folder in ("/usr/lib", "/usr/local/lib"):
        for known in KNOWN:
            for name in known.libraries:
                if (Path(folder) / name).exists():
                    found.setdefault(name, Path(folder) / name)
    return found


def system_peer(known: Known, libraries: dict[str, Path]) -> Allocator | None:
    for name in known.libraries:
        if name in libraries:
            about = {"source": f"{name}, as installed on the system"}
            return Allocator(known.name, libraries[name], "", about)
    return None


def how_to_get(known: Known) -> str:
    install = f", or install {known.package}" if known.package else ""
    return f"{known.name} is missing: `hakmem peers build {known.name}` builds it{install}"


def parse_extra(text: str) -> Allocator:
    name, equals, path = text.partition("=")
    if not equals or not path or not NAME.fullmatch(name):
        raise AllocatorError(f"an allocator of your own is given as NAME=FILE.so, not {text}")
    library = Path(path).expanduser().absolute()
    if not library.is_file():
        raise AllocatorError(f"{name}: there is no {path}")
    return Allocator(name, library, "", {"source": "given by the user", "extra": True})


def own_hakmem() -> tuple[list[Allocator], list[str]]:
    try:
        library = locate.native("libhakmem.so")
    except locate.Missing as error:
        return [], [str(error)]
    return [Allocator("hakmem", library, "", {"source": "this project"})], []


def working(allocator: Allocator) -> tuple[Allocator | None, str]:
    """The allocator with its version, or why it is left out."""
    if allocator.library is None:
        return allocator, ""
    fault = preload_fault(allocator.library)
    if fault:
        return None, f"{allocator.name} is left out: {allocator.library}: {fault}"
    if not allocator.version:
        allocator = replace(allocator, version=version_of(allocator.library))
    return allocator, ""


def find(peers_dir: Path | None, extra: list[str]) -> tuple[list[Allocator], list[str]]:
    """All that programs can be run under here: hakmem, the user's own (`NAME=FILE.so`), peers built
    or installed, and the C library's own. Second: a sentence for each that is missing or does not
    work. An explicit folder without peers, or a malformed or repeated name, is an error."""
    if peers_dir is not None and not (peers_dir / "versions.json").exists():
        raise AllocatorError(
            f"no peers in {peers_dir}: `hakmem peers build --into {peers_dir}` builds them"
        )
    candidates, sentences = own_hakmem()
    candidates += [parse_extra(text) for text in extra]
    built, faults = built_peers(peers_dir or peers_folder_default())
    sentences += faults
    candidates += built
    told = {allocator.name for allocator in built} | {text.split()[0] for text in faults}
    libraries = system_libraries()
    for known in KNOWN:
        if known.name in told or any(a.name == known.name for a in candidates):
            continue
        peer = system_peer(known, libraries)
        if peer is None:
            sentences.append(how_to_get(known))
        else:
            candidates.append(peer)
    candidates.append(own_libc())
    names = [allocator.name for allocator in candidates]
    for name in names:
        if names.count(name) > 1:
            raise AllocatorError(f"two allocators are called {name}: give one another name")
    found = []
    for candidate in candidates:
        allocator, fault = working(candidate)
        if allocator is None:
            sentences.append(fault)
        else:
            found.append(allocator)
    return found, sentences


# ---- Copies for a session ----------------------------------------------------------------------


def session_folder(kind: str, place: str | Path) -> Path:
    """A new folder `hakmem-KIND-PID-...`. What a process that was killed left behind is removed:
    after an hour, since the process may belong to another container, which has its own numbers."""
    for old in Path(place).glob(f"hakmem-{kind}-*-*"):
        owner = old.name.split("-")[2]
        with contextlib.suppress(OSError):
            left = owner.isdigit() and not Path(f"/proc/{owner}").exists()
            if left and time.time() - old.stat().st_mtime > STALE_SECONDS:
                shutil.rmtree(old, ignore_errors=True)
    return Path(tempfile.mkdtemp(prefix=f"hakmem-{kind}-{os.getpid()}-", dir=place))


def aside_folder() -> Path:
    """A new folder for copies of libraries: on a file system that programs may be loaded from, and
    with a path that LD_PRELOAD takes. The caller removes it."""
    places = [tempfile.gettempdir(), os.environ.get("XDG_RUNTIME_DIR", ""), "/var/tmp", "/tmp"]
    for place in places:
        if not place or re.search(r"[\s:]", place) or not os.access(place, os.W_OK):
            continue
        if os.statvfs(place).f_flag & os.ST_NOEXEC:
            continue
        return session_folder("bench", place)
    raise AllocatorError(
        "no folder for temporary files that libraries can be loaded from: set TMPDIR to one that "
        "is writable, not mounted noexec, and has no space or colon in its path"
    )


def take(allocators: list[Allocator], aside: Path) -> list[Allocator]:
    """The same allocators, with their libraries copied aside, so that a build in the meantime
    changes nothing, and their checksums noted. A copy that can't be loaded from there (it may look
    for others beside itself) is an error."""
    taken = []
    for allocator in allocators:
        if allocator.library is None:
            taken.append(allocator)
            continue
        copy = aside / f"{allocator.name}.so"
        shutil.copyfile(allocator.library, copy)
        copy.chmod(0o755)
        about = {**allocator.about, "file": shown_path(allocator.library), "sha256": sha256(copy)}
        fault = preload_fault(copy)
        if fault:
            raise AllocatorError(f"{allocator.name}: a copy of {allocator.library}: {fault}")
        taken.append(replace(allocator, library=copy, about=about))
    return taken


def take_witness(aside: Path) -> Path:
    """The witness, copied aside like the allocators."""
    copy = aside / "libhakwitness.so"
    shutil.copyfile(locate.native("libhakwitness.so"), copy)
    copy.chmod(0o755)
    return copy
