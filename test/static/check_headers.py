#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Fails when a header needs another header before it.

usage: check_headers.py ROOT COMPILE_COMMANDS

Each header is compiled alone, with the flags of a source file of its folder: one
of hlthunk_shim without UCX's private headers, and as C where the folder's
sources are C. A header that another one, or the first source of a compilation
of the build, begins with has been compiled alone there. Each has #pragma once
or a guard, so that it can come twice.
"""

import os
import re
import sys
from concurrent.futures import ThreadPoolExecutor

from common import read, read_compilations, report, run, tree_files

JOBS = 2


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


def begins_with(root, name):
    """The header of the tree that comes before all else in a file, if any."""
    text = re.sub(r"/\*.*?\*/", "", read(root, name), flags=re.S)
    found = re.match(r'\s*(?:#pragma once\s+)?#include "([^"]+)"', text)
    places = [os.path.dirname(name), "src", "test", "bench", "examples"]
    paths = [os.path.join(place, found.group(1)) for place in places
             if found is not None]
    return next((path for path in paths
                 if os.path.isfile(os.path.join(root, path))), None)


def seen_alone(root, database, headers):
    """Headers that were compiled with nothing before them."""
    sources = [compilation[0][0]
               for compilation in read_compilations(root, database)
               if "-include" not in compilation[1]
               and os.path.isfile(os.path.join(root, compilation[0][0]))]
    return {begins_with(root, name) for name in headers + sources
            if name.endswith((".cc", ".h"))}


def is_c(words):
    return words[0].endswith(("cc", "clang")) and "-std=gnu11" in words


def compile_header(root, flags, name):
    found = find_flags(flags, os.path.dirname(name))
    if found is None:
        return f"{name}: no source file near it is compiled"
    words, directory = found
    path = os.path.join(root, name)
    result = run(words + ["-fsyntax-only", "-x", "c" if is_c(words) else "c++",
                          "-"], input=f'#include "{path}"\n', cwd=directory)
    if result.returncode != 0:
        return f"{name}: does not compile alone:\n{result.stdout}"
    return None


def main(root, database):
    flags = read_flags(root, database)
    headers = [name for name in tree_files(root) if name.endswith(".h")]
    seen = seen_alone(root, database, headers)
    alone = []
    problems = []
    for name in headers:
        if not re.search(r"^#pragma once$|^#ifndef (\w+)\n#define \1$",
                         read(root, name), re.M):
            problems.append(f"{name}: cannot come twice")
        found = find_flags(flags, os.path.dirname(name))
        if name not in seen or (found is not None and is_c(found[0])):
            alone.append(name)
    with ThreadPoolExecutor(JOBS) as pool:
        results = pool.map(lambda name: compile_header(root, flags, name),
                           alone)
        problems += [result for result in results if result is not None]
    if not headers:
        problems.append("no header was found")
    report(problems, f"{len(headers)} headers compile alone, {len(alone)} of "
           "them here")


if __name__ == "__main__":
    main(os.path.abspath(sys.argv[1]), sys.argv[2])
