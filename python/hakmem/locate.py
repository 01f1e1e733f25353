"""Where the native files are that the command works with."""

from __future__ import annotations

import os
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent
# In a source tree: the built libraries, and the scripts as they stand.
TREE = PACKAGE.parent.parent
IN_TREE = {
    "peers/build.sh": TREE / "bench" / "peers" / "build.sh",
    "rust": TREE / "bench" / "workloads" / "rust",
}


class Missing(Exception):
    """A native file is not there; the text says how to get it."""


def native(name: str) -> Path:
    """The file `name`, such as "libhakmem.so" or "hakbench": of the installed package, else of the
    folder that HAKMEM_NATIVE_DIR names, else of the build folder of a source tree."""
    places = [PACKAGE / "_native" / name]
    if os.environ.get("HAKMEM_NATIVE_DIR"):
        places.append(Path(os.environ["HAKMEM_NATIVE_DIR"]) / name)
    if (TREE / "CMakeLists.txt").exists():
        places += [TREE / "build" / name, IN_TREE.get(name, TREE / "build" / "bench" / name)]
        places.append(TREE / "build" / "bench" / "witness" / name)
    for place in places:
        if place.exists():
            return place.resolve()
    raise Missing(
        f"{name} is missing: install the package (pip install .), or build it with "
        "cmake -S . -B build -DHAKMEM_BENCH=ON && cmake --build build"
    )
