"""What the tests of the core share: small programs are compiled."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

TREE = Path(__file__).resolve().parents[2]
WITNESS_FLAGS = (
    str(TREE / "bench" / "witness" / "witness.c"), "-O2", "-Wall", "-Wextra", "-Werror", "-fPIC",
    "-fvisibility=hidden", "-shared", "-Wl,-z,now",
)  # fmt: skip
needs_gcc = pytest.mark.skipif(shutil.which("gcc") is None, reason="no gcc")


def build(out: Path, source: str | None, *flags: str) -> Path:
    """Compiles a program or library from text, or from the files among the flags."""
    words = ["gcc", "-std=gnu11", *flags, "-o", str(out)]
    if source is not None:
        words += ["-x", "c", "-"]
    subprocess.run(words, input=source, text=True, check=True)
    return out
