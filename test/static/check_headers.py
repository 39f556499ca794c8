#!/usr/bin/env python3
"""Fails when a header needs another header before it.

usage: check_headers.py ROOT COMPILE_COMMANDS

Each header is compiled alone and twice in a row, with the flags of a source
file of its folder. So a header of hlthunk_shim is compiled without UCX's
private headers, and as C where the folder's sources are C.
"""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

from common import read_compilations, report, tree_files

JOBS = 2
DEADLINE = 60


def read_flags(root, database):
    """Compiler and flags by folder, of the source file in it that is compiled
    with most folders to look for headers in."""
    flags = {}
    def key(compilation):
        sources, words, _ = compilation
        return (-sum(word.startswith("-I") for word in words), sources)

    for sources, words, directory in sorted(read_compilations(root, database),
                                            key=key):
        # What is precompiled would come before the header.
        for option in ("-o", "-c", "-MF", "-MT", "-include"):
            if option in words:
                at = words.index(option)
                del words[at:at + 2]
        for option in ("-MD", "-Winvalid-pch"):
            if option in words:
                words.remove(option)
        for source in sources:
            flags.setdefault(os.path.dirname(source), (words, directory))
    return flags


def find_flags(flags, folder):
    """Of the folder itself, else of the next one around it or in it."""
    while folder:
        if folder in flags:
            return flags[folder]
        inside = [f for f in flags if f.startswith(folder + "/")]
        if inside:
            return flags[min(inside)]
        folder = os.path.dirname(folder)
    return None


def compile_header(root, flags, name):
    found = find_flags(flags, os.path.dirname(name))
    if found is None:
        return f"{name}: no source file near it is compiled"
    words, directory = found
    is_c = words[0].endswith(("cc", "clang")) and "-std=gnu11" in words
    path = os.path.join(root, name)
    result = subprocess.run(
        words + ["-fsyntax-only", "-x", "c" if is_c else "c++",
                 "-"],
        input=f'#include "{path}"\n#include "{path}"\n', cwd=directory,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        timeout=DEADLINE, check=False)
    if result.returncode != 0:
        return f"{name}: does not compile alone:\n{result.stdout}"
    return None


def main(root, database):
    flags = read_flags(root, database)
    headers = [name for name in tree_files(root) if name.endswith(".h")]
    with ThreadPoolExecutor(JOBS) as pool:
        results = pool.map(lambda name: compile_header(root, flags, name),
                           headers)
        problems = [result for result in results if result is not None]
    if not headers:
        problems.append("no header was found")
    report(problems, f"{len(headers)} headers compile alone")


if __name__ == "__main__":
    main(os.path.abspath(sys.argv[1]), sys.argv[2])
