"""The snippets that hakmem.programs.snippets runs, each in a Python of its own.

    snippets_code.py SNIPPET SEED REPEATS

Uses the standard library alone. A snippet takes a seed and returns how many operations it did, and
bytes that are the same each time it does them. Prints one line of JSON and waits for the end of its
input, so that its memory can be looked at.
"""

import ast
import hashlib
import json
import os
import pickle
import random
import re
import sys
import time


def documents(chance, count):
    return [
        {
            "id": i,
            "name": f"name-{chance.randrange(10**6)}",
            "tags": [f"tag{chance.randrange(100)}" for _ in range(chance.randrange(8))],
            "weight": chance.random(),
            "nested": {f"k{j}": [j, str(j), None, j % 2 == 0] for j in range(chance.randrange(6))},
        }
        for i in range(count)
    ]


def run_json(seed):
    """documents to JSON and back"""
    made = documents(random.Random(seed), 2500)
    text = json.dumps(made)
    if json.loads(text) != made:
        raise ValueError("a document changed on its way")
    lines = [json.dumps(one, indent=2) for one in made[::5]]
    return len(made), text.encode() + lines[-1].encode()


class Variable:
    def __init__(self, value):
        self.value = value
        self.users = []


class Sum:
    """A constraint: target = left + right, modulo a prime."""

    def __init__(self, left, right, target):
        self.left, self.right, self.target = left, right, target
        left.users.append(self)
        right.users.append(self)

    def fire(self):
        value = (self.left.value + self.right.value) % 1000003
        changed = value != self.target.value
        self.target.value = value
        return changed


def run_objects(seed):
    """a graph of constraints is built, solved step by step and dropped"""
    chance = random.Random(seed)
    variables = [Variable(chance.randrange(1000)) for _ in range(50)]
    for _ in range(6000):
        target = Variable(0)
        Sum(chance.choice(variables), chance.choice(variables[-40:]), target).fire()
        variables.append(target)
    fired = 0
    for _ in range(5):
        start = chance.choice(variables[:200])
        start.value += 1
        waiting = list(start.users)
        while waiting and fired < 30000:
            constraint = waiting.pop()
            fired += 1
            if constraint.fire():
                waiting.extend(constraint.target.users)
    return len(variables) + fired, repr([one.value for one in variables[::7]]).encode()


def run_regex(seed):
    """regular expressions over generated text"""
    chance = random.Random(seed)
    words = ["".join(chance.choices("abcdeghil", k=chance.randint(1, 9))) for _ in range(500)]
    text = " ".join(
        f"{chance.choice(words)}@{chance.choice(words)}.org {chance.randrange(10**6)}"
        for _ in range(4000)
    )
    mails = re.findall(r"(\w+)@(\w+)\.org", text)
    groups = [found.groupdict() for found in re.finditer(r"(?P<n>\d+) (?P<w>[a-d]\w*)", text)]
    changed = re.sub(r"([aeiou])(\w)", lambda found: found[2] + found[1], text)
    parts = re.split(r"[\s@.]+", changed)
    found = len(mails) + len(groups) + len(parts)
    return found, f"{mails[-1]} {groups[-1]} {len(groups)} {parts[-5:]}".encode() + changed.encode()


def run_churn(seed):
    """lists, dicts, sets and strings that grow and shrink"""
    chance = random.Random(seed)
    table, lists, names = {}, [[] for _ in range(200)], set()
    steps = 40000
    for step in range(steps):
        key = chance.randrange(5000)
        table.setdefault(f"key{key}", []).append((step, str(step)))
        lists[key % 200].append(bytes(key % 700))
        if step % 3 == 0:
            table.pop(f"key{chance.randrange(5000)}", None)
            names.add("x" * (key % 90) + str(step % 4000))
        if step % 1000 == 999:
            lists[chance.randrange(200)].clear()
            names = {name for name in names if len(name) % 7}
    sums = [len(table), len(names), sum(len(part) for each in lists for part in each)]
    return steps, repr([sums, sorted(table)[:20]]).encode()


def run_pickle(seed):
    """documents pickled and unpickled"""
    made = documents(random.Random(seed), 5000)
    text = b""
    for protocol in (2, 5):
        text = pickle.dumps(made, protocol)
        if pickle.loads(text) != made:
            raise ValueError("a document changed on its way")
    return 2 * len(made), text


MODULES = ("argparse", "ast", "inspect", "tarfile", "typing", "subprocess", "zipfile", "_pydecimal")


def run_ast(seed):
    """modules of the standard library parsed and compiled"""
    folder = os.path.dirname(os.__file__)
    names = [os.path.join(folder, name + ".py") for name in MODULES]
    names = [name for name in names if os.path.exists(name)]
    random.Random(seed).shuffle(names)
    lines, text = 0, b""
    for name in names[:4]:
        with open(name, encoding="utf-8") as file:
            source = file.read()
        tree = ast.parse(source)
        nodes = [type(node).__name__ for node in ast.walk(tree)]
        compile(tree, "source.py", "exec")
        lines += source.count("\n")
        text += " ".join(nodes).encode()
    return lines, text


SNIPPETS = {
    "json": run_json,
    "objects": run_objects,
    "regex": run_regex,
    "churn": run_churn,
    "pickle": run_pickle,
    "ast": run_ast,
}


def main():
    name, seed, repeats = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    run = SNIPPETS[name]
    times, results = [], set()
    for _ in range(repeats):
        start = time.perf_counter_ns()
        ops, text = run(seed)
        times.append(time.perf_counter_ns() - start)
        results.add((ops, hashlib.sha256(text).hexdigest()[:16]))
    if len(results) != 1:
        sys.exit("two repeats gave different results")
    ops, digest = results.pop()
    print(json.dumps({"ops": ops, "times_ns": times, "hash": digest}), flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
