#!/usr/bin/env python3
"""nginx under wrk: files of several sizes, compressed and through a proxy, with a reload of the
configuration during the load; every answer is compared with what was to be served."""

import gzip
import os
import pwd
import random
import re
import signal
import subprocess
import time
import urllib.request

from compat import (
    check,
    environment,
    free_port,
    need,
    prove_command,
    prove_tree,
    run_test,
    same,
    say,
    server,
    tree,
    wait_for,
)

CONFIG = """
{user}
daemon off;
worker_processes 2;
pid {work}/nginx.pid;
error_log {work}/error.log warn;
events {{ worker_connections 256; }}
http {{
    types {{ text/html html; text/plain txt; }}
    access_log off;
    client_body_temp_path {work}/body;
    proxy_temp_path {work}/proxy;
    fastcgi_temp_path {work}/fastcgi;
    uwsgi_temp_path {work}/uwsgi;
    scgi_temp_path {work}/scgi;
    gzip on;
    gzip_min_length 100;
    gzip_types text/plain;
    server {{
        listen 127.0.0.1:{port};
        root {work}/root;
        location /proxy/ {{ proxy_pass http://127.0.0.1:{port}/; }}
        location ~ ^/(?<word>[a-z]+)-(?<rest>.*)\\.re$ {{ return 200 "$word:$rest"; }}
    }}
}}
"""


def fetch(port, path, packed=False):
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}")
    if packed:
        request.add_header("Accept-Encoding", "gzip")
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(request, timeout=20) as answer:
        data = answer.read()
        return gzip.decompress(data) if answer.headers.get("Content-Encoding") == "gzip" else data


def main(work):
    nginx = need("nginx", "nginx-light", ["/usr/sbin", "/usr/local/sbin"])
    wrk = need("wrk", "wrk")
    os.mkdir("root")
    os.chmod(work, 0o755)
    chance = random.Random(1)
    files = {}
    for size in (0, 100, 4000, 70000, 1000000, 6000000):
        name = f"/f{size}.txt"
        files[name] = bytes(chance.choice(b"abcdefgh \n") for _ in range(min(size, 5000)))
        files[name] = (files[name] * (size // max(1, len(files[name])) + 1))[:size]
        with open("root" + name, "wb") as file:
            file.write(files[name])
    port = free_port()
    user = f"user {pwd.getpwuid(0).pw_name};" if os.geteuid() == 0 else ""
    with open("nginx.conf", "w") as file:
        file.write(CONFIG.format(user=user, work=work, port=port))
    argv = [nginx, "-p", work, "-e", "error.log", "-c", os.path.join(work, "nginx.conf")]
    prove_command(argv + ["-t"])

    def verify():
        for name, content in files.items():
            for path in (name, "/proxy" + name):
                same("content of " + path, fetch(port, path) == content, True)
                same("packed content of " + path, fetch(port, path, True) == content, True)
        same("regex location", fetch(port, "/abc-de%20f.re"), b"abc:de f")

    with server(argv, os.path.join(work, "nginx.log"), stop=signal.SIGQUIT) as process:
        wait_for(lambda: fetch(port, "/f100.txt"), f"nginx on port {port}", process=process)
        prove_tree(process.pid, 3)
        for path in ("/f4000.txt", "/proxy/f70000.txt"):
            address = f"http://127.0.0.1:{port}{path}"
            with open("wrk.out", "wb") as out:
                load = subprocess.Popen(
                    [wrk, "-t1", "-c32", "-d3s", "-H", "Accept-Encoding: gzip", address],
                    env=environment(preload=False),
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=out,
                )
            try:
                time.sleep(0.5)
                verify()
                prove_tree(process.pid, 3)
                before = set(tree(process.pid))
                process.send_signal(signal.SIGHUP)
                wait_for(
                    lambda old=before: set(tree(process.pid)) - old, "new workers after a reload"
                )
                verify()
                load.wait(30)
            finally:
                if load.poll() is None:
                    load.kill()
                load.wait()
            with open("wrk.out") as file:
                text = file.read()
            count = re.search(r"(\d+) requests in", text)
            check(load.returncode == 0 and count, "wrk: " + text)
            check("Non-2xx" not in text, "wrk: " + text)
            say(f"nginx: {path}: {count.group(1)} requests")
        prove_tree(process.pid, 3)
        verify()
    with open("error.log") as file:
        for line in file:
            check("[alert]" not in line and "[emerg]" not in line, "error.log: " + line)


run_test(main)
