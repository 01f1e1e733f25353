#!/usr/bin/env python3
"""node with worker threads: maps, JSON, buffers moved between workers, zlib and hashes. What it
prints must be what it prints without the library."""

import os

from compat import environment, need, prove_command, run, run_both, run_test, same

SCRIPT = r"""
'use strict';
const { Worker, isMainThread, parentPort, workerData } = require('worker_threads');
const zlib = require('zlib');
const crypto = require('crypto');

function work(seed, rounds) {
    const hash = crypto.createHash('sha256');
    const map = new Map();
    let x = seed;
    for (let i = 0; i < rounds; i++) {
        x = (Math.imul(x, 1103515245) + 12345) >>> 0;
        const key = 'k' + (x % 5000);
        map.set(key, (map.get(key) || '') + String.fromCharCode(97 + (x % 26)));
        if (i % 500 === 0) {
            const buffer = Buffer.alloc(1 + (x % 200000), x & 255);
            const packed = zlib.deflateSync(buffer);
            if (!zlib.inflateSync(packed).equals(buffer)) {
                throw new Error('zlib');
            }
            hash.update(packed);
        }
        if (i % 5000 === 0) {
            hash.update(JSON.stringify(JSON.parse(JSON.stringify([...map]))));
        }
    }
    return hash.digest('hex');
}

if (isMainThread) {
    const count = 4;
    const results = [];
    for (let i = 0; i < count; i++) {
        const shared = new Uint8Array(1 << 20).fill(i + 1);
        const worker = new Worker(__filename, {
            workerData: { seed: i + 1, bytes: shared.buffer },
            transferList: [shared.buffer],
        });
        worker.on('message', (message) => {
            const back = new Uint8Array(message.bytes);
            results[i] = message.digest + ' ' + back.reduce((a, b) => (a + b) >>> 0, 0);
        });
        worker.on('error', (error) => { console.error(error); process.exitCode = 1; });
        worker.on('exit', () => {
            if (results.filter(Boolean).length === count && !main.done) {
                main.done = true;
                console.log(results.join('\n'));
                console.log(work(99, 20000));
                if (process.argv[2] === 'wait') {
                    setTimeout(() => {}, 1500);
                }
            }
        });
    }
    function main() {}
} else {
    const digest = work(workerData.seed, 30000);
    parentPort.postMessage({ digest, bytes: workerData.bytes }, [workerData.bytes]);
}
"""


def main(work):
    node = need("node", "nodejs")
    script = os.path.join(work, "workers.js")
    with open(script, "w") as file:
        file.write(SCRIPT)
    result = run_both([node, script])
    served = run([node, script, "wait"], env=environment(UV_THREADPOOL_SIZE="8"), prove=True).ok()
    same("output", served.out, result.out)
    prove_command([node, "-e", "require('crypto').randomBytes(1 << 20); console.log(1)"])


run_test(main)
