#!/usr/bin/env python3
"""gcc and g++ compile and link under the library: object and program must be byte for byte those
made without it."""

import os
import shutil

from compat import need, prove_command, run, run_test, same

CXX = r"""
#include <algorithm>
#include <iostream>
#include <map>
#include <memory>
#include <regex>
#include <string>
#include <vector>

template <int N> struct depth { static constexpr int value = depth<N - 1>::value + 1; };
template <> struct depth<0> { static constexpr int value = 0; };

int main()
{
    std::map<std::string, std::vector<int>> index;
    const std::string text = "one two three two one seven seven one";
    const std::regex word("(\\w+)");
    int at = 0;
    for (std::sregex_iterator i(text.begin(), text.end(), word), end; i != end; ++i) {
        index[(*i)[1]].push_back(at++);
    }
    for (const auto &entry : index) {
        std::cout << entry.first;
        for (int place : entry.second) {
            std::cout << ' ' << place;
        }
        std::cout << '\n';
    }
    auto shared = std::make_shared<std::string>(std::to_string(depth<400>::value));
    std::cout << *shared << std::endl;
    return 0;
}
"""
EXPECTED = b"one 0 4 7\nseven 5 6\nthree 2\ntwo 1 3\n400\n"

C = """
#include <stdio.h>
#define A(n) static int f##n(int x) { return x * n + (x >> (n & 7)); }
#define B(n) A(n##0) A(n##1) A(n##2) A(n##3) A(n##4) A(n##5) A(n##6) A(n##7) A(n##8) A(n##9)
#define D(n) B(n##0) B(n##1) B(n##2) B(n##3) B(n##4) B(n##5) B(n##6) B(n##7) B(n##8) B(n##9)
D(1) D(2) D(3)
int main(void) { printf("%d\\n", f100(7) + f399(3)); return 0; }
"""


def run_plain(argv, **kwargs):
    return run(argv, preload=False, **kwargs).ok()


def read(path):
    with open(path, "rb") as file:
        return file.read()


def build(compiler, options, source, program, runner):
    """Compiles and links in one command, in a folder of one name, which debug information holds."""
    if os.path.isdir("build"):
        shutil.rmtree("build")
    os.mkdir("build")
    name = os.path.basename(source)
    shutil.copy(source, "build")
    argv = [compiler] + options + ["-save-temps=obj", "-o", "program", name]
    runner(argv, cwd="build", timeout=60)
    shutil.copy("build/program", program)
    stem = "program-" + os.path.splitext(name)[0] + ".o"
    return read(os.path.join("build", stem)), read(program)


def main(work):
    gcc, gxx = need("gcc", "gcc"), need("g++", "g++")
    for compiler, options, name, source in (
        (gxx, ["-std=c++17", "-O1"], "words.cpp", CXX),
        (gcc, ["-O2", "-g"], "many.c", C),
    ):
        path = os.path.join(work, name)
        with open(path, "w") as file:
            file.write(source)
        plain, served = (os.path.join(work, kind + "." + name) for kind in ("plain", "served"))
        without = build(compiler, options, path, plain, run_plain)
        with_it = build(compiler, options, path, served, prove_command)
        same(name + ": object", with_it[0] == without[0], True)
        same(name + ": program", with_it[1] == without[1], True)
        out = run([served], preload=True).ok().out
        same(name + ": output", out, run([plain], preload=False).ok().out)
        if name == "words.cpp":
            same("words", out, EXPECTED)
            prove_command([served])


run_test(main)
