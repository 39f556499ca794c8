#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Fails when check_tidy.py looks at too much or too little again.

A clang-tidy of its own writes down what it is asked.
"""

import os
import pathlib
import stat
import sys
import tempfile

from common import report, run

CHECK = pathlib.Path(__file__).resolve().parent / "check_tidy.py"

TOOL = """#!/bin/sh
case "$*" in
--version) echo "$VERSION" ;;
*) echo "$2" >>"$ASKED"; ! grep -q wrong "$2" ;;
esac
"""
NINJA = """rule cc
  command = g++ -Iinclude -MD -MF $out.d -o $out -c $in
  deps = gcc
  depfile = $out.d
build a.o: cc ../src/a.cc
build b.o: cc ../src/b.cc
"""


class tree:
    def __init__(self, root):
        self.root = pathlib.Path(root)
        self.build = self.root / "build"
        self.asked = self.root / "asked"
        self.version = "1"
        (self.root / "src").mkdir()
        (self.root / "bin").mkdir()
        self.build.mkdir()
        self.write("src/a.h", "")
        self.write("src/a.cc", '#include "a.h"\n')
        self.write("src/b.cc", "")
        self.write(".clang-tidy", "")
        self.write("build/build.ninja", NINJA)
        self.set_flags("")
        tool = self.root / "bin/clang-tidy-14"
        tool.write_text(TOOL)
        tool.chmod(tool.stat().st_mode | stat.S_IXUSR)

    def write(self, name, text):
        (self.root / name).write_text(text)

    def set_flags(self, flags):
        self.write("build/compile_commands.json", "[" + ",".join(
            f'{{"directory": "{self.build}", "file": "{self.root}/src/{n}.cc",'
            f' "command": "g++ {flags} -o {n}.o -c {self.root}/src/{n}.cc"}}'
            for n in "ab") + "]")

    def check(self, make=True):
        """The exit code, and the files that clang-tidy was asked about."""
        if make:
            run(["ninja", "-C", self.build]).check_returncode()
        self.asked.write_text("")
        result = run([sys.executable, "-B", CHECK, self.root, self.build],
                     env={**os.environ, "ASKED": str(self.asked),
                          "VERSION": self.version,
                          "PATH": f"{self.root}/bin:{os.environ['PATH']}"})
        names = [pathlib.Path(line).name
                 for line in self.asked.read_text().split()]
        return result.returncode, sorted(names)


def main():
    failed = []

    def expect(what, result, code, names):
        if result != (code, names):
            failed.append(f"{what}: {result} instead of {(code, names)}")

    with tempfile.TemporaryDirectory() as root:
        one = tree(root)
        expect("first", one.check(), 0, ["a.cc", "b.cc"])
        expect("again", one.check(), 0, [])
        one.write("src/a.h", "int changed;\n")
        expect("header, not built", one.check(make=False), 0, ["a.cc"])
        expect("header", one.check(), 0, ["a.cc"])
        one.write("src/b.cc", "int wrong;\n")
        expect("objection", one.check(), 1, ["b.cc"])
        expect("objection again", one.check(), 1, ["b.cc"])
        one.write("src/b.cc", "")
        expect("mended", one.check(), 0, ["b.cc"])
        one.set_flags("-DMORE")
        expect("flags", one.check(), 0, ["a.cc", "b.cc"])
        one.write(".clang-tidy", "Checks: '*'\n")
        expect("checks", one.check(), 0, ["a.cc", "b.cc"])
        one.version = "2"
        expect("version", one.check(), 0, ["a.cc", "b.cc"])
        expect("at last", one.check(), 0, [])
        one.write("src/c.cc", "")
        expect("not compiled", one.check(), 1, [])
    report(failed, "what changed is looked at again, and nothing else")


if __name__ == "__main__":
    main()
