"""The sqlite3 shell with a database in memory: built, indexed, changed and queried."""

from __future__ import annotations

import argparse
import contextlib
import os
import select
import subprocess
import time
from pathlib import Path

from hakmem.model import Workload
from hakmem.programs.common import (
    Failed,
    Need,
    Watch,
    digest,
    environment,
    missing,
    preload,
    started,
    version_of,
    whole,
    workload,
)

ABOUT = "sqlite3 with a database in memory"
SHELL = Need("sqlite3", "sqlite3")
UPDATED, DELETED = 50, 1000

# {start} moves all values, so that a seed gives other contents.
SQL = """
CREATE TABLE t(id INTEGER PRIMARY KEY, k INTEGER, name TEXT, body TEXT, weight REAL);
BEGIN;
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {rows})
INSERT INTO t SELECT i, ((i + {start}) * 2654435761) % 1000003,
    printf('name-%08d', ((i + {start}) * 7919) % 100000),
    printf('%.*c', 30 + (i * 31 + {start}) % 200, char(97 + i % 26)), i / 8.0 FROM n;
COMMIT;
CREATE INDEX t_k ON t(k);
CREATE INDEX t_name ON t(name, weight);
UPDATE t SET body = body || '-updated' WHERE id % {updated} = 0;
DELETE FROM t WHERE id % {deleted} = 7;
SELECT count(*), sum(id) FROM t;
SELECT count(*) FROM t WHERE body LIKE '%-updated';
SELECT name, count(*), total(weight) FROM t GROUP BY name ORDER BY 3 DESC, 1 LIMIT 50;
SELECT a.id, b.id FROM t a JOIN t b ON a.k = b.k AND a.id < b.id ORDER BY 1, 2 LIMIT 50;
SELECT length(group_concat(name)), length(group_concat(hex(k))) FROM t;
SELECT id, substr(body, 1, 12), length(body) FROM t ORDER BY body, id LIMIT 50;
SELECT json_array_length(json_group_array(json_object('id', id, 'name', name))) FROM t
    WHERE id < 20000;
"""


def available() -> str:
    return missing(SHELL)


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rows", type=int, default=200_000, help="of the table, 1000 at least")


def workloads(full: bool) -> list[Workload]:
    rows = 1_000_000 if full else 200_000
    about = f"sqlite3 builds a table of {rows} rows in memory with two indexes, and queries it"
    return [workload("sqlite", "sqlite", f"rows={rows}", [f"--rows={rows}"], about)]


def expected(rows: int) -> list[bytes]:
    """The first two answers, by arithmetic."""
    gone = range(7, rows + 1, DELETED)
    total = rows * (rows + 1) // 2 - sum(gone)
    return [b"%d|%d" % (rows - len(gone), total), b"%d" % (rows // UPDATED)]


def read_answers(handle: int, process: subprocess.Popen, seconds: float) -> bytes:
    """All that comes through the pipe, until the shell closes it."""
    parts = []
    deadline = time.monotonic() + seconds
    while True:
        if select.select([handle], [], [], 0.05)[0]:
            part = os.read(handle, 1 << 16)
            if part:
                parts.append(part)
            elif parts:
                return b"".join(parts)
            else:
                time.sleep(0.001)  # nobody has opened the other end so far
        if process.poll() is not None:
            raise Failed(f"sqlite3 ended with status {process.returncode}")
        if time.monotonic() > deadline:
            raise Failed(f"sqlite3 was not done after {seconds:.0f} s")


def drive(options: argparse.Namespace, work: Path) -> dict:
    pipe = work / "answers"
    os.mkfifo(pipe)
    handle = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    sql = SQL.format(rows=options.rows, start=options.seed, updated=UPDATED, deleted=DELETED)
    # The shell closes the pipe when all is answered, and waits for more: its memory can be seen.
    text = f".output {pipe}\n{sql}\n.output stdout\n"
    argv = [SHELL.found(), "-batch", "-bail", "-init", "/dev/null", ":memory:"]
    env = environment(preload())
    try:
        with started(argv, env, work / "log", stdin=subprocess.PIPE) as process:
            with Watch(process.pid) as watch:
                began = time.monotonic()
                with contextlib.suppress(BrokenPipeError):  # said below, with its status
                    process.stdin.write(text.encode())
                    process.stdin.flush()
                answers = read_answers(handle, process, 90)
                seconds = time.monotonic() - began
    finally:
        os.close(handle)
    if answers.splitlines()[:2] != expected(options.rows):
        raise Failed(f"wrong answers: {answers[:100]!r}")
    return {
        **whole(options.rows, seconds),
        **watch.figures(),
        "hash": digest(answers),
        "program_version": version_of([SHELL.found(), "--version"]),
        "program_pids": [process.pid],
    }
