#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Fails when an include goes against the direction of the rooms, or in a circle.

usage: check_includes.py ROOT

The rooms from the lowest to the highest one, see docs/architecture.md:

    util
    hlthunk_shim: abi, library <- the interface <- hlthunk, synapse <- engine <- discovery
                  <- ports <- report
    base:         ucx <- cards <- memory <- memory/application, transfer
    copy          ipc
    program:      what programs call, above ipc
    module, above all

util and hlthunk_shim know no UCX; copy and ipc do not know each other; nothing
includes the emulator, except tests and benches, which include its hooks, tests
of its parts, the tests' double of the kernel driver, which is linked with it,
and the comparison of its declarations with the driver's.

A header and the source of the same name count as one. None of these may reach
itself through what it includes.
"""

import os
import re
import sys

from common import is_source, read, report, tree_files

UTIL = "src/util/"
SHIM = "src/hlthunk_shim/"
ABI, HLTHUNK, DISCOVERY = SHIM + "abi/", SHIM + "hlthunk/", SHIM + "discovery/"
SYNAPSE, PORTS = SHIM + "synapse/", SHIM + "ports/"
REPORT = SHIM + "report/"
ENGINE, LIBRARY = SHIM + "engine/", SHIM + "library/"
ENGINE_SEAM = ENGINE + "dma_engine.h"
EMULATOR = "src/hlthunk_emulator/"
HOOKS = EMULATOR + "hlthunk_emu.h"
LINKED_WITH_IT = ("test/gtest/emu/", "test/kernel_double/",
                  "test/static/headers/")
GAUDI = "src/uct/gaudi/"
PROGRAM = "src/program/"
BASE, COPY, IPC = GAUDI + "base/", GAUDI + "copy/", GAUDI + "ipc/"
UCX_SEAM, CARDS, MEMORY, TRANSFER = (BASE + room for room in
                                     ("ucx/", "cards/", "memory/", "transfer/"))
APPLICATION = MEMORY + "application/"

DRIVER = [SHIM, ABI, DISCOVERY, PORTS, REPORT, UTIL]

# What the files of a room may include of the project beside their own room. The
# first room that a file is in decides; a folder means its own files only, not
# those in the folders below it, unless the whole tree below it is meant (*).
ALLOWED = [
    (UTIL, []),
    (EMULATOR + "ports/", [EMULATOR, EMULATOR + "driver/", UTIL,
                          ABI + "ports.h", PORTS + "box_maps.h"]),
    (EMULATOR + "driver/", [EMULATOR, EMULATOR + "ports/", UTIL,
                           ABI + "hlthunk.h"]),
    (EMULATOR + "library/", [EMULATOR, EMULATOR + "driver/",
                            ABI + "hlthunk.h"]),
    (EMULATOR + "hbl/", [EMULATOR + "ports/calls.h", ABI + "ports.h"]),
    (EMULATOR, [EMULATOR + "driver/", EMULATOR + "ports/", UTIL, ABI + "hlthunk.h",
                ABI + "lin_dma.h"]),
    (ABI, []),
    (LIBRARY, [UTIL]),
    (HLTHUNK, [SHIM, ABI, LIBRARY, UTIL]),
    (SYNAPSE, [ENGINE_SEAM, ABI, LIBRARY, UTIL]),
    (ENGINE, [SHIM, ABI, HLTHUNK, SYNAPSE, UTIL]),
    (DISCOVERY, [SHIM, ABI, HLTHUNK, SYNAPSE, ENGINE, UTIL]),
    (PORTS, [SHIM, ABI, HLTHUNK, LIBRARY, DISCOVERY, UTIL]),
    (REPORT, [SHIM, ABI, HLTHUNK, DISCOVERY, PORTS, UTIL]),
    (SHIM, [ABI, HLTHUNK, ENGINE_SEAM, UTIL]),
    (UCX_SEAM, [UTIL]),
    (CARDS, [UCX_SEAM] + DRIVER),
    (APPLICATION, [MEMORY, CARDS, UCX_SEAM] + DRIVER),
    (MEMORY, [CARDS, UCX_SEAM] + DRIVER),
    (TRANSFER, [MEMORY, CARDS, UCX_SEAM] + DRIVER),
    (COPY, [TRANSFER, MEMORY, CARDS, UCX_SEAM] + DRIVER),
    (IPC, [TRANSFER, MEMORY, CARDS,
           UCX_SEAM] + DRIVER),
    (PROGRAM, [IPC, TRANSFER, APPLICATION, MEMORY, CARDS, UCX_SEAM] +
     DRIVER),
    (GAUDI, [PROGRAM, COPY, IPC, TRANSFER, APPLICATION, MEMORY, CARDS,
             UCX_SEAM] + DRIVER),
    ("src/loader/", [UTIL + "transport_list.h"]),
    ("src/openmpi/", [PROGRAM + "ucx_gaudi.h", "src/loader/loader.h"]),
    ("src/launcher/", ["src/loader/running_ucx.h"] + DRIVER),
    ("examples/", []),
    ("bench/", ["src/*"]),
    ("test/", ["test/*", "src/*"]),
]

# Folders whose files know no UCX.
WITHOUT_UCX = [UTIL, SHIM, EMULATOR, "src/loader/", "src/launcher/"]
UCX = re.compile(r"^(uc[mpst]/|tools/perf/|config\.h$)")

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')


def resolve(root, name, quote, target):
    """The project's file that an include names, if any."""
    places = [os.path.dirname(name)] if quote == '"' else []
    for place in places + ["src", "test", "bench", "examples"]:
        path = os.path.normpath(os.path.join(place, target))
        if os.path.isfile(os.path.join(root, path)):
            return path
    return None


def is_in(name, place):
    """Whether a file is the place, is right in it, or anywhere below it (*)."""
    if place.endswith("*"):
        return name.startswith(place[:-1])
    return name == place or os.path.dirname(name) + "/" == place


def room_of(name):
    """The room of a file, and what that may include beside itself."""
    return next(((room, allowed) for room, allowed in ALLOWED
                 if name.startswith(room)), ("", []))


def check_include(root, name, quote, target):
    """Why a file must not include another; None when it may."""
    found = resolve(root, name, quote, target)
    if found is None:
        if quote == '"':
            return "is not in the tree; write <> around other people's headers"
        if name.startswith(tuple(WITHOUT_UCX)) and UCX.match(target):
            return "is UCX's, and this folder knows no UCX"
        return None

    room, allowed = room_of(name)
    if not any(is_in(found, place) for place in [room] + allowed):
        return "is against the direction of the rooms"
    if found.startswith(EMULATOR) and not name.startswith((EMULATOR,) +
                                                          LINKED_WITH_IT):
        if not (name.startswith(("test/", "bench/")) and found == HOOKS):
            return "is the emulator's"
    return None


def find_circles(edges):
    """Groups of nodes that reach each other (Tarjan's algorithm)."""
    order, lowest, stack, circles = {}, {}, [], []

    def visit(node):
        order[node] = lowest[node] = len(order)
        stack.append(node)
        for target in sorted(edges.get(node, ())):
            if target not in order:
                visit(target)
                lowest[node] = min(lowest[node], lowest[target])
            elif target in stack:
                lowest[node] = min(lowest[node], order[target])
        if lowest[node] == order[node]:
            group = stack[stack.index(node):]
            del stack[stack.index(node):]
            if len(group) > 1:
                circles.append(sorted(group))

    for node in sorted(edges):
        if node not in order:
            visit(node)
    return circles


def main(root):
    problems = []
    edges = {}
    checked = 0
    for name in tree_files(root):
        if not is_source(name):
            continue
        checked += 1
        for number, line in enumerate(read(root, name).splitlines(), 1):
            match = INCLUDE.match(line)
            if match is None:
                continue
            why = check_include(root, name, *match.groups())
            if why is not None:
                problems.append(f"{name}:{number}: {match[2]} {why}")
            found = resolve(root, name, *match.groups())
            # Between rooms the direction alone forbids circles.
            if (found is not None and name.startswith("src/") and
                    room_of(found) == room_of(name)):
                edges.setdefault(os.path.splitext(name)[0], set()).add(
                    os.path.splitext(found)[0])
    for circle in find_circles(edges):
        problems.append(f"{circle[0]}: in a circle: {', '.join(circle)}")
    if checked == 0:
        problems.append("no source file was found")
    report(problems, f"{checked} files include only what they may")


if __name__ == "__main__":
    main(sys.argv[1])
