#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Fails on files that do not belong in the tree.

usage: check_tree.py ROOT

Large files; tests that are skipped by anything but test/common/ability.h, which
asks the system, and test/common/needs.cc, what tests need of their
cards; names of the emulator where it is to be a driver
library as any other; variables that libraries read without secure_getenv
(programs may have more rights than who starts them, and the launcher is no
library); files without a tag of their license in
their first two lines, unless REUSE.toml speaks for them.
"""

import os
import re
import sys
import tempfile
import tomllib

from common import is_source, read, report, run, tree_files

LARGEST = 512 * 1024
TAG = "SPDX-License-Identifier: BSD-3-Clause"
EMULATOR = "src/hlthunk_emulator/"
EMULATORS = re.compile("hlthunk_emu_|memfd:hlthunk")
GETENV = re.compile(r"(?<!secure_)\bgetenv\b")
SKIP = "GTEST_" + "SKIP"
SKIPS = ("test/common/ability.h", "test/common/needs.cc")


def find_licensed(root):
    """What REUSE.toml speaks for: names of files."""
    tables = tomllib.loads(read(root, "REUSE.toml"))["annotations"]
    return re.compile("|".join(
        re.escape(path).replace(r"\*\*", ".*").replace(r"\*", "[^/]*")
        for table in tables if "SPDX-License-Identifier" in table
        for path in table["path"]))


def check_file(root, name, licensed):
    path = os.path.join(root, name)
    size = os.path.getsize(path)
    if size > LARGEST:
        yield f"{name}: {size} bytes"
        return
    with open(path, "rb") as file:
        text = file.read().decode("utf-8", errors="replace")
    lines = text.splitlines()
    if (not licensed.fullmatch(name) and
            not any(TAG in line for line in lines[:2])):
        yield f"{name}: no {TAG}"
    for number, line in enumerate(lines, 1):
        if (name.startswith("src/") and not name.startswith(EMULATOR) and
                EMULATORS.search(line)):
            yield f"{name}:{number}: a name of the emulator"
        if (name.startswith("src/") and is_source(name) and
                not name.startswith("src/launcher/") and GETENV.search(line)):
            yield f"{name}:{number}: getenv in a library"
        if SKIP in line and name not in SKIPS:
            yield f"{name}:{number}: {SKIP} outside {SKIPS[0]}"


def check_left_out(root):
    """What git was not told of is none of the tree."""
    with tempfile.TemporaryDirectory() as place:
        for name in ("kept.c", ".gitignore"):
            with open(os.path.join(place, name), "w", encoding="utf-8") as file:
                file.write(read(root, ".gitignore"))
        for command in ("true", "git init -q && git add . && touch new.c"):
            run(["sh", "-c", command], cwd=place).check_returncode()
            if (found := tree_files(place)) != [".gitignore", "kept.c"]:
                yield f"after '{command}' files of the tree are {found}"


def check_address(root):
    """Packages have one address of the maintainers, to which SECURITY.md
    refers: that of debian/control."""
    addresses = {re.search(r"<(\S+@\S+)>", read(root, f"debian/{name}"))[1]
                 for name in ("control", "changelog")}
    if len(addresses) != 1:
        yield f"debian: several addresses of maintainers: {addresses}"


def main(root):
    names = tree_files(root)
    problems = [] if names else ["no file was found"]
    problems += check_left_out(root)
    problems += check_address(root)
    licensed = find_licensed(root)
    for name in names:
        problems += check_file(root, name, licensed)
    report(problems, f"{len(names)} files belong in the tree")


if __name__ == "__main__":
    main(os.path.abspath(sys.argv[1]))
