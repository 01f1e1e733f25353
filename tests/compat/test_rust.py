#!/usr/bin/env python3
"""A Rust program on the system allocator: maps, strings, vectors that grow, over-aligned blocks,
threads and channels. rustc, which brings an allocator of its own, must live with the preload."""

import os

from compat import environment, need, prove_command, run, run_both, run_test, same

SOURCE = r"""
use std::alloc::{alloc, alloc_zeroed, dealloc, realloc, Layout};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{mpsc, Arc, Mutex};
use std::thread;

fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
    *state >> 33
}

fn maps(seed: u64) -> u64 {
    let mut state = seed;
    let mut hash: HashMap<String, Vec<u64>> = HashMap::new();
    let mut tree: BTreeMap<u64, String> = BTreeMap::new();
    let mut queue: VecDeque<Box<[u8]>> = VecDeque::new();
    for i in 0..120_000u64 {
        let r = next(&mut state);
        hash.entry(format!("key{}", r % 9000)).or_default().push(i);
        tree.insert(r % 30_000, "v".repeat((r % 90) as usize));
        if r % 3 == 0 {
            tree.remove(&(r % 20_000));
        }
        queue.push_back(vec![r as u8; (r % 3000) as usize].into_boxed_slice());
        if queue.len() > 500 {
            let gone = queue.pop_front().unwrap();
            assert!(gone.iter().all(|b| *b == gone[0]));
        }
    }
    hash.values().map(|v| v.iter().sum::<u64>()).fold(0, u64::wrapping_add)
        ^ tree.iter().map(|(k, v)| k * v.len() as u64).fold(0, u64::wrapping_add)
}

fn layouts() -> u64 {
    let mut sum = 0;
    for shift in 3..17 {
        for size in [1usize, 24, 100, 5000, 70_000] {
            let layout = Layout::from_size_align(size, 1 << shift).unwrap();
            unsafe {
                let a = alloc(layout);
                assert_eq!(a as usize % layout.align(), 0);
                a.write_bytes(7, size);
                let b = realloc(a, layout, size * 3);
                assert_eq!(b as usize % layout.align(), 0);
                for i in 0..size {
                    sum += *b.add(i) as u64;
                }
                dealloc(b, Layout::from_size_align(size * 3, layout.align()).unwrap());
                let z = alloc_zeroed(layout);
                for i in 0..size {
                    assert_eq!(*z.add(i), 0);
                }
                dealloc(z, layout);
            }
        }
    }
    sum
}

fn main() {
    println!("maps {}", maps(1));
    println!("layouts {}", layouts());
    let total = Arc::new(Mutex::new(0u64));
    let workers: Vec<_> = (0..6u64)
        .map(|i| {
            let total = Arc::clone(&total);
            thread::spawn(move || {
                let value = maps(i + 2);
                *total.lock().unwrap() ^= value;
            })
        })
        .collect();
    let (send, receive) = mpsc::channel::<Vec<String>>();
    let producers: Vec<_> = (0..3)
        .map(|p| {
            let send = send.clone();
            thread::spawn(move || {
                for i in 0..20_000 {
                    send.send(vec![format!("{}:{}", p, i), "x".repeat(i % 200)]).unwrap();
                }
            })
        })
        .collect();
    drop(send);
    let received: usize = receive.iter().map(|words| words[0].len() + words[1].len()).sum();
    for thread in workers.into_iter().chain(producers) {
        thread.join().unwrap();
    }
    println!("threads {} channel {}", total.lock().unwrap(), received);
    let mut grown: Vec<u32> = Vec::new();
    for i in 0..20_000_000u32 {
        grown.push(i);
    }
    grown.shrink_to_fit();
    println!("grown {}", grown.iter().map(|v| *v as u64).sum::<u64>());
}
"""


def main(work):
    rustc = need("rustc", "rustc", [os.path.expanduser("~/.cargo/bin")])
    source = os.path.join(work, "served.rs")
    with open(source, "w") as file:
        file.write(SOURCE)
    program = os.path.join(work, "served")
    run([rustc, "-O", "-o", program, source], preload=True).ok()
    result = run_both([program])
    same("last line", result.out.splitlines()[-1], b"grown %d" % (20000000 * 19999999 // 2))
    same("proved run", prove_command([program], env=environment()).out, result.out)
    run([program], prove=True).ok()


run_test(main)
