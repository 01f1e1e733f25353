"""redis-server under redis-benchmark, over a socket in a folder of its own."""

from __future__ import annotations

import argparse
import csv
import random
import socket
import statistics
import time
from pathlib import Path

from hakmem.model import Workload
from hakmem.programs.common import (
    Failed,
    Need,
    Watch,
    digest,
    environment,
    memory_fields,
    missing,
    preload_over_own,
    started,
    times,
    tool,
    version_of,
    wait_for,
    workload,
)

ABOUT = "redis-server under redis-benchmark"
SERVER = Need("redis-server", "redis-server")
LOAD = Need("redis-benchmark", "redis-tools")
COMMANDS = ("set", "get", "lpush", "lpop")
# Requests of each command in a round, by size. lpush holds all that it pushed in a round at one
# time, until lpop takes it.
REQUESTS = {16: 60_000, 1024: 40_000, 16384: 6_000}
KEYS = 10_000
OWN_KEYS = 300
# Of redis-benchmark, in ms. Versions before 6.2 give the rate alone.
COLUMNS = {
    "p50_ns": "p50_latency_ms", "p95_ns": "p95_latency_ms", "p99_ns": "p99_latency_ms",
    "max_ns": "max_latency_ms",
}  # fmt: skip
# From the moment that all is freed until resident memory is read.
AFTER_SECONDS = 1.0


class Client:
    """As much of the Redis protocol as a check needs."""

    def __init__(self, path: Path):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(20)
        self.socket.connect(str(path))
        self.file = self.socket.makefile("rb")

    def close(self) -> None:
        self.file.close()
        self.socket.close()

    def call(self, *words: str | bytes) -> object:
        data = [word if isinstance(word, bytes) else word.encode() for word in words]
        parts = [b"*%d\r\n" % len(data)]
        parts += [b"$%d\r\n%s\r\n" % (len(word), word) for word in data]
        self.socket.sendall(b"".join(parts))
        return self.reply()

    def reply(self) -> object:
        line = self.file.readline()
        if not line.endswith(b"\r\n"):
            raise Failed("redis-server closed the connection")
        kind, rest = line[:1], line[1:-2]
        if kind == b"+":
            return rest
        if kind == b":":
            return int(rest)
        if kind == b"$":
            return None if rest == b"-1" else self.file.read(int(rest) + 2)[:-2]
        if kind == b"*":
            return [self.reply() for _ in range(int(rest))]
        raise Failed(f"redis-server says {line!r}")

    def info(self, section: str) -> dict[str, str]:
        lines = self.call("INFO", section).decode().splitlines()
        return dict(line.split(":", 1) for line in lines if ":" in line)


def available() -> str:
    return missing(SERVER, LOAD)


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--size", type=int, default=1024, help="bytes of a value")
    parser.add_argument("--pipeline", type=int, default=16, help="requests sent at a time")
    parser.add_argument("--requests", type=int, default=50_000, help="of each command")
    parser.add_argument("--rounds", type=int, default=2, help="of all commands")


def workloads(full: bool) -> list[Workload]:
    rounds = 16 if full else 2
    return [
        workload(
            "redis",
            "redis",
            f"size={size} pipeline=16",
            [f"--size={size}", "--pipeline=16", f"--requests={count}", f"--rounds={rounds}"],
            f"redis-server serves SET, GET, LPUSH and LPOP of {size} bytes to 20 clients",
        )
        for size, count in REQUESTS.items()
    ]


def own_values(seed: int, size: int) -> dict[str, bytes]:
    """Values of mixed sizes around `size`, stored before the load and looked at after it."""
    chance = random.Random(seed)
    return {f"own:{i}": chance.randbytes(chance.randint(1, size * 2)) for i in range(OWN_KEYS)}


def load(path: Path, options: argparse.Namespace) -> list[dict[str, str]]:
    """The lines of redis-benchmark, one for each command."""
    argv = [LOAD.found(), "-s", str(path), "-c", "20", "-n", str(options.requests)]
    argv += ["-d", str(options.size), "-r", str(KEYS), "-P", str(options.pipeline)]
    argv += ["-t", ",".join(COMMANDS), "--csv"]
    lines = list(csv.DictReader(tool(argv).splitlines()))
    if [line.get("test") for line in lines] != [name.upper() for name in COMMANDS]:
        raise Failed(f"redis-benchmark said {lines}")
    return lines


def seconds_of(lines: list[dict[str, str]], requests: int) -> float:
    return sum(requests / float(line["rps"]) for line in lines)


def latencies(rounds: list[list[dict[str, str]]]) -> dict[str, int]:
    """Percentiles of the command that was slowest at each: the median of all rounds, but the
    longest of all for the longest."""
    found = {}
    for name, column in COLUMNS.items():
        if all(column in line for lines in rounds for line in lines):
            slowest = [max(float(line[column]) for line in lines) for lines in rounds]
            value = max(slowest) if name == "max_ns" else statistics.median(slowest)
            found[name] = round(value * 1e6)
    return found


def check(client: Client, values: dict[str, bytes], requests: int) -> None:
    """Every command was answered as often as it was sent, and what was stored is there."""
    counted = client.info("commandstats")
    for name in COMMANDS:
        # SET came from the check itself too.
        expected = requests + (len(values) if name == "set" else 0)
        calls = counted.get(f"cmdstat_{name}", "").partition(",")[0]
        if calls != f"calls={expected}":
            raise Failed(f"{name} was to be served {expected} times: {calls or 'never'}")
    errors = client.info("stats").get("total_error_replies", "0")
    if errors != "0":
        raise Failed(f"redis-server gave {errors} errors")
    for key, value in values.items():
        if client.call("GET", key) != value:
            raise Failed(f"{key} is not what was stored")


def drive(options: argparse.Namespace, work: Path) -> dict:
    path = work / "redis.sock"
    argv = [SERVER.found(), "--port", "0", "--unixsocket", str(path), "--dir", str(work)]
    argv += ["--save", "", "--appendonly", "no", "--daemonize", "no"]
    # Distributions link redis-server with jemalloc.
    values = own_values(options.seed, options.size)
    with started(argv, environment(preload_over_own()), work / "log") as process:
        client = wait_for(lambda: Client(path), "answer from redis-server", process)
        for key, value in values.items():
            client.call("SET", key, value)
        with Watch(process.pid) as watch:
            rounds = [load(path, options) for _ in range(options.rounds)]
        check(client, values, options.requests * options.rounds)
        live = int(client.info("memory")["used_memory"]) >> 10
        client.call("FLUSHALL", "SYNC")
        time.sleep(AFTER_SECONDS)
        after = memory_fields(process.pid, "status", ("VmRSS",)).get("VmRSS", 0)
        client.close()
    spent = [round(seconds_of(lines, options.requests) * 1e9) for lines in rounds]
    return {
        **times(options.requests * len(COMMANDS), spent),
        **latencies(rounds),
        **watch.figures(),
        "live_kib": live,
        "resident_after_kib": after,
        "per_second": {line["test"].lower(): float(line["rps"]) for line in rounds[-1]},
        "hash": digest(b"".join(values.values())),
        "program_version": version_of([SERVER.found(), "--version"]),
        "program_pids": [process.pid],
    }
