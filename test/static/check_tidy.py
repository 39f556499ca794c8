#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Fails when clang-tidy objects to a source file of the project.

usage: check_tidy.py ROOT BUILD_DIRECTORY

It looks at what the compiler does: at several sources in one go where these are
one compilation. What it had nothing against is not looked at again until
something that it depends on changes: its text and that of everything it
includes, how it is compiled, the checks, or clang-tidy. What is known is in
BUILD_DIRECTORY/tidy-cache, an empty file for each.
"""

import concurrent.futures
import functools
import hashlib
import os
import re
import shutil
import sys

from common import read_compilations, report, run, tree_files

TOOL = "clang-tidy-14"


def read_commands(root, build):
    """Name, file, flags, object and working directory of each compilation of
    sources under src/. The same one for two libraries is one."""
    wanted = {name for name in tree_files(root)
              if name.startswith("src/") and name.endswith(".cc")}
    commands = {}
    seen = set()
    for sources, words, directory in read_compilations(
            root, os.path.join(build, "compile_commands.json")):
        if not wanted.issuperset(sources):
            continue
        seen.update(sources)
        at = words.index("-o")
        output = words[at + 1]
        del words[at:at + 2]
        # The compiler, and before it perhaps a launcher; -c FILE is last.
        first = next(i for i, word in enumerate(words)
                     if word.startswith("-"))
        flags = [word for word in words[first:-2]
                 if not re.fullmatch(r"-D\w+_EXPORTS", word)]
        name = " ".join(sources)
        commands.setdefault((name, tuple(flags)),
                            (name, words[-1], flags, output, directory))
    return list(commands.values()), sorted(wanted - seen)


def read_dependencies(build):
    """What each object of the build was made from, by the build's own notes.
    Objects that are older than one of these are left out."""
    notes = run(["ninja", "-C", build, "-t", "deps"]).stdout
    found = {}
    for block in notes.split("\n\n"):
        lines = block.strip().splitlines()
        if lines and lines[0].endswith("(VALID)"):
            output = lines[0].split(": #deps")[0]
            found[output] = [os.path.join(build, line.strip())
                             for line in lines[1:]]
    return {output: files for output, files in found.items()
            if is_newer(os.path.join(build, output), files)}


def is_newer(output, files):
    try:
        made = os.path.getmtime(output)
        return all(time_of(file) <= made for file in files)
    except OSError:
        return False


@functools.cache
def time_of(file):
    return os.path.getmtime(file)


@functools.cache
def digest_of(file):
    with open(file, "rb") as content:
        return hashlib.sha256(content.read()).hexdigest()


def make_key(basis, command, dependencies):
    name, _, flags, output, _ = command
    if output not in dependencies:
        return None
    parts = [basis, name, *flags]
    for file in sorted(dependencies[output]):
        parts += [file, digest_of(file)]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def main(root, build):
    tool = shutil.which(TOOL)
    if tool is None:
        sys.exit(f"{TOOL} is missing (apt-get install {TOOL})")
    commands, missing = read_commands(root, build)
    if not commands:
        sys.exit("no source file was found")

    cache = os.path.join(build, "tidy-cache")
    os.makedirs(cache, exist_ok=True)
    version = run([tool, "--version"]).stdout
    settings = [os.path.join(root, folder, ".clang-tidy")
                for folder in ("", "src")]
    basis = version + "".join(map(digest_of, filter(os.path.exists, settings)))
    dependencies = read_dependencies(build)
    keys = [make_key(basis, command, dependencies) for command in commands]
    known = set(os.listdir(cache))

    def check(command, key):
        name, file, flags, _, directory = command
        if key in known:
            return None
        result = run([tool, "--quiet", file, f"--config-file={settings[-1]}",
                      "--", *flags], timeout=None, cwd=directory)
        if result.returncode != 0:
            return f"{name}:\n{result.stdout}"
        if key is not None:
            with open(os.path.join(cache, key), "wb"):
                pass
        return None

    for key in known - set(keys):
        os.remove(os.path.join(cache, key))
    problems = [f"{name}: is not compiled" for name in missing]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        problems += [text for text in pool.map(check, commands, keys) if text]
    unchanged = sum(key in known for key in keys)
    report(problems, f"clang-tidy has nothing against {len(commands)} "
           f"compilations, {unchanged} of them as before")


if __name__ == "__main__":
    main(*(os.path.abspath(argument) for argument in sys.argv[1:3]))
