#!/usr/bin/env python3
"""redis-server under redis-benchmark, with background saves while the load runs; what was stored is
verified before and after it is loaded again, and its account of memory follows what is freed."""

import hashlib
import os
import socket
import subprocess
import time

from compat import (
    Failed,
    check,
    environment,
    free_port,
    need,
    prove_command,
    prove_pid,
    run_test,
    same,
    say,
    server,
    wait_for,
)


class Client:
    """As much of the Redis protocol as the test needs."""

    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=30)
        self.file = self.socket.makefile("rb")

    def close(self):
        self.file.close()
        self.socket.close()

    def send(self, commands):
        parts = []
        for words in commands:
            parts.append(b"*%d\r\n" % len(words))
            for word in words:
                data = word if isinstance(word, bytes) else str(word).encode()
                parts.append(b"$%d\r\n%s\r\n" % (len(data), data))
        self.socket.sendall(b"".join(parts))
        return [self.reply() for _ in commands]

    def call(self, *words):
        return self.send([words])[0]

    def reply(self):
        line = self.file.readline()
        if not line.endswith(b"\r\n"):
            raise Failed("redis closed the connection")
        kind, rest = line[:1], line[1:-2]
        if kind == b"+":
            return rest
        if kind == b":":
            return int(rest)
        if kind == b"$":
            return None if rest == b"-1" else self.file.read(int(rest) + 2)[:-2]
        if kind == b"*":
            return [self.reply() for _ in range(int(rest))]
        raise Failed(f"redis says {line!r}")

    def info(self, section):
        lines = self.call("INFO", section).decode().splitlines()
        return dict(line.split(":", 1) for line in lines if ":" in line)


def value(key, size):
    seed = hashlib.sha256(key.encode()).digest()
    return (seed * (size // len(seed) + 1))[:size]


SIZES = [0, 3, 24, 64, 200, 1000, 4000, 20000, 150000, 1500000]


def store(client):
    for size in SIZES:
        count = 400 if size < 10000 else 12
        keys = [f"own:{size}:{i}" for i in range(count)]
        client.send([("SET", key, value(key, size)) for key in keys])
    for i in range(300):
        client.send(
            [
                ("HSET", "hash:%s" % (i % 10), f"field{i}", value(f"h{i}", i * 3)),
                ("RPUSH", "list:%s" % (i % 5), value(f"l{i}", i * 5)),
                ("ZADD", "zset:%s" % (i % 7), i, f"member{i}"),
                ("SADD", "set:%s" % (i % 3), f"element{i}"),
            ]
        )


def verify(client, when):
    for size in SIZES:
        count = 400 if size < 10000 else 12
        keys = [f"own:{size}:{i}" for i in range(count)]
        for key, found in zip(keys, client.send([("GET", key) for key in keys]), strict=True):
            same(f"{key} after {when}", found, value(key, size))
    for i in range(10):
        found = client.call("HGETALL", f"hash:{i}")
        expected = {b"field%d" % n: value(f"h{n}", n * 3) for n in range(i, 300, 10)}
        same("hash after " + when, dict(zip(found[::2], found[1::2], strict=True)), expected)
    for i in range(5):
        found = client.call("LRANGE", f"list:{i}", 0, -1)
        same("list after " + when, found, [value(f"l{n}", n * 5) for n in range(i, 300, 5)])
    for i in range(7):
        found = client.call("ZRANGE", f"zset:{i}", 0, -1)
        same("zset after " + when, found, [b"member%d" % n for n in range(i, 300, 7)])
    for i in range(3):
        found = set(client.call("SMEMBERS", f"set:{i}"))
        same("set after " + when, found, {b"element%d" % n for n in range(i, 300, 3)})


def load(program, port, client, size, requests, tests):
    """One round of redis-benchmark, with background saves for as long as it runs."""
    argv = [program, "-h", "127.0.0.1", "-p", str(port), "-n", str(requests), "-c", "20"]
    argv += ["-d", str(size), "-r", "5000", "-t", tests, "-q", "--csv"]
    with open(f"benchmark.{size}", "wb") as out:
        process = subprocess.Popen(
            argv, env=environment(), stdin=subprocess.DEVNULL, stdout=out, stderr=out
        )
    saves = 0
    deadline = time.monotonic() + 40
    try:
        while process.poll() is None:
            if client.info("persistence")["rdb_bgsave_in_progress"] == "0":
                client.call("BGSAVE")
                saves += 1
            check(time.monotonic() < deadline, "redis-benchmark did not end")
            time.sleep(0.4)  # the load is to run beside a save and without one
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
    with open(f"benchmark.{size}") as file:
        text = file.read()
    check(process.returncode == 0 and "error" not in text.lower(), "redis-benchmark: " + text)
    check(text.count('"') >= 2 * len(tests.split(",")), "redis-benchmark said: " + text)
    return saves


def main(work):
    redis = need("redis-server", "redis-server")
    bench = need("redis-benchmark", "redis-tools")
    prove_command([redis, "--version"])
    port = free_port()
    argv = [redis, "--port", str(port), "--bind", "127.0.0.1", "--dir", work, "--save", ""]
    argv += ["--appendonly", "no", "--dbfilename", "dump.rdb", "--daemonize", "no"]
    argv += ["--rdbcompression", "no", "--lazyfree-lazy-user-del", "yes"]
    log = os.path.join(work, "redis.log")
    with server(argv, log) as process:
        client = wait_for(lambda: Client(port), f"redis on port {port}", process=process)
        store(client)
        verify(client, "storing")
        saves = load(bench, port, client, 16, 40000, "set,get,incr,lpush,lpop,sadd,hset,zadd")
        prove_pid(process.pid)
        saves += load(bench, port, client, 600, 40000, "set,get,lpush,rpop,hset")
        saves += load(bench, port, client, 12000, 15000, "set,get,lpush,lpop")
        check(saves >= 3, f"only {saves} background saves ran")
        verify(client, "load")
        wait_for(
            lambda: client.info("persistence")["rdb_bgsave_in_progress"] == "0",
            "end of the background save",
        )
        persistence = client.info("persistence")
        same("last background save", persistence["rdb_last_bgsave_status"], "ok")
        peak = int(client.info("memory")["used_memory"])
        # What is left of the benchmark goes; the account of malloc_usable_size must follow it down.
        cursor = b"0"
        while True:
            cursor, keys = client.call("SCAN", cursor, "COUNT", 2000)
            gone = [key for key in keys if key.startswith((b"key:", b"mylist", b"myset", b"my"))]
            if gone:
                client.send([("DEL",) + tuple(gone)])
            if cursor == b"0":
                break
        wait_for(
            lambda: client.info("memory").get("lazyfree_pending_objects", "0") == "0",
            "end of lazy frees",
        )
        used = int(client.info("memory")["used_memory"])
        check(0 < used < peak / 2, f"used_memory {used} of a peak of {peak}")
        same("SAVE", client.call("SAVE"), b"OK")
        client.close()
    with server(argv, log) as process:
        client = wait_for(lambda: Client(port), f"redis on port {port}", process=process)
        prove_pid(process.pid)
        wait_for(lambda: client.info("persistence")["loading"] == "0", "end of loading")
        verify(client, "loading")
        client.call("MEMORY", "PURGE")
        client.close()
    say(f"redis: {saves} background saves during load")


run_test(main)
