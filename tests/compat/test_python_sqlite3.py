#!/usr/bin/env python3
"""CPython's test_sqlite3, with every object from malloc and with its own small objects. On its own
because not every distribution ships it."""

from compat import run_test
from python_suite import find_python, judge_all

MODULE = ["test_sqlite3"]


def main(_work):
    judge_all(find_python(MODULE), [[(MODULE, [], True), (MODULE, [], False)]], timeout=50)


run_test(main)
