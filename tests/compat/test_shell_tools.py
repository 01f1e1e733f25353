#!/usr/bin/env python3
"""The tools of a shell script: sort, grep, sed, awk, tar, gzip, find, and many short starts of
`true`. Output and archives must be those made without the library."""

import os
import random

from compat import check, environment, need, prove_command, run, run_both, run_test, same


def main(work):
    tools = {
        name: need(name, package)
        for name, package in (
            ("sort", "coreutils"),
            ("true", "coreutils"),
            ("grep", "grep"),
            ("tar", "tar"),
            ("gzip", "gzip"),
            ("find", "findutils"),
            ("sed", "sed"),
            ("awk", "mawk"),
            ("bash", "bash"),
            ("xargs", "findutils"),
        )
    }
    chance = random.Random(7)
    words = [f"w{chance.getrandbits(28):x}" for _ in range(30000)]
    with open("lines.txt", "w") as file:
        for i in range(200000):
            file.write("{} {} {}\n".format(chance.choice(words), i, "y" * (i % 61)))
    for top in range(20):
        for name in range(60):
            folder = os.path.join("files", f"d{top}", "e%s" % (name % 7))
            os.makedirs(folder, exist_ok=True)
            with open(os.path.join(folder, f"f{name}.txt"), "w") as file:
                file.write(" ".join(chance.choices(words, k=chance.randrange(800))))

    run_both([tools["sort"], "--parallel=2", "-k1,1", "-k2,2nr", "lines.txt"])
    run_both([tools["sort"], "-S", "1M", "-T", work, "-u", "-k3", "lines.txt"])
    run_both([tools["grep"], "-n", "-E", "w[0-9a-f]*(ab|cd)+[^ ]* [0-9]*7 y{3,9}$", "lines.txt"])
    run_both([tools["grep"], "-r", "-c", "w1[0-9a-f]*2", "files"])
    if run([tools["grep"], "-P", "x", "lines.txt"], preload=False).status in (0, 1):
        run_both([tools["grep"], "-o", "-P", r"(?<=w)(\d+)(?=[a-f]).*?(y+)$", "lines.txt"])
    run_both([tools["sed"], "-E", r"s/(w[0-9]+)([a-f]*)/\2-\1/g; N; P; D", "lines.txt"])
    run_both(
        [
            tools["awk"],
            "{ n[$1] += $2; s[$2 % 100] = s[$2 % 100] $3 } END { for (i = 0; "
            'i < 100; i++) print i, length(s[i]); print n["w1"] + 0, length(n) }',
            "lines.txt",
        ]
    )
    run_both([tools["find"], "files", "-name", "*7.txt", "-size", "+1k", "-printf", "%p %s\n"])
    run_both(
        [
            tools["bash"],
            "-c",
            "declare -A a; for i in {1..20000}; do a[k$i]=$i; done; t=0; "
            'for k in "${!a[@]}"; do t=$((t + a[$k])); done; echo $t ${#a[@]} $(echo {1..999})',
        ]
    )

    # tar starts gzip itself; both are served, since the environment is handed on.
    pack = [tools["tar"], "--sort=name", "--mtime=@1700000000", "-I", "gzip -n", "-cf"]
    run(pack + ["plain.tgz", "files"], preload=False).ok()
    prove_command(pack + ["served.tgz", "files"])
    with open("plain.tgz", "rb") as left, open("served.tgz", "rb") as right:
        same("archive", left.read() == right.read(), True)
    os.mkdir("out")
    run([tools["tar"], "-C", "out", "-xzf", "served.tgz"]).ok()
    run(["diff", "-r", "files", "out/files"], preload=False).ok()
    run([tools["gzip"], "-k", "-9", "lines.txt"]).ok()
    run([tools["gzip"], "-t", "lines.txt.gz"]).ok()

    script = "find files -name '*.txt' -print0 | xargs -0 cat | tr ' ' '\\n' | sort | uniq -c"
    script += " | sort -rn | head -100; for i in {1..300}; do /bin/true || exit 1; done"
    served = run([tools["bash"], "-c", script], env=environment()).ok()
    plain = run([tools["bash"], "-c", script], preload=False).ok()
    same("pipeline", served.out, plain.out)
    check(len(served.out) > 500, "the pipeline says too little")
    prove_command([tools["bash"], "-c", script.replace("300", "5")])


run_test(main)
