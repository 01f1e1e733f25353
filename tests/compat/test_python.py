#!/usr/bin/env python3
"""CPython's regression tests of lists, dicts, bytes, regular expressions, ctypes, threads and
subprocesses, with every object from malloc and, the quick ones, with its own small objects too."""

from compat import environment, prove_command, run_test
from python_suite import find_python, judge_all

QUICK = ["test_list", "test_dict", "test_bytes", "test_re", "test_ctypes"]
SLOW = ["test_threading", "test_subprocess"]

EXERCISE = """
import bz2, collections, ctypes, decimal, hashlib, json, lzma, re, sqlite3, ssl, threading, zlib
data = {str(i): list(range(i % 50)) for i in range(20000)}
assert json.loads(json.dumps(data)) == data
assert zlib.decompress(zlib.compress(bytes(1 << 20))) == bytes(1 << 20)
assert lzma.decompress(lzma.compress(b'x' * 100000)) == b'x' * 100000
base = sqlite3.connect(':memory:')
base.execute('create table t(a, b)')
base.executemany('insert into t values (?, ?)', ((i, str(i) * 20) for i in range(5000)))
assert base.execute('select sum(a) from t').fetchone() == (12497500,)
threads = [threading.Thread(target=lambda: [bytearray(i) for i in range(5000)]) for _ in range(4)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
"""


def main(_work):
    python = find_python(QUICK + SLOW)
    prove_command([python, "-c", EXERCISE], env=environment(PYTHONMALLOC="malloc"))
    judge_all(
        python,
        [
            [(QUICK, [], True), (QUICK, [], False)],
            [(["test_threading"], [], True)],
            [(["test_subprocess"], [], True)],
        ],
        timeout=110,
    )


run_test(main)
