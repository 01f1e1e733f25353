#!/usr/bin/env python3
"""The sqlite3 shell with a database of 100 MB: built, indexed, updated, checked and queried under
the library; the answers must be those that arithmetic and a shell without the library give."""

import os

from compat import check, need, prove_command, run, run_test, same

ROWS = 180000

BUILD = f"""
PRAGMA journal_mode=WAL;
PRAGMA synchronous=OFF;
PRAGMA cache_size=-65536;
CREATE TABLE t(id INTEGER PRIMARY KEY, k INTEGER, name TEXT, body TEXT, weight REAL);
BEGIN;
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {ROWS})
INSERT INTO t SELECT i, (i * 2654435761) % 1000003, printf('name-%08d', (i * 7919) % 100000),
    substr(hex(i * 1000003), 1, 8) || printf('%.*c', 300 + i % 400, char(97 + i % 26)), i / 8.0
FROM n;
COMMIT;
CREATE INDEX t_k ON t(k);
CREATE INDEX t_name ON t(name, weight);
UPDATE t SET body = body || '-updated' WHERE id % 50 = 0;
DELETE FROM t WHERE id % 1000 = 7;
ANALYZE;
"""

ASK = """
PRAGMA cache_size=-65536;
PRAGMA integrity_check;
SELECT count(*), sum(id) FROM t;
SELECT count(*) FROM t WHERE body LIKE '%-updated';
SELECT name, count(*), total(weight) FROM t GROUP BY name ORDER BY 3 DESC, 1 LIMIT 50;
SELECT a.id, b.id FROM t a JOIN t b ON a.k = b.k AND a.id < b.id ORDER BY 1, 2 LIMIT 50;
SELECT length(group_concat(name)), length(group_concat(hex(k))) FROM t;
SELECT id, substr(body, 1, 12), length(body) FROM t ORDER BY body, id LIMIT 50;
SELECT json_array_length(json_group_array(json_object('id', id, 'name', name))) FROM t
    WHERE id < 20000;
"""


def main(work):
    sqlite = need("sqlite3", "sqlite3")
    base = os.path.join(work, "base.db")
    run([sqlite, "-batch", base], data=BUILD.encode(), prove=True).ok()
    check(os.path.getsize(base) > 100e6, f"the database has {os.path.getsize(base)} bytes")
    served = run([sqlite, "-batch", "-bail", base], data=ASK.encode()).ok().out
    plain = run([sqlite, "-batch", "-bail", base], data=ASK.encode(), preload=False).ok().out
    same("answers", served, plain)
    gone = range(7, ROWS + 1, 1000)
    lines = served.decode().splitlines()
    same("integrity_check", lines[0], "ok")
    total = ROWS * (ROWS + 1) // 2 - sum(gone)
    same("rows and sum", lines[1], f"{ROWS - len(gone)}|{total}")
    same("updated rows", lines[2], str(ROWS // 50))
    prove_command([sqlite, base, "SELECT name FROM t WHERE k BETWEEN 5 AND 500 ORDER BY body"])


run_test(main)
