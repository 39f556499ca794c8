# SPDX-License-Identifier: BSD-3-Clause
"""What the checks of the tree share."""

import fnmatch
import json
import os
import re
import shlex
import subprocess
import sys


def tree_files(root):
    """Files of the project: what git tracks; without git all but what .gitignore
    names."""
    listed = subprocess.run(
        ["git", "-C", root, "ls-files", "-z"],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False)
    names = [os.fsdecode(name) for name in listed.stdout.split(b"\0")]
    if not listed.stdout:
        ignored = [".git"] + [line.strip("/") for line in
                              read(root, ".gitignore").splitlines()]

        def others(found):
            return [name for name in found
                    if not any(fnmatch.fnmatch(name, one) for one in ignored)]

        for folder, folders, files in os.walk(root):
            folders[:] = others(folders)
            names += [os.path.relpath(os.path.join(folder, name), root)
                      for name in others(files)]
    return sorted(name for name in set(names)
                  if name and os.path.isfile(os.path.join(root, name)))


def read(*path):
    with open(os.path.join(*path), encoding="utf-8") as file:
        return file.read()


def read_compilations(root, database):
    """What CMake's list of compilations has: sources, words of the command, and
    working directory of each. Several sources are one compilation where CMake
    has made a file that includes them all."""
    for entry in json.loads(read(database)):
        sources = [entry["file"]]
        if re.fullmatch(r"unity_\w+_cxx\.cxx", os.path.basename(sources[0])):
            sources = re.findall(r'^#include "(.*)"$', read(sources[0]), re.M)
        sources = [os.path.relpath(source, root) for source in sources]
        yield sources, shlex.split(entry["command"]), entry["directory"]


def run(command, timeout=120, **options):
    """What became of a command, with all that it printed."""
    return subprocess.run(command, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, timeout=timeout,
                          check=False, **options)


def is_source(name):
    return name.endswith((".c", ".cc", ".h", ".def"))


def report(problems, success):
    """Print the problems and exit accordingly."""
    for problem in problems:
        print(problem)
    if problems:
        sys.exit(f"{len(problems)} problem(s)")
    print(success)
