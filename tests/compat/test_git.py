#!/usr/bin/env python3
"""git under the library: import, clone over the pack protocol, commit, gc and fsck of a repository
that is generated here. Every commit and tree must be what git makes without the library."""

import os

from compat import check, environment, need, prove_command, run, run_test, same

NAMES = {
    "GIT_AUTHOR_NAME": "A",
    "GIT_AUTHOR_EMAIL": "a@example.invalid",
    "GIT_AUTHOR_DATE": "1700000000 +0000",
    "GIT_COMMITTER_NAME": "A",
    "GIT_COMMITTER_EMAIL": "a@example.invalid",
    "GIT_COMMITTER_DATE": "1700000000 +0000",
    "GIT_CONFIG_NOSYSTEM": "1",
}


def stream(commits=150, files=40):
    """A history for git fast-import: text files that change a little, and one larger binary."""
    parts = []
    for commit in range(commits):
        message = b"commit %d" % commit
        parts.append(
            b"commit refs/heads/main\ncommitter A <a@example.invalid> %d +0000\ndata %d\n%s\n"
            % (1600000000 + commit, len(message), message)
        )
        for file in range(files):
            if commit and (commit + file) % 5:
                continue
            lines = [
                b"line %d of %d: %d\n"
                % (i, file, (i * 7919 + file) * (commit if i % 37 == 0 else 1))
                for i in range(50 + file * 10)
            ]
            body = b"".join(lines)
            parts.append(
                b"M 100644 inline dir%d/file%d.txt\ndata %d\n" % (file % 6, file, len(body))
            )
            parts.append(body + b"\n")
        if commit % 30 == 0:
            body = bytes((i * i + commit) >> 3 & 255 for i in range(200000))
            parts.append(b"M 100644 inline big.bin\ndata %d\n" % len(body))
            parts.append(body + b"\n")
    return b"".join(parts)


def history(git, folder, data, preload):
    """Makes the repository and works on it; returns what names its whole content."""
    os.mkdir(folder)
    env = environment(preload, HOME=folder, **NAMES)

    def call(*words, **kwargs):
        argv = [git, "-c", "init.defaultBranch=main", "-c", "pack.threads=4"] + list(words)
        return run(argv, env=env, cwd=folder, **kwargs).ok()

    call("init", "-q", "--bare", "origin.git")
    call("-C", "origin.git", "fast-import", "--quiet", data=data)
    clone = ["clone", "-q", "--no-local", "file://" + os.path.join(folder, "origin.git"), "work"]
    if preload:
        prove_command([git, "-c", "pack.threads=4"] + clone, env=env, cwd=folder)
    else:
        call(*clone)
    for i in range(5):
        with open(os.path.join(folder, "work", "dir1", f"new{i}.txt"), "w") as file:
            file.write(f"{i}\n" * 2000)
        call("-C", "work", "add", "-A")
        call("-C", "work", "commit", "-q", "-m", f"more {i}")
    call("-C", "work", "gc", "-q", "--aggressive", "--prune=now")
    fsck = call("-C", "work", "fsck", "--full", "--strict")
    check(b"error" not in fsck.err and b"missing" not in fsck.out, f"fsck: {fsck.err!r}")
    call("-C", "work", "push", "-q", "origin", "main")
    log = call("-C", "work", "log", "--stat", "--format=%H %T %s").out
    grep = call("-C", "work", "grep", "-n", "-E", "line [0-9]*7 of 1[0-9]:").out
    blame = call("-C", "work", "blame", "--porcelain", "dir1/file1.txt").out
    return log, grep, blame


def main(work):
    git = need("git", "git")
    data = stream()
    plain = history(git, os.path.join(work, "plain"), data, False)
    served = history(git, os.path.join(work, "served"), data, True)
    for name, left, right in zip(("log", "grep", "blame"), served, plain, strict=True):
        check(len(right) > 1000, f"{name} says too little")
        same(name, left == right, True)


run_test(main)
