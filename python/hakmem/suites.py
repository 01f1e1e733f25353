"""Which workloads there are, and which of them make up a suite."""

from __future__ import annotations

import itertools
import json
import subprocess
from pathlib import Path

from hakmem.model import Workload

# What `--suite quick` runs: of each kind the one that tells most, all together under five minutes
# with eight allocators.
QUICK = (
    "batch500", "bulkrandom100k", "churn64k", "mid", "large", "growhalf", "json",
    "ownchurn threads=2", "larsonloop threads=2",
)  # fmt: skip
THREADS = (2, 8)
LARSON_THREADS = (1, 2, 4, 8)
# As people know them: larson with its classic letters.
ALIASES = {"larson": "larson-loop"}
LETTERS = {
    "d": "seconds", "t": "threads", "c": "chunks", "r": "rounds", "m": "least", "M": "most",
    "s": "seed",
}  # fmt: skip
COMMON = {"threads", "repeats", "seconds", "aged", "seed"}


class SuiteError(Exception):
    """No such suite or workload, or options that it does not take."""


def listed(hakbench: Path) -> list[dict]:
    """What the workload program says of itself."""
    done = subprocess.run([str(hakbench), "list", "--json"], capture_output=True, text=True)
    if done.returncode != 0:
        raise SuiteError(f"{hakbench} can't be run: {done.stderr.strip() or done.returncode}")
    return json.loads(done.stdout)


def make(hakbench: Path, entry: dict, options: dict[str, str]) -> Workload:
    """One workload with its options, as a command."""
    arguments = [f"--{name}={value}" for name, value in options.items()]
    params = " ".join(f"{name}={value}" for name, value in sorted(options.items()))
    seed = () if "seed" in options else ("--seed={seed}",)
    return Workload(
        name=entry["name"],
        suite=entry["suite"],
        command=(str(hakbench), entry["name"], *seed, *arguments),
        params=params,
        threads=int(options.get("threads", 1)),
        about=entry.get("about", ""),
    )


def variants(entry: dict) -> list[dict[str, str]]:
    """The options that a suite runs a workload with."""
    made = [parse_params(text) for text in entry.get("params") or [""]]
    if not entry.get("threads"):
        return made
    counts = LARSON_THREADS if entry["name"].startswith("larson-") else THREADS
    return [{"threads": str(count), **options} for options in made for count in counts]


def parse_params(params: str | dict) -> dict[str, str]:
    if isinstance(params, dict):
        return {str(name): str(value) for name, value in params.items()}
    return {name: value for name, _, value in (part.partition("=") for part in params.split())}


def program_workloads(scale: str) -> tuple[list[Workload], list[str]]:
    """Real programs that can be run here, and a sentence for each that can't."""
    from hakmem import programs

    found, missing = [], []
    for workload in programs.workloads(scale):
        reason = programs.available(workload.name)
        if reason:
            missing.append(f"{workload.name} is left out: {reason}")
        else:
            found.append(workload)
    return found, sorted(set(missing))


def suite(name: str, hakbench: Path) -> tuple[list[Workload], list[str]]:
    """The workloads of a suite by its name, and what had to be left out."""
    entries = listed(hakbench)
    made = [make(hakbench, entry, options) for entry in entries for options in variants(entry)]
    kinds = sorted({workload.suite for workload in made} | {"real"})
    if name == "quick":
        by_key = {workload.key: workload for workload in made}
        return [by_key[key] for key in QUICK if key in by_key], []
    if name == "real":
        return program_workloads("full")
    if name == "full":
        found, missing = program_workloads("full")
        return made + found, missing
    if name in kinds:
        return [workload for workload in made if workload.suite == name], []
    raise SuiteError(f"no suite called {name}; there are: quick full {' '.join(kinds)}")


def split_options(arguments: list[str], entry: dict) -> dict[str, list[str]]:
    """`-t 1,2 --most=64` as {"threads": ["1", "2"], "most": ["64"]}."""
    known = {option["name"] for option in entry.get("options", [])} | COMMON
    result: dict[str, list[str]] = {}
    left = list(arguments)
    while left:
        word = left.pop(0)
        name, equals, value = word.lstrip("-").partition("=")
        name = name if word.startswith("--") else LETTERS.get(name, name)
        if not word.startswith("-") or name not in known:
            takes = " ".join(f"--{each}" for each in sorted(known))
            raise SuiteError(f"{entry['name']} does not take {word}; it takes: {takes}")
        if not equals:
            if name == "aged" and (not left or left[0].startswith("-")):
                value = "0.95"
            elif not left:
                raise SuiteError(f"{word} needs a value")
            else:
                value = left.pop(0)
        result[name] = [part for part in value.split(",") if part]
    return result


def find(name: str, hakbench: Path) -> dict:
    """A workload by its name."""
    by_name = {entry["name"]: entry for entry in listed(hakbench)}
    name = ALIASES.get(name, name)
    if name not in by_name:
        near = [known for known in by_name if name in known or known in name]
        hint = f"; near: {' '.join(near)}" if near else "; see `hakmem bench --list`"
        raise SuiteError(f"no workload called {name}{hint}")
    return by_name[name]


def matrix(name: str, arguments: list[str], hakbench: Path) -> list[Workload]:
    """One workload with the user's own options; lists of values are crossed."""
    entry = find(name, hakbench)
    options = split_options(arguments, entry)
    if entry.get("threads"):
        options.setdefault("threads", [str(count) for count in THREADS])
    return [
        make(hakbench, entry, dict(zip(options, values, strict=True)))
        for values in itertools.product(*options.values())
    ]


def own(command: list[str], path: Path, timeout: float) -> Workload:
    """The user's program."""
    name = " ".join(Path(word).name if word == command[0] else word for word in command)
    return Workload(
        name=name if len(name) <= 60 else name[:57] + "...",
        suite="own",
        command=(str(path), *command[1:]),
        timeout=timeout,
        reports=False,
    )

