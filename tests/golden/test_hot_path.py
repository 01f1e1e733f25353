#!/usr/bin/env python3
"""The hot path has the instructions that it is meant to have, and no more.

    test_hot_path.py              compare; status 1 on a difference, 77 where something is missing
    test_hot_path.py --update     accept what the compilers here make, and write it down

For gcc and clang each, the library is built with the flags it is released with (or is the one of
HAK_TEST_LIB, for the compiler that built that), and the path of each hot entry point is found
twice:

    read   the code is followed from the entry to the return, no conditional jump taken
    run    a warm call of it is single-stepped (trace.c), in every preset

Both must have passed the same addresses. No call, locked instruction, system call or clock may lie
on the path, its length must keep within the bars below, and its instructions, loads, stores and
branches must be those of <compiler>-<major>.txt. A compiler that has no such file is held to the
bars.

How it is counted. A read-modify-write is a load and a store. A branch is a jump of any kind; the
return is an instruction and no more. endbr64, which the compilers of some distributions put at each
entry, isn't counted. What memset does for calloc is the C library's and isn't counted either.
"""

import argparse
import difflib
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).resolve().parent
SOURCE = Path(os.environ.get("HAK_TEST_SOURCE") or HERE.parent.parent)
CXX = {"gcc": "g++", "clang": "clang++"}
PRESETS = ("minimal", "fast", "balanced", "learning", "research")
# What only watches must not show on the hot path either.
WATCHED = {"HAKMEM_STATS": "1", "HAKMEM_PROF": "1", "HAKMEM_TRACE_RING": "1024"}
SKIP = 77


class Entry(NamedTuple):
    symbol: str
    name: str
    bar: int | None  # instructions; None: written down, but no bar was set
    leaves: str | None = None  # the one function of the C library that it may call


ENTRIES = (
    Entry("malloc", "malloc(size_t)", 15),
    Entry("free", "free(void*)", 18),
    Entry("calloc", "calloc(size_t, size_t)", None, "memset"),
    Entry("free_sized", "free_sized(void*, size_t)", 18),
    Entry("_Znwm", "operator new(size_t)", 15),
    Entry("_Znam", "operator new[](size_t)", 15),
    Entry("_ZdlPv", "operator delete(void*)", 18),
    Entry("_ZdlPvm", "operator delete(void*, size_t)", 18),
    # Forms defined by way of another, which a program may have replaced: they must ask.
    Entry("_ZnwmRKSt9nothrow_t", "operator new(size_t, nothrow)", None),
    Entry("_ZnamRKSt9nothrow_t", "operator new[](size_t, nothrow)", None),
    Entry("_ZdaPv", "operator delete[](void*)", None),
    Entry("_ZdaPvm", "operator delete[](void*, size_t)", None),
)
# Together, below the shortest of the other allocators.
PAIR = ("malloc", "free")
PAIR_BAR = 31


class Failed(Exception):
    pass


class Skipped(Exception):
    pass


def output(command, what, **kwargs):
    done = subprocess.run(command, capture_output=True, text=True, check=False, **kwargs)
    if done.returncode == SKIP:
        raise Skipped(f"{what}: {done.stderr.strip()}")
    if done.returncode != 0:
        raise Failed(f"{what} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout


# ---- Instructions --------------------------------------------------------------------------------

PREFIXES = {"lock", "rep", "repz", "repnz", "bnd", "notrack", "data16", "cs", "ds"}
FORBIDDEN = re.compile(
    r"call|lcall|syscall|sysenter|int\d?$|rdtsc|rdpmc|cpuid|xchg|xbegin|[ml]fence|sfence|pause"
)
SUFFIX = "[bwlq]?$"
PUSH = re.compile(f"push{SUFFIX}")
POP = re.compile(f"pop{SUFFIX}")
NO_ACCESS = re.compile(r"lea|nop|prefetch|endbr64")
WRITES = re.compile(r"v?mov|set|v?p?extr|stos")  # the destination's old value is not looked at
READS = re.compile(rf"(cmp|test|bt|mul|imul|div|idiv|v?u?comis[sd]|v?ptest){SUFFIX}")
CHANGES = re.compile(
    rf"(add|sub|adc|sbb|and|or|xor|inc|dec|neg|not|shl|shr|sal|sar|rol|ror|bts|btr|btc){SUFFIX}"
)
# Of a destination in memory: loads, stores.
ACCESSES = ((POP, 0, 1), (WRITES, 0, 1), (READS, 1, 0), (CHANGES, 1, 1))


class Instruction(NamedTuple):
    text: str
    prefix: str
    mnemonic: str
    operands: list
    target: int | None  # of a direct jump or call
    slot: int | None  # address that a rip-relative operand names
    after: int  # address of the next instruction

    @property
    def is_call(self):
        return self.mnemonic.startswith(("call", "lcall"))

    @property
    def is_branch(self):
        return self.mnemonic.startswith("j") or self.mnemonic.startswith("loop")

    @property
    def is_return(self):
        return self.mnemonic.startswith("ret")

    @property
    def is_free(self):
        return self.mnemonic == "endbr64"

    def accesses(self):
        """Loads, stores. The return address, which call and return move, is neither."""
        memory = ["(" in operand or ":" in operand for operand in self.operands]
        load = int(POP.match(self.mnemonic) is not None)
        store = int(PUSH.match(self.mnemonic) is not None)
        if NO_ACCESS.match(self.mnemonic) or not any(memory):
            return load, store
        # The last operand is the destination, where there is one.
        if self.is_branch or self.is_call or PUSH.match(self.mnemonic) or not memory[-1]:
            return load + 1, store
        for kind, loads, stores in ACCESSES:
            if kind.match(self.mnemonic):
                return load + loads, store + stores
        raise Failed(f"is it a load or a store? Teach this test: {self.text}")


def parse(text, after):
    code, _, comment = text.partition("#")
    words = re.sub(r"<[^>]*>", "", code).split(None)
    prefix = []
    while words and words[0] in PREFIXES and len(words) > 1:
        prefix.append(words.pop(0))
    mnemonic = words[0] if words else "(nothing)"
    operands = re.findall(r"(?:[^,(]|\([^)]*\))+", " ".join(words[1:]))
    direct = operands and re.fullmatch(r"[0-9a-f]+", operands[0].strip())
    slot = re.match(r"\s*([0-9a-f]+)", comment)
    return Instruction(
        text=" ".join(text.split()),
        prefix=" ".join(prefix),
        mnemonic=mnemonic,
        operands=operands,
        target=int(operands[0], 16) if direct else None,
        slot=int(slot.group(1), 16) if slot else None,
        after=after,
    )


# ---- The library ---------------------------------------------------------------------------------


class Library:
    def __init__(self, path):
        self.path = path
        self.symbols = {}
        for line in output(["objdump", "-T", str(path)], "objdump").splitlines():
            words = line.split()
            if len(words) > 4 and "*UND*" not in words and re.fullmatch("[0-9a-f]+", words[0]):
                self.symbols[words[-1]] = int(words[0], 16)
        # The slots through which code reaches what may be elsewhere.
        self.slots = {}
        for line in output(["objdump", "-R", str(path)], "objdump").splitlines():
            words = line.split()
            if len(words) == 3 and words[1] in ("R_X86_64_GLOB_DAT", "R_X86_64_JUMP_SLOT"):
                self.slots[int(words[0], 16)] = words[2].partition("@")[0]
        lines = []
        listing = output(["objdump", "-d", "--no-show-raw-insn", "-w", str(path)], "objdump")
        for line in listing.splitlines():
            match = re.match(r"\s*([0-9a-f]+):\t(.+)", line)
            if match:
                lines.append((int(match.group(1), 16), match.group(2)))
        following = [address for address, _text in lines[1:]] + [-1]
        self.code = {
            address: parse(text, after)
            for (address, text), after in zip(lines, following, strict=True)
        }

    def at(self, address):
        if address not in self.code:
            raise Failed(f"no instruction begins at {address:#x}")
        return self.code[address]

    def goes_to(self, instruction):
        """Where a jump or call leads: an address in the library, or a name outside it."""
        if instruction.target is not None:
            return instruction.target
        name = self.slots.get(instruction.slot)
        if name is None:
            raise Failed(f"the path leads on unknown ways: {instruction.text}")
        return self.symbols.get(name, name)

    def outside(self, where, limit=4):
        """The name outside the library that a jump or call there ends up at, by stubs or not."""
        while isinstance(where, int) and limit > 0:
            instruction = self.at(where)
            if instruction.is_free:
                where = instruction.after
            elif instruction.mnemonic == "jmp":
                where = self.goes_to(instruction)
            else:
                return None
            limit -= 1
        return where if isinstance(where, str) else None

    def read(self, entry):
        """Addresses from the entry to the return, no conditional jump taken."""
        if entry.symbol not in self.symbols:
            raise Failed(f"{entry.name} isn't in the library")
        path = []
        where = self.symbols[entry.symbol]
        while True:
            instruction = self.at(where)
            path.append(where)
            if len(path) > 200:
                raise Failed(f"{entry.name}: no return within 200 instructions")
            if instruction.is_return:
                return path
            if instruction.mnemonic == "jmp":
                where = self.goes_to(instruction)
                if isinstance(where, str):
                    if where != entry.leaves:
                        raise Failed(f"{entry.name} leaves for {where}:\n{self.show(path)}")
                    return path
            else:
                # A call is looked at by judge(); the path goes on behind it.
                where = instruction.after

    def judge(self, entry, path):
        """Counts what is on the path, and refuses what may not be there."""
        instructions = loads = stores = branches = 0
        for where in path:
            instruction = self.at(where)
            if "lock" in instruction.prefix.split() or (
                FORBIDDEN.match(instruction.mnemonic)
                and not (
                    instruction.is_call
                    and entry.leaves
                    and self.outside(self.goes_to(instruction)) == entry.leaves
                )
            ):
                raise Failed(
                    f"{entry.name} has {instruction.text!r} on its hot path:\n{self.show(path)}"
                )
            if instruction.is_free:
                continue
            load, store = instruction.accesses()
            instructions += 1
            loads += load
            stores += store
            branches += instruction.is_branch
        return instructions, loads, stores, branches

    def show(self, path, mark=()):
        return "\n".join(
            f"  {'>' if where in mark else ' '} {where:6x}  {self.at(where).text}" for where in path
        )

    def agree(self, entry, read, run, how):
        if read == run:
            return
        raise Failed(
            f"{entry.name}: the path that was read is not the path that was run ({how}).\n"
            f"read ({len(read)}):\n{self.show(read, set(read) - set(run))}\n"
            f"run ({len(run)}):\n{self.show(run, set(run) - set(read))}"
        )


def trace(tracer, library, options, how):
    """What the processor passed, by symbol: the path of most of the calls."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("HAKMEM_", "LD_"))}
    lines = output([str(tracer), str(library.path)], f"trace ({how})", env=environment | options)
    runs = {}
    for line in lines.splitlines():
        symbol, *addresses = line.split()
        # Elsewhere is memset.
        path = tuple(a for a in (int(word, 16) for word in addresses) if a in library.code)
        runs.setdefault(symbol, []).append(path)
    paths = {}
    for symbol, seen in runs.items():
        path, times = Counter(seen).most_common(1)[0]
        # The heartbeat may fall into one of them.
        if times < len(seen) - 1:
            raise Failed(f"{symbol} ({how}) is not warm: {times} of {len(seen)} calls are alike")
        paths[symbol] = list(path)
    return paths


# ---- Compilers -----------------------------------------------------------------------------------


def major(compiler):
    return output([compiler, "-dumpversion"], compiler).strip().split(".")[0]


def given_library(compiler):
    """HAK_TEST_LIB, where this compiler built it, in a release."""
    path = os.environ.get("HAK_TEST_LIB")
    if not path or not os.path.exists(path):
        return None
    built = re.search(rb"\b(gcc|clang) (\d+)[\d.]*, release\b", Path(path).read_bytes())
    if built and [part.decode() for part in built.groups()] == [compiler, major(compiler)]:
        return Path(path)
    return None


def build(compiler, folder):
    """The library by another compiler, with the flags that CMake gives a release."""
    cache = Path(os.environ.get("HAK_TEST_BUILD") or "/nowhere") / "CMakeCache.txt"
    generator = (
        re.search(r"^CMAKE_GENERATOR:INTERNAL=(.+)$", cache.read_text(), re.M)
        if cache.exists()
        else None
    )
    environment = {k: v for k, v in os.environ.items() if not re.fullmatch("(C|CXX|LD)FLAGS", k)}
    output(
        [
            "cmake",
            "-S",
            str(SOURCE),
            "-B",
            str(folder),
            *(["-G", generator.group(1)] if generator else []),
            "-DCMAKE_C_COMPILER=" + compiler,
            "-DCMAKE_CXX_COMPILER=" + CXX[compiler],
            "-DCMAKE_BUILD_TYPE=Release",
            "-DHAKMEM_TESTS=OFF",
        ],
        f"cmake for {compiler}",
        env=environment,
    )
    output(
        ["cmake", "--build", str(folder), "--target", "hakmem", "-j1"],
        f"the build with {compiler}",
        env=environment,
    )
    return folder / "libhakmem.so"


# ---- Golden files --------------------------------------------------------------------------------

COLUMNS = ("instructions", "loads", "stores", "branches")


def table(compiler, version, counts):
    lines = [
        f"# The hot paths as {compiler} {version} makes them, entry to return.",
        "# A change of this file is a decision: docs/decisions/0001-hot-path.md.",
        "# Written by tests/golden/test_hot_path.py --update.",
        f"{'# entry point':36}" + "".join(f"{column:>14}" for column in COLUMNS),
    ]
    for entry in ENTRIES:
        lines.append(f"{entry.name:36}" + "".join(f"{n:14}" for n in counts[entry.symbol]))
    return "\n".join(lines) + "\n"


def compare(path, now, update):
    """A list of complaints about the golden file."""
    before = path.read_text() if path.exists() else ""
    if update:
        if before != now:
            path.write_text(now)
            print(f"  {path.name} is written")
        return []
    before, now = (
        [line for line in text.splitlines() if not line.startswith("#")] for text in (before, now)
    )
    diff = list(difflib.unified_diff(before, now, path.name, "as built now", lineterm="", n=0))
    if not diff:
        return []
    return [
        "\n".join(diff)
        + "\n  If this is meant, say why in docs/decisions/0001-hot-path.md and accept it:"
        + "\n    python3 tests/golden/test_hot_path.py --update"
    ]


def check(compiler, work, update):
    version = major(compiler)
    library = given_library(compiler)
    print(f"{compiler} {version}: {'the library at hand' if library else 'a build of its own'}")
    if library is None:
        kept = os.environ.get("HAK_TEST_BUILD")
        folder = Path(kept) / "tests" / "golden" if kept else work
        library = build(compiler, folder / compiler)
    library = Library(library)

    tracer = work / f"trace-{compiler}"
    output(
        [compiler, "-std=gnu11", "-O1", "-o", str(tracer), str(HERE / "trace.c"), "-ldl"],
        "the build of trace.c",
    )
    skipped = None
    runs = {}
    for preset in PRESETS:
        for how, options in (preset, {}), (preset + ", watched", WATCHED):
            try:
                runs[how] = trace(tracer, library, {"HAKMEM_MODE": preset} | options, how)
            except Skipped as why:
                skipped = why

    complaints = []
    counts = {}
    for entry in ENTRIES:
        try:
            path = library.read(entry)
            counts[entry.symbol] = library.judge(entry, path)
            for how, paths in runs.items():
                if entry.symbol not in paths:
                    raise Failed(f"{entry.name} was not run ({how})")
                library.agree(entry, path, paths[entry.symbol], how)
        except Failed as failure:
            complaints.append(str(failure))
            continue
        length = counts[entry.symbol][0]
        verdict = "no bar" if entry.bar is None else f"bar {entry.bar}"
        print(f"  {entry.name:36}{length:4}  {verdict}")
        if entry.bar is not None and length > entry.bar:
            complaints.append(
                f"{entry.name} takes {length} instructions, bar {entry.bar}:\n{library.show(path)}"
            )
    if all(symbol in counts for symbol in PAIR):
        together = sum(counts[symbol][0] for symbol in PAIR)
        print(f"  {'malloc and free together':36}{together:4}  bar {PAIR_BAR}")
        if together > PAIR_BAR:
            complaints.append(f"malloc and free take {together} instructions, bar {PAIR_BAR}")

    golden = HERE / f"{compiler}-{version}.txt"
    if len(counts) == len(ENTRIES):
        if golden.exists() or update:
            complaints += compare(golden, table(compiler, version, counts), update)
        else:
            print(f"  there is no {golden.name}: held to the bars only")
    for complaint in complaints:
        print(f"FAILED, {compiler} {version}: {complaint}")
    if skipped:
        print(f"  not run, only read: {skipped}")
    return bool(complaints), skipped is not None


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--update", action="store_true", help="accept what is found")
    arguments = parser.parse_args()
    if platform.machine() != "x86_64":
        print(f"skipped: the counts are x86-64's, this is {platform.machine()}")
        return SKIP
    for tool in "objdump", "cmake":
        if shutil.which(tool) is None:
            print(f"skipped: there is no {tool}")
            return SKIP
    failed = skipped = False
    with tempfile.TemporaryDirectory(prefix="hakmem-golden-") as work:
        for compiler in CXX:
            if shutil.which(compiler) is None or shutil.which(CXX[compiler]) is None:
                print(f"skipped: there is no {compiler} with {CXX[compiler]}")
                skipped = True
                continue
            try:
                bad, unrun = check(compiler, Path(work), arguments.update)
            except Failed as failure:
                print(f"FAILED, {compiler}: {failure}")
                bad, unrun = True, False
            failed |= bad
            skipped |= unrun
    return 1 if failed else SKIP if skipped else 0


if __name__ == "__main__":
    sys.exit(main())
