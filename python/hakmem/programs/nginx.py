"""nginx with two workers under wrk: one small file, as it is and compressed on the fly."""

from __future__ import annotations

import argparse
import gzip
import json
import os
import pwd
import random
import signal
import urllib.request
from pathlib import Path

from hakmem.model import Workload
from hakmem.programs.common import (
    Failed,
    Need,
    Watch,
    digest,
    environment,
    free_port,
    missing,
    preload,
    started,
    tool,
    tree,
    version_of,
    wait_for,
    whole,
    workload,
)

ABOUT = "nginx under wrk"
SERVER = Need("nginx", "nginx-light", ("/usr/sbin", "/usr/local/sbin"))
LOAD = Need("wrk", "wrk")
BYTES = 4096
WORKERS = 2

CONFIG = """
{user}
daemon off;
worker_processes {workers};
pid {work}/nginx.pid;
error_log {work}/error.log warn;
events {{ worker_connections 256; }}
http {{
    types {{ text/plain txt; }}
    access_log off;
    client_body_temp_path {work}/body;
    proxy_temp_path {work}/proxy;
    fastcgi_temp_path {work}/fastcgi;
    uwsgi_temp_path {work}/uwsgi;
    scgi_temp_path {work}/scgi;
    keepalive_requests 1000;
    gzip on;
    gzip_min_length 100;
    gzip_types text/plain;
    server {{ listen 127.0.0.1:{port}; root {work}/root; }}
}}
"""

# wrk prints for people; its script can say the same in full.
SCRIPT = """
done = function(summary, latency, requests)
    local e = summary.errors
    io.write(string.format(
        'FIGURES {"requests": %d, "us": %d, "errors": %d, "p50_us": %d, "p90_us": %d, ' ..
        '"p95_us": %d, "p99_us": %d, "p999_us": %d, "p9999_us": %d, "max_us": %d}\\n',
        summary.requests, summary.duration,
        e.connect + e.read + e.write + e.status + e.timeout,
        latency:percentile(50), latency:percentile(90), latency:percentile(95),
        latency:percentile(99), latency:percentile(99.9), latency:percentile(99.99), latency.max))
end
"""


def available() -> str:
    return missing(SERVER, LOAD)


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--gzip", choices=("off", "on"), default="off", help="clients that take it")
    parser.add_argument("--duration", type=int, default=2, help="seconds of load")


def workloads(full: bool) -> list[Workload]:
    kinds = {"off": "a file of 4 KiB", "on": "a file of 4 KiB, compressed for each request"}
    return [
        workload(
            "nginx",
            "nginx",
            f"gzip={kind}",
            [f"--gzip={kind}", f"--duration={8 if full else 2}"],
            f"nginx with two workers serves {what} to 32 connections",
            threads=WORKERS,
        )
        for kind, what in kinds.items()
    ]


def content(seed: int) -> bytes:
    chance = random.Random(seed)
    return bytes(chance.choice(b"abcdefgh \n") for _ in range(BYTES))


def fetch(address: str, compressed: bool) -> bytes:
    request = urllib.request.Request(address)
    if compressed:
        request.add_header("Accept-Encoding", "gzip")
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(request, timeout=10) as answer:
        data = answer.read()
        packed = answer.headers.get("Content-Encoding") == "gzip"
    if packed != compressed:
        raise Failed(f"nginx compressed: {packed}; asked for: {compressed}")
    return gzip.decompress(data) if packed else data


def load(address: str, options: argparse.Namespace, work: Path) -> dict:
    script = work / "figures.lua"
    script.write_text(SCRIPT)
    argv = [LOAD.found(), "-t1", "-c32", f"-d{options.duration}s", "-s", str(script)]
    if options.gzip == "on":
        argv += ["-H", "Accept-Encoding: gzip"]
    said = tool([*argv, address], options.duration + 30)
    for line in said.splitlines():
        if line.startswith("FIGURES "):
            return json.loads(line.removeprefix("FIGURES "))
    raise Failed(f"wrk gave no figures: {said[-300:]}")


def drive(options: argparse.Namespace, work: Path) -> dict:
    data = content(options.seed)
    (work / "root").mkdir()
    (work / "root" / "file.txt").write_bytes(data)
    port = free_port()
    user = f"user {pwd.getpwuid(0).pw_name};" if os.geteuid() == 0 else ""
    config = work / "nginx.conf"
    config.write_text(CONFIG.format(user=user, work=work, port=port, workers=WORKERS))
    argv = [SERVER.found(), "-p", str(work), "-e", "error.log", "-c", str(config)]
    address = f"http://127.0.0.1:{port}/file.txt"
    compressed = options.gzip == "on"
    log = work / "log"
    with started(argv, environment(preload()), log, stop=signal.SIGQUIT) as process:
        wait_for(lambda: fetch(address, compressed), "answer from nginx", process)
        with Watch(process.pid) as watch:
            said = load(address, options, work)
        pids = tree(process.pid)
        if fetch(address, compressed) != data:
            raise Failed("nginx serves something else than the file")
    if said["errors"] or len(pids) != 1 + WORKERS:
        raise Failed(f"{said['errors']} requests failed, {len(pids)} processes")
    errors = (work / "error.log").read_text()
    if "[alert]" in errors or "[emerg]" in errors:
        raise Failed(f"nginx says {errors[-300:]}")
    return {
        **whole(said["requests"], said["us"] / 1e6),
        **{key.replace("_us", "_ns"): said[key] * 1000 for key in said if key.endswith("_us")},
        **watch.figures(),
        "hash": digest(data),
        "program_version": version_of([SERVER.found(), "-v"]),
        "program_pids": pids,
    }
