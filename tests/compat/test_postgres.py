#!/usr/bin/env python3
"""PostgreSQL under pgbench: a cluster made, loaded and queried under the library, every process of
it. The balances that pgbench keeps in four tables must agree, before and after a restart."""

import glob
import os
import shutil
import signal

from compat import (
    LIB,
    check,
    environment,
    need,
    prove_tree,
    run,
    run_test,
    same,
    say,
    server,
    unprivileged,
    wait_for,
)

PACKAGE = "postgresql"


def main(work):
    folders = sorted(glob.glob("/usr/lib/postgresql/*/bin"), reverse=True)
    folders += ["/usr/local/pgsql/bin", "/usr/pgsql/bin"]
    postgres = os.path.realpath(need("postgres", PACKAGE, folders))
    tools = [os.path.dirname(postgres)]
    initdb, psql, pgbench = (
        shutil.which(name, path=tools[0]) or need(name, PACKAGE)
        for name in ("initdb", "psql", "pgbench")
    )
    data = os.path.join(work, "data")
    os.mkdir(data, 0o700)
    popen, lib = {}, LIB
    if unprivileged():
        uid, gid = unprivileged()

        def become():
            os.setgroups([])
            os.setgid(gid)
            os.setuid(uid)

        popen = {"preexec_fn": become}
        os.chown(work, uid, gid)
        os.chown(data, uid, gid)
        if LIB:
            # That user may not be able to reach the library where it was built.
            lib = os.path.join(work, os.path.basename(LIB))
            shutil.copy(LIB, lib)
            os.chmod(lib, 0o755)
    env = environment(lib=lib, HOME=work, PGHOST=work, PGUSER="owner", PGDATABASE="postgres")
    env.pop("PGPORT", None)

    run(
        [initdb, "-D", data, "-U", "owner", "-A", "trust", "--no-sync", "-E", "UTF8"],
        env=env,
        prove=False,
        **popen,
    ).ok()
    argv = [postgres, "-D", data, "-k", work, "-h", "", "-F"]
    argv += ["-c", "shared_buffers=64MB", "-c", "max_parallel_workers=4", "-c", "jit=off"]
    argv += ["-c", "max_wal_size=512MB"]
    log = os.path.join(work, "postgres.log")

    def ask(text):
        result = run(
            [psql, "-X", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-c", text], env=env, **popen
        )
        return result.ok().out.decode().strip()

    def balances():
        tables = ("accounts", "branches", "tellers")
        sums = [ask(f"SELECT sum({t[0]}balance) FROM pgbench_{t}") for t in tables]
        sums.append(ask("SELECT coalesce(sum(delta), 0) FROM pgbench_history"))
        check(len(set(sums)) == 1, f"balances differ: {sums}")
        return sums[0], ask("SELECT count(*) FROM pgbench_history")

    def up(process):
        def answers():
            return run([psql, "-X", "-c", "SELECT 1"], env=env, **popen).status == 0

        wait_for(answers, "answer from postgres", process=process)

    with server(argv, log, stop=signal.SIGINT, env=env, **popen) as process:
        up(process)
        prove_tree(process.pid, 4, lib)
        run([pgbench, "-i", "-q", "-s", "4"], env=env, **popen).ok()
        load = [pgbench, "-n", "-c", "6", "-j", "2", "-T", "6", "-M", "prepared"]
        with open(os.path.join(work, "script.sql"), "w") as file:
            file.write(
                "SELECT bid, count(*), string_agg(filler, '') FROM pgbench_accounts"
                " WHERE aid % 97 = 5 GROUP BY bid ORDER BY md5(bid::text);\n"
                "SELECT a.aid FROM pgbench_accounts a JOIN pgbench_tellers t USING (bid)"
                " WHERE a.abalance <> 0 ORDER BY a.abalance, a.aid LIMIT 50;\n"
            )
        load += ["-b", "tpcb-like@20", "-f", os.path.join(work, "script.sql") + "@1"]
        result = run_with_proof(load, env, popen, process, lib)
        done = ask("SELECT count(*) FROM pgbench_history")
        say(f"postgres: {done} transactions; {result.splitlines()[-1].decode()}")
        check(int(done) > 100, f"only {done} transactions")
        before = balances()
        ask("CREATE INDEX ON pgbench_accounts (md5(filler || aid))")
        ask("VACUUM ANALYZE")
        plan = ask(
            "SET max_parallel_workers_per_gather=2; SET parallel_setup_cost=0;"
            "SET parallel_tuple_cost=0; SET min_parallel_table_scan_size=0;"
            "SELECT count(*), count(DISTINCT md5(filler || aid)) FROM pgbench_accounts"
        )
        same("rows", plan.splitlines()[-1], "400000|400000")
    with server(argv, log, stop=signal.SIGINT, env=env, **popen) as process:
        up(process)
        same("balances after a restart", balances(), before)


def run_with_proof(load, env, popen, process, lib):
    """pgbench in the background of a proof of all backends that serve it."""
    import concurrent.futures

    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(lambda: run(load, env=env, **popen).ok().out)
        prove_tree(process.pid, 9, lib)
        return waiting.result()


run_test(main)
