#!/usr/bin/env python3
"""Fails when an include goes against the direction of the layers.

usage: check_includes.py ROOT

    hlthunk_shim <- base <- copy, ipc <- module

hlthunk_shim knows no UCX; copy and ipc do not know each other; nothing includes
the emulator, except tests and benches, which include its hooks.
"""

import os
import re
import sys

from common import is_source, report, tree_files

SHIM = "src/hlthunk_shim/"
EMULATOR = SHIM + "emu/"
HOOKS = EMULATOR + "hlthunk_emu.h"
GAUDI = "src/uct/gaudi/"
BASE, COPY, IPC = GAUDI + "base/", GAUDI + "copy/", GAUDI + "ipc/"

# What the files of a folder may include of the project. The first folder that
# a file is in decides.
ALLOWED = [
    (EMULATOR, [EMULATOR, SHIM + "hlthunk_abi.h", SHIM + "lin_dma.h",
                SHIM + "background_thread.h", SHIM + "brief_lock.h",
                SHIM + "fork_handlers.h", SHIM + "placement.h"]),
    (SHIM, [SHIM]),
    (BASE, [BASE, SHIM]),
    (COPY, [COPY, BASE, SHIM]),
    (IPC, [IPC, BASE, SHIM]),
    (GAUDI, [GAUDI, SHIM]),
    ("src/preload/", ["src/preload/"]),
    ("src/launcher/", ["src/launcher/", SHIM, "src/preload/tls_alias.h",
                       BASE + "visible_cards.h"]),
    ("src/", ["src/"]),
    ("examples/", ["examples/"]),
    ("bench/", ["bench/", "src/", "examples/gaudi_memory.h"]),
    ("test/", ["test/", "src/", "examples/gaudi_memory.h"]),
]

# Folders whose files know no UCX.
WITHOUT_UCX = [SHIM, "src/preload/", "src/launcher/"]
UCX = re.compile(r"^(uc[mpst]/|tools/perf/|config\.h$)")

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')


def first_folder(name, folders):
    return next((f for f in folders if name.startswith(f)), None)


def resolve(root, name, quote, target):
    """The project's file that an include names, if any."""
    places = [os.path.dirname(name)] if quote == '"' else []
    for place in places + ["src", "test", "bench", "examples"]:
        path = os.path.normpath(os.path.join(place, target))
        if os.path.isfile(os.path.join(root, path)):
            return path
    return None


def is_emulator(name):
    return name.startswith(EMULATOR)


def check_include(root, name, quote, target):
    """Why a file must not include another; None when it may."""
    found = resolve(root, name, quote, target)
    if found is None:
        if quote == '"':
            return "is not in the tree; write <> around other people's headers"
        if first_folder(name, WITHOUT_UCX) and UCX.match(target):
            return "is UCX's, and this folder knows no UCX"
        return None

    allowed = next((a for folder, a in ALLOWED if name.startswith(folder)),
                   [""])
    if not first_folder(found, allowed):
        return "is against the direction of the layers"
    if is_emulator(found) and not is_emulator(name):
        in_tests = first_folder(name, ["test/", "bench/"])
        if not (in_tests and found == HOOKS):
            return "is the emulator's"
    return None


def main(root):
    problems = []
    checked = 0
    for name in tree_files(root):
        if not is_source(name):
            continue
        checked += 1
        with open(os.path.join(root, name), encoding="utf-8") as file:
            for number, line in enumerate(file, 1):
                match = INCLUDE.match(line)
                if match is None:
                    continue
                why = check_include(root, name, *match.groups())
                if why is not None:
                    problems.append(f"{name}:{number}: {match[2]} {why}")
    if checked == 0:
        problems.append("no source file was found")
    report(problems, f"{checked} files include only what they may")


if __name__ == "__main__":
    main(sys.argv[1])
