//! Searches a tree of text files, as grep and ripgrep do, and counts words on the way.
//!
//!     search FOLDER --seed N --files N --threads N --repeats N
//!
//! Makes the tree from the seed in FOLDER (not timed), then searches it `repeats` times with
//! `threads` threads: paths are collected in a Vec<PathBuf>, each file is read into a String,
//! matching lines are kept as Strings, words are counted in a HashMap<String, u64> per thread that
//! is merged at the end. Prints one line of JSON and waits for the end of its input, so that its
//! memory can be looked at. The digest is the same for a seed whatever the allocator and the number
//! of threads. Status 3: two repeats found different things.

mod global;

use std::collections::HashMap;
use std::fmt::Write as _;
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::exit;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Instant;

const FILES_PER_FOLDER: usize = 16;
const LINES: usize = 200;
const WORDS: usize = 6000;
const PATTERN: &str = "ka";

/// Knuth's MMIX generator; only its upper bits are used.
struct Chance(u64);

impl Chance {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        ((self.0 >> 32) as usize * bound) >> 32
    }
}

fn make_words(chance: &mut Chance) -> Vec<String> {
    const PARTS: [&str; 16] = [
        "ka", "lo", "mi", "nu", "re", "so", "ti", "va", "be", "du", "fe", "go", "hi", "ju", "po",
        "zy",
    ];
    (0..WORDS)
        .map(|_| (0..1 + chance.below(6)).map(|_| PARTS[chance.below(PARTS.len())]).collect())
        .collect()
}

fn make_tree(root: &Path, seed: u64, files: usize) -> io::Result<()> {
    let mut chance = Chance(seed.wrapping_mul(0x9e3779b97f4a7c15).wrapping_add(1));
    let words = make_words(&mut chance);
    for file in 0..files {
        let folder = root.join(format!("part{:03}", file / FILES_PER_FOLDER));
        if file % FILES_PER_FOLDER == 0 {
            fs::create_dir_all(&folder)?;
        }
        let mut text = String::new();
        for _ in 0..LINES {
            for _ in 0..2 + chance.below(18) {
                text.push_str(&words[chance.below(words.len())]);
                text.push(' ');
            }
            text.push('\n');
        }
        fs::write(folder.join(format!("file{file}.txt")), text)?;
    }
    Ok(())
}

fn walk(folder: &Path, found: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            walk(&entry.path(), found)?;
        } else {
            found.push(entry.path());
        }
    }
    Ok(())
}

struct Match {
    path: String,
    number: usize,
    line: String,
}

#[derive(Default)]
struct Found {
    lines: u64,
    matches: Vec<Match>,
    words: HashMap<String, u64>,
}

impl Found {
    fn search(&mut self, root: &Path, path: &Path) -> io::Result<()> {
        let text = fs::read_to_string(path)?;
        let name = path.strip_prefix(root).unwrap_or(path).to_string_lossy().into_owned();
        for (number, line) in text.lines().enumerate() {
            self.lines += 1;
            let mut starts = false;
            for word in line.split_whitespace() {
                starts |= word.starts_with(PATTERN);
                // A key is made for every word, as a program does that doesn't think of it.
                *self.words.entry(word.to_string()).or_insert(0) += 1;
            }
            if starts {
                let line = line.trim_end().to_string();
                self.matches.push(Match { path: name.clone(), number, line });
            }
        }
        Ok(())
    }

    fn merge(&mut self, other: Found) {
        self.lines += other.lines;
        self.matches.extend(other.matches);
        for (word, count) in other.words {
            *self.words.entry(word).or_insert(0) += count;
        }
    }

    fn digest(&mut self) -> u64 {
        self.matches.sort_by(|a, b| (&a.path, a.number).cmp(&(&b.path, b.number)));
        let mut words: Vec<_> = self.words.iter().collect();
        words.sort();
        let mut text = String::new();
        for found in &self.matches {
            let _ = writeln!(text, "{}:{}:{}", found.path, found.number, found.line);
        }
        for (word, count) in words {
            let _ = writeln!(text, "{word} {count}");
        }
        // FNV-1a.
        text.bytes().fold(0xcbf29ce484222325, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x100000001b3)
        })
    }
}

fn search(root: &Path, threads: usize) -> io::Result<Found> {
    let mut paths = Vec::new();
    walk(root, &mut paths)?;
    let next = AtomicUsize::new(0);
    let work = || -> io::Result<Found> {
        let mut found = Found::default();
        while let Some(path) = paths.get(next.fetch_add(1, Ordering::Relaxed)) {
            found.search(root, path)?;
        }
        Ok(found)
    };
    let parts = thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        workers.into_iter().map(|worker| worker.join().expect("a worker")).collect::<Vec<_>>()
    });
    let mut all = Found::default();
    for part in parts {
        all.merge(part?);
    }
    Ok(all)
}

struct Options {
    root: PathBuf,
    seed: u64,
    files: usize,
    threads: usize,
    repeats: usize,
}

fn options() -> Option<Options> {
    let mut words = std::env::args().skip(1);
    let root = PathBuf::from(words.next()?);
    let mut options = Options { root, seed: 1, files: 100, threads: 2, repeats: 3 };
    while let Some(name) = words.next() {
        let value: u64 = words.next()?.parse().ok()?;
        match name.as_str() {
            "--seed" => options.seed = value,
            "--files" => options.files = value as usize,
            "--threads" => options.threads = value as usize,
            "--repeats" => options.repeats = value as usize,
            _ => return None,
        }
    }
    (options.files > 0 && options.threads > 0 && options.repeats > 0).then_some(options)
}

fn main() -> io::Result<()> {
    let Some(options) = options() else {
        eprintln!("usage: search FOLDER [--seed N] [--files N] [--threads N] [--repeats N]");
        exit(2);
    };
    make_tree(&options.root, options.seed, options.files)?;
    let mut times = Vec::new();
    let mut last: Option<Found> = None;
    let mut digest = 0;
    for _ in 0..options.repeats {
        let start = Instant::now();
        drop(last.take()); // what the repeat before found is freed in the time of this one
        let mut found = search(&options.root, options.threads)?;
        times.push(start.elapsed().as_nanos());
        let this = found.digest();
        if digest != 0 && this != digest {
            eprintln!("search: two repeats found different things");
            exit(3);
        }
        digest = this;
        last = Some(found);
    }
    let found = last.expect("one repeat at least");
    println!(
        "{{\"ops\": {}, \"times_ns\": {times:?}, \"hash\": \"{digest:016x}\", \"matches\": {}, \
         \"words\": {}, \"linked\": \"{}\", \"glibc_kib\": {}}}",
        found.lines,
        found.matches.len(),
        found.words.len(),
        global::NAME,
        global::glibc_kib(),
    );
    io::stdin().read_to_end(&mut Vec::new())?;
    Ok(())
}
