#!/usr/bin/env python3
"""The proof itself: programs that get memory past the library must be found out, each by the way
that can see it, and programs that don't must be cleared."""

import os
import subprocess

from compat import LIB, PROVE, Skipped, check, environment, need, proof, run, run_test, say

BODY = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
%s
int main(int argc, char **argv)
{
    void *block = malloc(100);
    %s
    free(block);
    puts("ready");
    fflush(stdout);
    char byte;
    return argc < 2 || argv == NULL || read(0, &byte, 1) < 0;
}
"""

OWN_FREE = "void free(void *block) { (void)block; }"
PRIVATE = "extern void *__libc_malloc(size_t); extern void __libc_free(void *);"
USE_PRIVATE = "void *other = __libc_malloc(40000); if (other) __libc_free(other);"
BY_NAME = """
    void *libc = dlopen("libc.so.6", RTLD_LAZY);
    void *(*get)(size_t) = (void *(*)(size_t))dlsym(libc, "malloc");
    void (*give)(void *) = (void (*)(void *))dlsym(libc, "free");
    give(get(100));
"""
DEEP = """
    void *plugin = dlopen(argv[1], RTLD_NOW | RTLD_DEEPBIND);
    if (plugin == NULL) return 3;
    ((void (*)(void))dlsym(plugin, "plugin"))();
"""
PLUGIN = "#include <stdlib.h>\nvoid plugin(void) { free(malloc(10)); }\n"

# name, declarations, statements; the symbol by which the log and the process give it away. A
# library that has the private names of glibc's malloc too serves them: then there is nothing to
# find. A pointer in a variable is no relocation, but glibc's heap gives away that it was used.
CASES = (
    ("clean", "", "", None, None),
    (
        "fixed_address",
        "static void *(*volatile get)(size_t) = malloc;",
        "free(get(5));",
        None,
        None,
    ),
    ("own_free", OWN_FREE, "", "free", "free"),
    ("private_name", PRIVATE, USE_PRIVATE, "__libc_malloc", "__libc_malloc"),
    ("deep_binding", "", DEEP, "malloc", "malloc"),
    ("by_name", "", BY_NAME, "malloc", "brk"),
)


def judge(what, verdict, expected):
    found = {symbol for symbol, _source, _target in verdict.elsewhere}
    if expected == "brk":
        check(verdict.heap or proof.uses_brk(LIB), f"{what}: not found out")
    elif expected is None:
        check(verdict.good, f"{what}: wrongly accused\n{verdict.report()}")
    else:
        check(expected in found and not verdict.good, f"{what}: not found out")


def wait_ready(process, name):
    check(process.stdout.readline() == b"ready\n", name + " is not ready")


def main(work):
    if not (PROVE and LIB):
        raise Skipped("no library to prove anything about")
    compiler = need(os.environ.get("CC", "cc"), "gcc")

    def build(name, text, options):
        source = os.path.join(work, name + ".c")
        with open(source, "w") as file:
            file.write(text)
        argv = [compiler, "-O1", "-fno-builtin"] + options + ["-o", name, source, "-ldl"]
        run(argv, preload=False).ok()
        return os.path.join(work, name)

    served = {name for name, section, _value in proof.dynamic_symbols(LIB) if section != 0}
    plugin = build("plugin.so", PLUGIN, ["-shared", "-fPIC"])
    for name, declarations, statements, in_log, in_process in CASES:
        if in_log in served and name == "private_name":
            in_log = in_process = None
        fixed = ["-no-pie", "-fno-pic"] if name == "fixed_address" else []
        argv = [build(name, BODY % (declarations, statements), fixed), plugin]
        quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL}
        verdict, status = proof.judge_command(argv, LIB, timeout=20, env=environment(), **quiet)
        check(status == 0, f"{name} ended with {status}")
        judge(name + ", log", verdict, in_log)
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        with subprocess.Popen(argv, env=environment(), **pipes) as process:
            wait_ready(process, name)
            judge(name + ", process", proof.judge_pid(process.pid, LIB), in_process)
            process.stdin.close()
            process.wait(20)
        if name == "clean":
            with subprocess.Popen(argv, env=environment(preload=False), **pipes) as process:
                wait_ready(process, name)
                verdict = proof.judge_pid(process.pid, LIB)
                judge("not preloaded, process", verdict, "malloc")
                check(not verdict.bound, "not preloaded, yet bound to the library")
                process.stdin.close()
                process.wait(20)
    say(f"proof: {len(CASES)} programs judged")


run_test(main)
