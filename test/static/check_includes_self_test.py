#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Plants violations in a small tree and fails if check_includes misses one.

usage: check_includes_self_test.py
"""

import os
import pathlib
import sys
import tempfile

from common import report, run

CHECKER = os.path.join(os.path.dirname(os.path.abspath(__file__)),
                       "check_includes.py")

# A tree that is in order: files, and what they include.
CLEAN = {
    "src/util/u.h": ["<vector>"],
    "src/util/u.cc": ['"util/u.h"'],
    "src/hlthunk_shim/s.h": ['"util/u.h"'],
    "src/hlthunk_shim/hlthunk/abi.h": [],
    "src/hlthunk_shim/hlthunk/h.h": ['"hlthunk_shim/s.h"'],
    "src/hlthunk_shim/cards/k.h": ['"hlthunk_shim/hlthunk/h.h"'],
    "src/hlthunk_emulator/hlthunk_emu.h": ['"hlthunk_shim/hlthunk/abi.h"'],
    "src/hlthunk_emulator/software_card.h": ['"hlthunk_emulator/hlthunk_emu.h"'],
    "src/uct/gaudi/base/ucx/x.h": ['"util/u.h"', "<ucs/type/status.h>"],
    "src/uct/gaudi/base/cards/c.h": ['"hlthunk_shim/cards/k.h"',
                                     '"uct/gaudi/base/ucx/x.h"'],
    "src/uct/gaudi/base/memory/m.h": ['"uct/gaudi/base/cards/c.h"'],
    "src/uct/gaudi/base/memory/n.h": [],
    "src/uct/gaudi/base/memory/n.cc": ['"uct/gaudi/base/memory/n.h"',
                                       '"uct/gaudi/base/memory/m.h"'],
    "src/uct/gaudi/base/memory/application/a.h":
        ['"uct/gaudi/base/memory/m.h"'],
    "src/uct/gaudi/base/transfer/t.h": ['"uct/gaudi/base/memory/m.h"'],
    "src/uct/gaudi/copy/c.h": ['"uct/gaudi/base/transfer/t.h"'],
    "src/uct/gaudi/ipc/process/p.h": ['"uct/gaudi/base/ucx/x.h"'],
    "src/uct/gaudi/ipc/messages/m.h": ['"uct/gaudi/ipc/process/p.h"'],
    "src/uct/gaudi/ipc/sharing/s.h": ['"uct/gaudi/ipc/process/p.h"'],
    "src/uct/gaudi/ipc/i.h": ['"uct/gaudi/ipc/messages/m.h"',
                              '"uct/gaudi/ipc/sharing/s.h"'],
    "src/uct/gaudi/module.cc": ['"uct/gaudi/copy/c.h"',
                                '"uct/gaudi/ipc/i.h"'],
    "src/loader/p.c": ["<dlfcn.h>"],
    "test/t.cc": ['"hlthunk_emulator/hlthunk_emu.h"'],
}

# What none of these files may include.
VIOLATIONS = {
    "src/util/u.h": ["<ucs/debug/log.h>", '"hlthunk_shim/s.h"'],
    "src/hlthunk_shim/s.h": [
        "<ucs/debug/log.h>", "<uct/api/uct.h>", "<config.h>",
        '"uct/gaudi/base/ucx/x.h"', "<uct/gaudi/base/ucx/x.h>",
        '"../uct/gaudi/base/ucx/x.h"', '"hlthunk_emulator/hlthunk_emu.h"',
        '"emu/card.h"', '"hlthunk_shim/hlthunk/abi.h"'],
    "src/hlthunk_shim/hlthunk/h.h": ['"uct/gaudi/base/ucx/x.h"'],
    "src/hlthunk_emulator/software_card.h": [
        '"hlthunk_shim/s.h"', '"hlthunk_shim/hlthunk/h.h"',
        "<ucp/api/ucp.h>"],
    "src/uct/gaudi/base/ucx/x.h": [
        '"uct/gaudi/copy/c.h"', '"../../ipc/i.h"', '"hlthunk_shim/s.h"'],
    "src/uct/gaudi/base/cards/c.h": ['"hlthunk_shim/hlthunk/h.h"'],
    # n.cc includes m.h, and a header and its source count as one.
    "src/uct/gaudi/base/memory/m.h": [
        '"uct/gaudi/base/memory/application/a.h"',
        '"uct/gaudi/base/memory/n.h"'],
    "src/uct/gaudi/base/memory/n.h": ['"uct/gaudi/base/transfer/t.h"'],
    "src/uct/gaudi/base/transfer/t.h": [
        '"uct/gaudi/base/memory/application/a.h"',
        '"hlthunk_emulator/hlthunk_emu.h"'],
    "src/uct/gaudi/copy/c.h": ['"uct/gaudi/ipc/i.h"'],
    "src/uct/gaudi/ipc/i.h": ['"uct/gaudi/copy/c.h"'],
    "src/uct/gaudi/ipc/process/p.h": ['"uct/gaudi/base/transfer/t.h"'],
    "src/uct/gaudi/ipc/messages/m.h": ['"uct/gaudi/ipc/sharing/s.h"'],
    "src/uct/gaudi/ipc/sharing/s.h": ['"uct/gaudi/ipc/messages/m.h"'],
    "src/uct/gaudi/module.cc": ['"hlthunk_emulator/software_card.h"'],
    "src/loader/p.c": ["<ucp/api/ucp.h>", '"util/u.h"'],
    "test/t.cc": ['"hlthunk_emulator/software_card.h"', '"no/such/file.h"'],
}


def check(violator=None, violation=None):
    """Whether the checker accepts the tree, and what it says."""
    with tempfile.TemporaryDirectory() as root:
        for name, included in CLEAN.items():
            path = pathlib.Path(root, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            lines = [f"#include {target}\n" for target in included]
            if name == violator:
                lines.append(f"#  include {violation}\n")
            path.write_text("".join(lines))
        result = run([sys.executable, "-B", CHECKER, root])
    return result.returncode == 0, result.stdout


def main():
    failures = []
    accepted, output = check()
    if not accepted:
        failures.append(f"a tree in order is refused:\n{output}")
    violations = [(name, target) for name, targets in VIOLATIONS.items()
                  for target in targets]
    for name, target in violations:
        accepted, output = check(name, target)
        named = output.startswith((name + ":",
                                   os.path.splitext(name)[0] + ":"))
        if accepted or not named or "1 problem(s)" not in output:
            failures.append(f"missed: {name} includes {target}\n{output}")
    report(failures, f"{len(violations)} violations were found, each in its "
           "place")


if __name__ == "__main__":
    main()
