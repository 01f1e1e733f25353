"""node: objects that come and go, JSON, and buffers, which live outside its own heap."""

from __future__ import annotations

import argparse
from pathlib import Path

from hakmem.model import Workload
from hakmem.programs.common import (
    Need,
    environment,
    missing,
    preload,
    run_to_done,
    times,
    version_of,
    workload,
)

ABOUT = "node with objects, JSON and buffers"
NODE = Need("node", "nodejs")
# Rounds of one repeat, sized for a tenth of a second or so.
ROUNDS = 30

SCRIPT = r"""
'use strict';
const crypto = require('crypto');
const fs = require('fs');
const zlib = require('zlib');

const [seed, rounds, repeats] = process.argv.slice(2).map(Number);
let state = seed >>> 0;
function below(bound) {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return Math.floor((state / 4294967296) * bound);
}

class Node { constructor(key, next) { this.key = key; this.next = next; this.list = []; } }

function objects(hash) {
    const map = new Map();
    for (let i = 0; i < 3000; i++) {
        const key = 'k' + below(800);
        const node = new Node(key, map.get(key));
        node.list.push(i, String(i));
        map.set(key, below(4) === 0 ? undefined : node);
    }
    let length = 0;
    for (const node of map.values()) {
        for (let at = node; at; at = at.next) { length += at.list.length; }
    }
    hash.update(String(length));
}

function json(hash) {
    const rows = [];
    for (let i = 0; i < 400; i++) {
        const tags = ['a', 'b', String(below(50))];
        rows.push({ id: i, name: 'n' + below(1e6), tags, x: below(9) / 8 });
    }
    const text = JSON.stringify(rows);
    if (JSON.stringify(JSON.parse(text)) !== text) { throw new Error('JSON'); }
    hash.update(text);
}

const kept = [];
function buffers(hash) {
    for (let i = 0; i < 120; i++) {
        const buffer = Buffer.alloc(16 + below(below(10) === 0 ? 200000 : 6000), below(256));
        const at = below(200);
        if (kept[at]) { hash.update(kept[at].subarray(0, 64)); }
        kept[at] = buffer;
    }
    const whole = Buffer.concat(kept.filter(Boolean).slice(0, 50));
    const packed = zlib.deflateSync(whole, { level: 1 });
    if (!zlib.inflateSync(packed).equals(whole)) { throw new Error('zlib'); }
    hash.update(whole);
}

const times = [];
const hash = crypto.createHash('sha256');
for (let repeat = 0; repeat < repeats; repeat++) {
    const start = process.hrtime.bigint();
    for (let round = 0; round < rounds; round++) {
        objects(hash);
        json(hash);
        buffers(hash);
    }
    times.push(Number(process.hrtime.bigint() - start));
}
const done = { ops: rounds, times_ns: times, hash: hash.digest('hex').slice(0, 16) };
process.stdout.write(JSON.stringify(done) + '\n');
fs.readSync(0, Buffer.alloc(1));
"""


def available() -> str:
    return missing(NODE)


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--repeats", type=int, default=5, help=f"of {ROUNDS} rounds")


def workloads(full: bool) -> list[Workload]:
    repeats = 40 if full else 8
    about = "node makes and drops objects, JSON and buffers, and compresses"
    return [workload("node", "node", "", [f"--repeats={repeats}"], about)]


def drive(options: argparse.Namespace, work: Path) -> dict:
    script = work / "churn.js"
    script.write_text(SCRIPT)
    words = [str(script), str(options.seed), str(ROUNDS), str(options.repeats)]
    answer, took = run_to_done([NODE.found(), *words], environment(preload()), work)
    return {
        **times(answer["ops"], answer["times_ns"]),
        **took,
        "hash": answer["hash"],
        "program_version": version_of([NODE.found(), "--version"]),
    }
