"""PostgreSQL under pgbench, over a socket in a folder of its own.

The cluster is made once, without any allocator, and kept; each run starts from a copy of it.
"""

from __future__ import annotations

import argparse
import glob
import os
import shutil
import signal
import tempfile
from pathlib import Path

from hakmem.model import Workload
from hakmem.programs.common import (
    Failed,
    ForOtherUser,
    Need,
    Watch,
    cache_folder,
    digest,
    environment,
    missing,
    other_user,
    percentiles,
    started,
    tool,
    tree,
    version_of,
    wait_for,
    whole,
    workload,
)

ABOUT = "PostgreSQL under pgbench"
# The newest first; Debian's pgbench in the path is a wrapper that looks for a cluster of its own.
FOLDERS = tuple(sorted(glob.glob("/usr/lib/postgresql/*/bin"), reverse=True))
NAMES = {"postgres": "postgresql", "initdb": "postgresql", "psql": "postgresql-client"}
NAMES["pgbench"] = "postgresql-contrib"
SCALE = 2
CLIENTS = 4
SCRIPTS = {"tpcb": "tpcb-like", "select": "select-only"}
# Options of the server: nothing is kept safe, and a run has no more memory than it needs.
SERVER = ("-h", "", "-F", "-c", "shared_buffers=64MB", "-c", "jit=off", "-c", "max_wal_size=512MB")


def need(name: str) -> Need:
    """Of one folder with the server, so that all are of one version."""
    server = Need("postgres", NAMES["postgres"], FOLDERS).path()
    if server is None:
        return Need(name, NAMES[name])
    beside = Path(server).resolve().parent / name
    return Need(str(beside) if beside.exists() else name, NAMES[name])


def available() -> str:
    return missing(*(need(name) for name in NAMES))


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--script", choices=sorted(SCRIPTS), default="tpcb", help="of pgbench")
    parser.add_argument("--duration", type=int, default=5, help="seconds of load")


def workloads(full: bool) -> list[Workload]:
    about = {"tpcb": "updates four tables", "select": "looks up a row"}
    return [
        workload(
            "postgres",
            "postgres",
            f"script={script}",
            [f"--script={script}", f"--duration={5 if full else 1}"],
            f"PostgreSQL, one process a client, {about[script]} per transaction for four clients",
            threads=CLIENTS,
        )
        for script in SCRIPTS
    ]


class Cluster:
    """The programs of one cluster, run as a user that may run it."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.data = folder / "data"
        self.user = other_user()
        self.env = environment(
            "", HOME=str(folder), PGHOST=str(folder), PGUSER="owner", PGDATABASE="postgres"
        )
        if self.user:
            os.chown(folder, *self.user)

    def tool(self, name: str, *arguments: str, seconds: float = 60) -> str:
        run: dict = {"env": self.env, "cwd": self.folder}
        if self.user:
            run |= {"user": self.user[0], "group": self.user[1], "extra_groups": ()}
        return tool([need(name).found(), *arguments], seconds, **run)

    def ask(self, text: str) -> str:
        words = ("-X", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-c", text)
        return self.tool("psql", *words).strip()

    def started(self, env: dict[str, str]):
        argv = [need("postgres").found(), "-D", str(self.data), "-k", str(self.folder), *SERVER]
        log = self.folder / "log"
        return started(argv, env, log, stop=signal.SIGINT, user=self.user, cwd=self.folder)

    def wait(self, process) -> None:
        wait_for(lambda: self.ask("SELECT 1") == "1", "answer from postgres", process)


def template() -> Path:
    """The cluster with pgbench's tables, made if it is not there."""
    version = digest(version_of([need("postgres").found(), "--version"]).encode())
    kept = cache_folder() / f"postgres-{version}-{SCALE}"
    if kept.exists():
        return kept
    kept.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="hakmem-lab-") as name:
        cluster = Cluster(Path(name))
        options = ("-U", "owner", "-A", "trust", "--no-sync", "-E", "UTF8", "--locale=C")
        cluster.tool("initdb", "-D", str(cluster.data), *options)
        with cluster.started(cluster.env) as process:
            cluster.wait(process)
            cluster.tool("pgbench", "-i", "-q", "-s", str(SCALE))
        # Moved into place whole, so that a run never sees half of it.
        with tempfile.TemporaryDirectory(prefix="new-", dir=kept.parent) as new:
            shutil.copytree(cluster.data, Path(new) / "data")
            if not kept.exists():
                os.replace(Path(new) / "data", kept)
    return kept


def copy_cluster(cluster: Cluster) -> None:
    shutil.copytree(template(), cluster.data)
    cluster.data.chmod(0o700)
    if cluster.user:
        for folder, _, files in os.walk(cluster.data):
            for name in (folder, *(os.path.join(folder, file) for file in files)):
                os.chown(name, *cluster.user)


def transactions(folder: Path) -> tuple[list[int], float]:
    """Every transaction's time in ns, out of pgbench's log, and the seconds that all took."""
    times, first, last = [], float("inf"), 0.0
    for log in folder.glob("transactions.*"):
        with open(log, encoding="ascii") as file:
            for line in file:
                _client, _number, took_us, _script, second, microsecond = line.split()[:6]
                ended = int(second) + int(microsecond) / 1e6
                first = min(first, ended - int(took_us) / 1e6)
                last = max(last, ended)
                times.append(int(took_us) * 1000)
    if not times:
        raise Failed("pgbench logged no transaction")
    return times, last - first


def check(cluster: Cluster, script: str, done: int) -> None:
    """What pgbench keeps in four tables agrees."""
    if script == "tpcb":
        tables = ("accounts", "branches", "tellers")
        sums = [cluster.ask(f"SELECT sum({t[0]}balance) FROM pgbench_{t}") for t in tables]
        sums.append(cluster.ask("SELECT coalesce(sum(delta), 0) FROM pgbench_history"))
        if len(set(sums)) != 1:
            raise Failed(f"balances differ: {sums}")
    kept = int(cluster.ask("SELECT count(*) FROM pgbench_history"))
    if kept != (done if script == "tpcb" else 0):
        raise Failed(f"{done} transactions, {kept} in the history")
    rows = cluster.ask("SELECT count(*) FROM pgbench_accounts")
    if rows != str(SCALE * 100_000):
        raise Failed(f"{rows} accounts")


def drive(options: argparse.Namespace, work: Path) -> dict:
    cluster = Cluster(work)
    copy_cluster(cluster)
    served = ForOtherUser(work)
    env = served.environment(HOME=str(work))
    words = ["-n", "-c", str(CLIENTS), "-j", "1", "-T", str(options.duration), "-M", "simple"]
    words += ["-b", SCRIPTS[options.script], f"--random-seed={options.seed}"]
    words += ["-l", f"--log-prefix={work}/transactions"]
    with cluster.started(env) as process:
        cluster.wait(process)
        with Watch(process.pid) as watch:
            cluster.tool("pgbench", *words, seconds=options.duration + 60)
        times, seconds = transactions(work)
        check(cluster, options.script, len(times))
        pids = tree(process.pid)
    served.hand_over()
    return {
        **whole(len(times), seconds),
        **percentiles(times),
        **watch.figures(),
        "hash": digest(f"{SCALE} {options.script}".encode()),
        "program_version": version_of([need("postgres").found(), "--version"]),
        "program_pids": pids,
    }
