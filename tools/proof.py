#!/usr/bin/env python3
"""proof.py: proves which allocator serves a program.

    proof.py --lib build/libhakmem.so -- CMD ARGS...   runs CMD under the library, then judges
    proof.py --lib build/libhakmem.so --pid PID        judges a process that runs already

Both list every symbol of the allocation family that is bound to anything but the library. The list
must be empty, and at least one symbol must be bound to the library; then the exit status is 0,
else 1 (2: wrong usage; nothing could be judged).

CMD is judged by what the dynamic loader itself says it bound (LD_DEBUG=bindings), in CMD and in
every program that it starts with the environment passed on. That sees what is bound at start-up,
at a first call (lazy binding), by dlopen and by dlsym. The loader keeps the file it writes to open,
so a program that closes descriptors it doesn't know, as servers do, is better judged by --pid.

--pid reads the process's own relocated pointers (/proc/PID/mem) for every loaded object: what a
call jumps to at that moment, whatever way it got there. It needs the right to trace the process.

Another allocator's own interface (mallocx, je_malloc, ...) counts as bound elsewhere, since the
library can't free what came from there. Calls that only ask (nallocx, mallctl) are noted, no more.
"""

import argparse
import json
import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile

C_FAMILY = frozenset(
    """malloc calloc realloc free aligned_alloc posix_memalign memalign valloc pvalloc reallocarray
    malloc_usable_size malloc_trim mallinfo mallinfo2 mallopt malloc_stats malloc_info cfree
    free_sized free_aligned_sized __libc_malloc __libc_calloc __libc_realloc __libc_free
    __libc_memalign __libc_valloc __libc_pvalloc __libc_reallocarray __posix_memalign""".split()
)
# operator new, new[], delete, delete[] in all their forms; a class's own are named _ZN...nwm.
CXX_FAMILY = re.compile(r"^_Z(nw|na|dl|da)[A-Za-z]")
OTHERS_SERVE = re.compile(
    r"^(mallocx|rallocx|xallocx|sallocx|dallocx|sdallocx"
    r"|(je|tc|mi|sn|rp|scalable)_?(malloc|calloc|realloc|free|memalign|aligned_alloc"
    r"|posix_memalign|mallocx|rallocx|dallocx|sdallocx))$"
)
OTHERS_ASK = re.compile(r"^(nallocx|mallctl\w*|malloc_stats_print|je_mallctl\w*)$")


def is_family(symbol):
    """Whether memory is served, freed or measured through this symbol."""
    return (
        symbol in C_FAMILY
        or CXX_FAMILY.match(symbol) is not None
        or OTHERS_SERVE.match(symbol) is not None
    )


def is_note(symbol):
    return OTHERS_ASK.match(symbol) is not None


class Verdict:
    """What was bound where, over all processes judged together."""

    def __init__(self, lib):
        self.lib = os.path.realpath(lib)
        self.bound = {}  # symbol -> set of objects whose calls go to the library
        self.elsewhere = set()  # (symbol, from, to)
        self.notes = set()
        self.images = set()  # programs that were judged
        self.heap = {}  # program -> bytes of the brk heap, where nobody but glibc would use it

    def add(self, symbol, source, target, programs):
        """Enters one binding; `programs` are the names under which the program itself may go."""
        if os.path.realpath(target) == self.lib:
            if os.path.realpath(source) == self.lib:
                return  # its own references say nothing about the program
            self.bound.setdefault(symbol, set()).add(source)
        elif CXX_FAMILY.match(symbol) and target in programs:
            # C++ lets a program replace these, and one with libstdc++ linked in does; the malloc
            # that they call is judged like any other call.
            self.notes.add(f"{symbol} of {source} is the program's own, in {target}")
        elif is_family(symbol):
            self.elsewhere.add((symbol, source, target))
        else:
            self.notes.add(f"{source} asks {target} for {symbol}")

    @property
    def good(self):
        return bool(self.bound) and not self.elsewhere and not self.heap

    def why(self):
        """Lines that say what speaks against the library."""
        lines = []
        if not self.bound:
            lines.append(f"no allocation symbol is bound to {self.lib}")
        for symbol, source, target in sorted(self.elsewhere):
            lines.append(f"{symbol} of {source} is bound to {target}")
        for program, size in sorted(self.heap.items()):
            lines.append(f"{program} has a heap of {size >> 10} KiB made by brk")
        return lines

    def report(self):
        lines = [f"library: {self.lib}"]
        lines.append("programs: %s" % (" ".join(sorted(self.images)) or "none"))
        for symbol in sorted(self.bound):
            names = sorted(os.path.basename(name) for name in self.bound[symbol])
            lines.append(f"  served: {symbol:24} for {' '.join(names)}")
        lines += ["  note: " + note for note in sorted(self.notes)]
        lines += ["  ELSEWHERE: " + line for line in self.why()]
        lines.append("verdict: %s" % ("served whole" if self.good else "NOT served whole"))
        return "\n".join(lines)

    def as_dict(self):
        return {
            "library": self.lib,
            "programs": sorted(self.images),
            "bound": {symbol: sorted(names) for symbol, names in sorted(self.bound.items())},
            "elsewhere": sorted(self.elsewhere),
            "heap": self.heap,
            "notes": sorted(self.notes),
            "good": self.good,
        }


# ---- ELF, as far as needed -----------------------------------------------------------------------

PT_LOAD, PT_DYNAMIC = 1, 2
DT_PLTRELSZ, DT_STRTAB, DT_SYMTAB, DT_RELA, DT_RELASZ = 2, 5, 6, 7, 8
DT_STRSZ, DT_JMPREL = 10, 23
ET_EXEC = 2
SHT_DYNSYM = 11
# Relocations that hold the address of a symbol, by machine: x86-64 and AArch64.
ADDRESS_RELOCS = {62: {1, 6, 7}, 183: {257, 1025, 1026}}
MAX_TABLE_BYTES = 256 << 20  # a table longer than this is a misread, not a table


class Image:
    """A loaded object in a process's memory: its dynamic symbols and relocations."""

    def __init__(self, memory, base):
        self.memory, self.base = memory, base
        header = memory(base, 64)
        if header[:4] != b"\x7fELF" or header[4] != 2 or header[5] != 1:
            raise ValueError("not a 64-bit little-endian ELF object")
        self.type, self.machine = struct.unpack_from("<HH", header, 16)
        phoff = struct.unpack_from("<Q", header, 32)[0]
        phentsize, phnum = struct.unpack_from("<HH", header, 54)
        table = memory(base + phoff, phentsize * phnum)
        lowest, dynamic = None, None
        for i in range(phnum):
            kind, _flags, _off, vaddr, _paddr, _filesz, memsz, _align = struct.unpack_from(
                "<IIQQQQQQ", table, i * phentsize
            )
            if kind == PT_LOAD and lowest is None:
                lowest = vaddr
            elif kind == PT_DYNAMIC:
                dynamic = (vaddr, memsz)
        self.bias = base - (lowest or 0) // 4096 * 4096
        self.tags = {}
        if dynamic is None:
            return
        raw = memory(self.bias + dynamic[0], dynamic[1])
        for offset in range(0, len(raw) - 15, 16):
            tag, value = struct.unpack_from("<qQ", raw, offset)
            if tag == 0:
                break
            self.tags[tag] = value

    def _table(self, tag, size_tag):
        """The bytes of a table. The loader has relocated its address in most objects, not all."""
        address, size = self.tags.get(tag, 0), self.tags.get(size_tag, 0)
        if not address or not size or size > MAX_TABLE_BYTES:
            return b""
        if address < self.bias:
            address += self.bias
        return self.memory(address, size)

    def references(self):
        """(symbol, address of the pointer, canonical, own) of each relocation to an address.

        canonical: where the program's PLT entry stands for an undefined symbol, or 0.
        own: where the object's own definition is, or 0.
        """
        wanted = ADDRESS_RELOCS.get(self.machine)
        symtab = self.tags.get(DT_SYMTAB, 0)
        if wanted is None or not symtab:
            return
        symtab += self.bias if symtab < self.bias else 0
        strings = self._table(DT_STRTAB, DT_STRSZ)
        symbols = {}
        relas = self._table(DT_RELA, DT_RELASZ) + self._table(DT_JMPREL, DT_PLTRELSZ)
        for where, info, _addend in struct.iter_unpack("<QQq", relas[: len(relas) // 24 * 24]):
            index = info >> 32
            if index == 0 or (info & 0xFFFFFFFF) not in wanted:
                continue
            if index not in symbols:
                name, _info, _other, section, value, _size = struct.unpack(
                    "<IBBHQQ", self.memory(symtab + 24 * index, 24)
                )
                end = strings.find(b"\0", name)
                text = strings[name:end].decode("ascii", "replace")
                place = self.bias + value if value else 0
                symbols[index] = (text, 0 if section else place, place if section else 0)
            text, canonical, own = symbols[index]
            yield text, self.bias + where, canonical, own


def dynamic_symbols(path):
    """(name, section index, value) of the dynamic symbols; nothing if it is no ELF object."""
    try:
        with open(path, "rb") as file:
            data = file.read()
        if data[:6] != b"\x7fELF\x02\x01":
            return
        shoff = struct.unpack_from("<Q", data, 40)[0]
        shentsize, shnum = struct.unpack_from("<HH", data, 58)
        sections = [
            struct.unpack_from("<IIQQQQIIQQ", data, shoff + i * shentsize) for i in range(shnum)
        ]
        for section in sections:
            if section[1] != SHT_DYNSYM:
                continue
            offset, size, strings = section[4], section[5], sections[section[6]][4]
            for at in range(offset, offset + size, 24):
                name, _info, _other, index, value, _size = struct.unpack_from("<IBBHQQ", data, at)
                end = data.find(b"\0", strings + name)
                yield data[strings + name : end].decode("ascii", "replace"), index, value
    except (OSError, struct.error, IndexError):
        return


_brk_users = {}


def uses_brk(lib):
    """Whether the library itself asks for brk memory, so that a brk heap says nothing."""
    if lib not in _brk_users:
        names = {name for name, _index, _value in dynamic_symbols(lib)}
        _brk_users[lib] = bool(names & {"brk", "sbrk", "__sbrk", "__brk"})
    return _brk_users[lib]


def canonical_plt(path):
    """Family symbols whose address is, by the ABI, an entry of this program's own PLT.

    A program linked at a fixed address that takes the address of `free` gives every object that
    entry as the function's address; the entry itself jumps through the program's own relocation.
    """
    try:
        with open(path, "rb") as file:
            header = file.read(18)
    except OSError:
        return frozenset()
    if len(header) < 18 or struct.unpack_from("<H", header, 16)[0] != ET_EXEC:
        return frozenset()
    return frozenset(
        name
        for name, index, value in dynamic_symbols(path)
        if index == 0 and value != 0 and is_family(name)
    )


# ---- A process that runs -------------------------------------------------------------------------


def mappings(pid):
    """(start, end, permissions, offset, path) of each mapping of the process."""
    found = []
    with open(f"/proc/{pid}/maps") as file:
        for line in file:
            fields = line.rstrip("\n").split(None, 5)
            start, end = (int(part, 16) for part in fields[0].split("-"))
            path = fields[5] if len(fields) > 5 else ""
            found.append((start, end, fields[1], int(fields[2], 16), path))
    return found


def judge_pid(pid, lib, verdict=None):
    """Judges the process as it stands. Raises OSError when it is gone or may not be read."""
    verdict = verdict or Verdict(lib)
    maps = mappings(pid)
    handle = os.open(f"/proc/{pid}/mem", os.O_RDONLY)
    try:

        def memory(address, size):
            data = os.pread(handle, size, address)
            if len(data) != size:
                raise OSError("short read of process memory")
            return data

        owners = sorted((start, end, path) for start, end, _p, _o, path in maps if path)

        def owner(address):
            for start, end, path in owners:
                if start <= address < end:
                    return path
            return f"[anonymous {address:#x}]"

        program = os.readlink(f"/proc/{pid}/exe")
        verdict.images.add(program)
        heap = sum(end - start for start, end, _p, _o, path in maps if path == "[heap]")
        if heap and not uses_brk(verdict.lib):
            verdict.heap[program] = heap
        plt = {}  # canonical PLT entries of the program: address -> symbol
        images = []
        for start, _end, permissions, offset, path in maps:
            if offset != 0 or not path.startswith("/") or "r" not in permissions:
                continue
            try:
                image = Image(memory, start)
                references = list(image.references())
            except (ValueError, OSError, struct.error):
                continue  # a mapped file that is no object, or one that is going away
            images.append((path, references))
            for symbol, _where, canonical, _own in references:
                if canonical and image.type == ET_EXEC:
                    plt[canonical] = symbol
        for path, references in images:
            for symbol, where, _canonical, own in references:
                if not (is_family(symbol) or is_note(symbol)):
                    continue
                target = struct.unpack("<Q", memory(where, 8))[0]
                to = owner(target)
                if target == 0 or plt.get(target) == symbol:
                    continue  # weak and nowhere defined; or judged at the PLT entry's own pointer
                if to == path and target != own:
                    continue  # lazy and not called so far: points back into its own PLT
                verdict.add(symbol, path, to, {program})
    finally:
        os.close(handle)
    return verdict


# ---- A program that is run -----------------------------------------------------------------------

BINDING = re.compile(
    r"^\s*\d+:\s+binding file (.+?) \[\d+\] to (.+?) \[\d+\]: \w+ symbol `([^']+)'"
)
CONTROL = re.compile(r"^\s*\d+:\s+transferring control: (.+)$")


def program_path(name):
    """The file of a program that the loader names as it was called."""
    return name if "/" in name else (shutil.which(name) or name)


def judge_log(folder, lib, verdict=None):
    """Judges what the loader wrote into the folder, one file per process."""
    verdict = verdict or Verdict(lib)
    plts = {}
    for name in sorted(os.listdir(folder)):
        bindings, programs = set(), set()
        with open(os.path.join(folder, name), errors="replace") as file:
            for line in file:
                match = BINDING.match(line)
                if match:
                    if is_family(match.group(3)) or is_note(match.group(3)):
                        bindings.add(match.groups())
                    continue
                match = CONTROL.match(line)
                if match:
                    programs.add(match.group(1))
        verdict.images |= programs
        for source, target, symbol in bindings:
            if target in programs:
                path = program_path(target)
                if path not in plts:
                    plts[path] = canonical_plt(path)
                if symbol in plts[path]:
                    continue
            verdict.add(symbol, source, target, programs)
    return verdict


def environment(lib, folder, base=None):
    """The environment that makes the loader write what it binds into the folder."""
    env = dict(os.environ if base is None else base)
    env.pop("HAK_TEST_LIB", None)  # names the library to us and is no option of its own
    env["LD_PRELOAD"] = os.path.realpath(lib)
    env["LD_DEBUG"] = "bindings,files"
    env["LD_DEBUG_OUTPUT"] = os.path.join(folder, "bindings")
    return env


def judge_command(command, lib, timeout=None, **popen):
    """Runs the command under the library. Returns (verdict, exit status)."""
    with tempfile.TemporaryDirectory(prefix="proof.") as folder:
        os.chmod(folder, 0o777)  # a program that changes its user writes here too
        env = environment(lib, folder, popen.pop("env", None))
        status = subprocess.run(command, env=env, timeout=timeout, **popen).returncode
        return judge_log(folder, lib), status


def main():
    parser = argparse.ArgumentParser(
        description="Prove which allocator serves a program.",
        usage="proof.py --lib LIB [--json] [--quiet] (--pid PID | -- CMD ARGS...)",
    )
    parser.add_argument("--lib", default=os.environ.get("HAK_TEST_LIB"))
    parser.add_argument("--pid", type=int)
    parser.add_argument("--json", action="store_true", help="the verdict as JSON")
    parser.add_argument("--quiet", action="store_true", help="print only what speaks against it")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    args = parser.parse_args()
    command = args.command[1:] if args.command[:1] == ["--"] else args.command
    if not args.lib or not os.path.isfile(args.lib):
        print("proof.py: no library: give --lib or set HAK_TEST_LIB", file=sys.stderr)
        return 2
    if bool(command) == bool(args.pid):
        parser.print_usage(sys.stderr)
        return 2
    status = 0
    try:
        if args.pid:
            verdict = judge_pid(args.pid, args.lib)
        else:
            verdict, status = judge_command(command, args.lib)
    except OSError as error:
        print(f"proof.py: {error}", file=sys.stderr)
        return 2
    if args.json:
        print(json.dumps(verdict.as_dict(), indent=1))
    elif args.quiet:
        for line in verdict.why():
            print("proof.py: " + line, file=sys.stderr)
    else:
        print(verdict.report(), file=sys.stderr)
    if status != 0:
        print(f"proof.py: the command ended with status {status}", file=sys.stderr)
        return 1
    return 0 if verdict.good else 1


if __name__ == "__main__":
    sys.exit(main())
