#!/usr/bin/env python3
"""CPython's test_multiprocessing_fork with every object from malloc: processes that fork while they
have threads, and shared memory between them. Its parts mostly sleep, so they run side by side."""

from compat import run_test
from python_suite import find_python, judge_all

MODULE = ["test_multiprocessing_fork"]
PARTS = ["WithProcessesTest*", "WithThreadsTest*", "WithManagerTest*"]


def main(_work):
    python = find_python(MODULE)
    rest = [word for part in PARTS for word in ("-i", part)]
    jobs = [[(MODULE, ["-m", part], True)] for part in PARTS]
    judge_all(python, jobs + [[(MODULE, rest, True)]], timeout=110)


run_test(main)
