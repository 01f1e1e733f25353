"""python_suite.py: runs CPython's own regression tests under the library.

A test that fails under the library is run again alone, then once without the library: what fails
there too is no fault of the library's and is reported as such.
"""

import concurrent.futures
import glob
import os
import re
import subprocess
import sys
import tempfile

from compat import Failed, Skipped, environment, run, say

FAILURE = re.compile(r"^(?:FAIL|ERROR): (\w+) \(", re.M)


def find_python(modules):
    """An interpreter that has these test modules, as the path of its real program."""
    candidates = [os.environ.get("HAK_TEST_PYTHON"), "/usr/bin/python3", sys.executable, "python3"]
    pyenv = os.environ.get("PYENV_ROOT", os.path.expanduser("~/.pyenv"))
    candidates += sorted(glob.glob(os.path.join(pyenv, "versions", "3.*", "bin", "python3")))
    ask = (
        "import importlib.util as u, sys, ctypes, sqlite3\n"
        f"missing = [m for m in {modules!r} if u.find_spec('test.' + m) is None]\n"
        "sys.exit(bool(missing) or print(sys.executable))"
    )
    for candidate in candidates:
        if not candidate:
            continue
        try:
            done = subprocess.run(
                [candidate, "-c", ask],
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                timeout=20,
            )
        except (OSError, subprocess.TimeoutExpired):
            continue
        if done.returncode == 0:
            return os.path.realpath(done.stdout.decode().strip())
    raise Skipped("no python3 has {} (package libpython3-testsuite)".format(" ".join(modules)))


def regrtest(python, modules, options, malloc, preload, timeout):
    """Runs test modules in a process of their own. `malloc`: objects go through malloc too."""
    extra = {"PYTHONMALLOC": "malloc"} if malloc else {}
    folder = tempfile.mkdtemp(prefix="tmp.", dir=os.getcwd())
    argv = [python, "-m", "test", "-v", "--tempdir", folder] + options + modules
    return run(argv, timeout, env=environment(preload, **extra), prove=preload, cwd=folder)


def text_of(result):
    return (result.out + result.err).decode("utf-8", "replace")


def judge(python, modules, options, malloc, timeout):
    """Runs the modules under the library; raises Failed for what fails because of it."""
    name = " ".join(modules + options) + (" (PYTHONMALLOC=malloc)" if malloc else "")
    result = regrtest(python, modules, options, malloc, True, timeout)
    if result.status == 0:
        total = sum(map(int, re.findall(r"^Ran (\d+) tests? in", text_of(result), re.M)))
        if total == 0:
            raise Failed(f"{name} ran no test\n{text_of(result)[-1000:]}")
        say(f"python: {name}: {total} tests in {result.seconds:.1f} s")
        return
    failed = sorted(set(FAILURE.findall(text_of(result))))
    methods = [method for method in failed if method.startswith("test")]
    if not methods or len(methods) != len(failed) or result.status < 0:
        methods = []  # a crash, or a module that did not get as far as its tests: all of it again
    only = [word for method in methods for word in ("-m", method)] or options
    again = regrtest(python, modules, only, malloc, True, timeout)
    if again.status == 0:
        say("python: {}: {} failed once, not again".format(name, " ".join(failed) or "the process"))
        return
    control = regrtest(python, modules, only, malloc, False, timeout)
    if control.status != 0 and again.status > 0:
        left = set(FAILURE.findall(text_of(again))) - set(FAILURE.findall(text_of(control)))
        if not left:
            say("python: {}: {} fails without the library too".format(name, " ".join(failed)))
            return
        failed = sorted(left)
    raise Failed(
        "{}: {} (status {})\n{}".format(
            name, " ".join(failed) or "the process", again.status, text_of(again)[-4000:]
        )
    )


def judge_all(python, jobs, timeout):
    """Runs groups of jobs side by side; the jobs (modules, options, malloc) of a group in turn."""

    def group(members):
        for modules, options, malloc in members:
            judge(python, modules, options, malloc, timeout)

    with concurrent.futures.ThreadPoolExecutor(len(jobs)) as pool:
        waiting = [pool.submit(group, members) for members in jobs]
        for job in waiting:
            job.result()
