"""`hakmem run -- COMMAND`: a command under hakmem, in place of this process."""

from __future__ import annotations

import os
import shutil
import stat
from pathlib import Path

from hakmem import locate

MODES = ("minimal", "fast", "balanced", "learning", "research")
# The file starts with the four bytes of an ELF header; what it asks to be loaded by follows later.
ELF_MAGIC = b"\x7fELF"
PT_INTERP = 3


class RunError(Exception):
    """The command can't be run under hakmem; the text says why and what to do."""


def find_command(name: str) -> Path:
    """The file that the shell would run."""
    found = shutil.which(name)
    if found is not None:
        return Path(found)
    path = Path(name)
    if path.is_dir():
        raise RunError(f"{name} is a folder, not a command")
    if path.exists():
        raise RunError(f"{name} is not executable: chmod +x {name}, or name its interpreter")
    raise RunError(f"there is no command called {name}")


def is_static(path: Path) -> bool:
    """Whether an ELF program names no dynamic linker, so that nothing can be preloaded."""
    with path.open("rb") as file:
        head = file.read(64)
        if len(head) < 64 or not head.startswith(ELF_MAGIC) or head[4] != 2:
            return False
        order = "little" if head[5] == 1 else "big"
        table = int.from_bytes(head[32:40], order)
        size = int.from_bytes(head[54:56], order)
        count = int.from_bytes(head[56:58], order)
        file.seek(table)
        entries = file.read(size * count)
    kinds = (int.from_bytes(entries[i * size : i * size + 4], order) for i in range(count))
    return PT_INTERP not in kinds


def check(path: Path) -> None:
    """Refuses what would run without hakmem, silently."""
    try:
        mode = path.stat().st_mode
        static = is_static(path)
    except PermissionError:
        return  # executable but not readable: the system decides
    if static:
        raise RunError(
            f"{path} is linked statically: nothing can be preloaded into it. "
            "Link it with libhakmem.a instead"
        )
    if mode & (stat.S_ISUID | stat.S_ISGID) and os.geteuid() != path.stat().st_uid:
        raise RunError(
            f"{path} runs with raised privileges: the system ignores LD_PRELOAD for it. "
            "List libhakmem.so in /etc/ld.so.preload, or link the program with hakmem"
        )


def environment(library: Path, settings: dict[str, str]) -> dict[str, str]:
    """The environment with hakmem in front of what is preloaded already."""
    result = dict(os.environ)
    others = [part for part in result.get("LD_PRELOAD", "").split(":") if part]
    result["LD_PRELOAD"] = ":".join([str(library), *others])
    result.update(settings)
    return result


def parse_settings(texts: tuple[str, ...]) -> dict[str, str]:
    """KNOB=VALUE, as in docs/options.md, with or without HAKMEM_ in front."""
    settings = {}
    for text in texts:
        name, equals, value = text.partition("=")
        name = name.strip().upper()
        if not equals or not name.replace("_", "").isalnum():
            raise RunError(f"-o takes OPTION=VALUE, such as bin_bytes=128k, not {text}")
        settings[name if name.startswith("HAKMEM_") else f"HAKMEM_{name}"] = value.strip()
    return settings


def execute(command: list[str], settings: dict[str, str]) -> None:
    """Replaces this process. Returns only by an exception."""
    path = find_command(command[0])
    check(path)
    library = locate.native("libhakmem.so")
    try:
        os.execve(path, command, environment(library, settings))
    except OSError as error:
        raise RunError(f"{path} can't be run: {error.strerror}") from None
