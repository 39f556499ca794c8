#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Breaks the source, one fault at a time, and sees whether a test notices.

usage: run.py FOLDER [NAME...]
       run.py --check

FOLDER is made, and has a copy of the tree and its build: a second run goes on
with them. For each fault in mutants.py, or those of these names, it edits the copy,
builds, and runs the tests until one fails twice. Prints a row for each: killed by
which test, or survived. Fails when one survived. It takes some minutes for each.
With --check it only sees whether each fault can still be made.
"""

import filecmp
import os
import re
import shutil
import subprocess
import sys

from mutants import MUTANTS

ROOT = os.path.realpath(os.path.join(os.path.dirname(__file__), "..", ".."))
# Labels of tests, those first that take less time.
LABELS = ["uct|ipc|unit", "kernel", "ucp"]


def run(*command, **options):
    return subprocess.run(command, check=False, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          **options)


def must(*command, **options):
    done = run(*command, **options)
    if done.returncode:
        sys.exit(f"{' '.join(command)}: {done.stdout[-2000:]}")
    return done.stdout


def copy_tree(tree):
    """Bring the copy up to date, without edits."""
    for name in must("git", "-C", ROOT, "ls-files").splitlines():
        source, copy = (os.path.join(at, name) for at in (ROOT, tree))
        if not os.path.exists(copy) or not filecmp.cmp(source, copy, False):
            os.makedirs(os.path.dirname(copy), exist_ok=True)
            shutil.copy(source, copy)


class Edited:
    """A file of the copy with a fault in it, until the end of the block."""

    def __init__(self, tree, mutant):
        self.path = os.path.join(tree, mutant.file)
        self.mutant = mutant
        with open(self.path, encoding="utf-8") as file:
            self.text = file.read()
        count = self.text.count(mutant.old)
        if count != 1:
            sys.exit(f"{mutant.name}: {mutant.file} has its text {count} times,"
                     " not once: write the fault anew")

    def __enter__(self):
        self.write(self.text.replace(self.mutant.old, self.mutant.new))

    def __exit__(self, *_):
        self.write(self.text)

    def write(self, text):
        with open(self.path, "w", encoding="utf-8") as file:
            file.write(text)


def first_failure(build):
    """The test that fails, or None."""
    for label in LABELS:
        tested = run("ctest", "--test-dir", build, "-j",
                     str(2 * os.cpu_count()), "--stop-on-failure",
                     "--repeat", "until-pass:2", "-L", f"^({label})$", "-E", r"^(docs|install)\.")
        failed = re.search(r"Test +#\d+: (\S+) .*\*\*\*(?!Skipped|Not Run)(\w+)",
                           tested.stdout)
        if failed:
            return f"{failed.group(1)} ({failed.group(2)})"
        if tested.returncode:
            sys.exit(f"the tests did not run: {tested.stdout[-2000:]}")
    return None


def judge(tree, build, mutant):
    """What became of it: the test that failed, or None."""
    with Edited(tree, mutant):
        built = run("cmake", "--build", build)
        if built.returncode:
            sys.exit(f"{mutant.name} cannot be built: {built.stdout[-2000:]}")
        return first_failure(build)


def main(arguments):
    if arguments == ["--check"]:
        for mutant in MUTANTS:
            Edited(ROOT, mutant)
        print(f"{len(MUTANTS)} faults can be made")
        return
    if not arguments or arguments[0].startswith("-"):
        sys.exit(__doc__.split("\n\n")[1])
    folder, *names = arguments
    unknown = set(names) - {mutant.name for mutant in MUTANTS}
    if unknown:
        sys.exit(f"there is no fault {', '.join(sorted(unknown))}")
    tree = os.path.join(folder, "tree")
    build = os.path.join(folder, "build")
    os.makedirs(tree, exist_ok=True)
    copy_tree(tree)
    must("cmake", "-S", tree, "-B", build, "-G", "Ninja",
         "-DCMAKE_BUILD_TYPE=RelWithDebInfo", "-DGAUDI_BUILD_BENCH=OFF")
    must("cmake", "--build", build)
    failed = first_failure(build)
    if failed:
        sys.exit(f"without any fault there fails {failed}")
    survived = []
    for mutant in MUTANTS:
        if names and mutant.name not in names:
            continue
        killer = judge(tree, build, mutant)
        print(f"| {mutant.name} | {mutant.fault} | {killer or 'SURVIVED'} |",
              flush=True)
        if not killer:
            survived.append(mutant.name)
    if survived:
        sys.exit(f"survived: {', '.join(survived)}")


if __name__ == "__main__":
    main(sys.argv[1:])
