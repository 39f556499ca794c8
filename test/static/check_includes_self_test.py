#!/usr/bin/env python3
"""Plants violations in a small tree and fails if check_includes misses one.

usage: check_includes_self_test.py
"""

import os
import subprocess
import sys
import tempfile

CHECKER = os.path.join(os.path.dirname(os.path.abspath(__file__)),
                       "check_includes.py")

# A tree that is in order.
CLEAN = {
    "src/util/u.h": "#include <vector>\n",
    "src/util/u.cc": '#include "util/u.h"\n',
    "src/hlthunk_shim/s.h": '#include "util/u.h"\n',
    "src/hlthunk_shim/hlthunk/abi.h": "",
    "src/hlthunk_shim/hlthunk/h.h": '#include "hlthunk_shim/s.h"\n',
    "src/hlthunk_shim/cards/k.h": '#include "hlthunk_shim/hlthunk/h.h"\n',
    "src/hlthunk_emulator/hlthunk_emu.h":
        '#include "hlthunk_shim/hlthunk/abi.h"\n',
    "src/hlthunk_emulator/software_card.h": '#include "hlthunk_emulator/hlthunk_emu.h"',
    "src/uct/gaudi/base/ucx/x.h":
        '#include "util/u.h"\n#include <ucs/type/status.h>\n',
    "src/uct/gaudi/base/cards/c.h":
        '#include "hlthunk_shim/cards/k.h"\n'
        '#include "uct/gaudi/base/ucx/x.h"\n',
    "src/uct/gaudi/base/memory/m.h": '#include "uct/gaudi/base/cards/c.h"\n',
    "src/uct/gaudi/base/memory/n.h": "",
    "src/uct/gaudi/base/memory/n.cc":
        '#include "uct/gaudi/base/memory/n.h"\n'
        '#include "uct/gaudi/base/memory/m.h"\n',
    "src/uct/gaudi/base/memory/application/a.h":
        '#include "uct/gaudi/base/memory/m.h"\n',
    "src/uct/gaudi/base/transfer/t.h": '#include "uct/gaudi/base/memory/m.h"\n',
    "src/uct/gaudi/copy/c.h": '#include "uct/gaudi/base/transfer/t.h"\n',
    "src/uct/gaudi/ipc/process/p.h": '#include "uct/gaudi/base/ucx/x.h"\n',
    "src/uct/gaudi/ipc/messages/m.h": '#include "uct/gaudi/ipc/process/p.h"\n',
    "src/uct/gaudi/ipc/sharing/s.h": '#include "uct/gaudi/ipc/process/p.h"\n',
    "src/uct/gaudi/ipc/i.h":
        '#include "uct/gaudi/ipc/messages/m.h"\n'
        '#include "uct/gaudi/ipc/sharing/s.h"\n',
    "src/uct/gaudi/module.cc":
        '#include "uct/gaudi/copy/c.h"\n#include "uct/gaudi/ipc/i.h"\n',
    "src/loader/p.c": "#include <dlfcn.h>\n",
    "test/t.cc": '#include "hlthunk_emulator/hlthunk_emu.h"\n',
}

# One more line in a file, each against the rules.
VIOLATIONS = [
    ("src/util/u.h", "#include <ucs/debug/log.h>"),
    ("src/util/u.h", '#include "hlthunk_shim/s.h"'),
    ("src/hlthunk_shim/s.h", "#include <ucs/debug/log.h>"),
    ("src/hlthunk_shim/s.h", "#  include <uct/api/uct.h>"),
    ("src/hlthunk_shim/s.h", "#include <config.h>"),
    ("src/hlthunk_shim/s.h", '#include "uct/gaudi/base/ucx/x.h"'),
    ("src/hlthunk_shim/s.h", "#include <uct/gaudi/base/ucx/x.h>"),
    ("src/hlthunk_shim/s.h", '#include "../uct/gaudi/base/ucx/x.h"'),
    ("src/hlthunk_shim/s.h", '#include "hlthunk_emulator/hlthunk_emu.h"'),
    ("src/hlthunk_shim/s.h", '#include "emu/card.h"'),
    ("src/hlthunk_shim/s.h", '#include "hlthunk_shim/hlthunk/abi.h"'),
    ("src/hlthunk_shim/hlthunk/h.h", '#include "uct/gaudi/base/ucx/x.h"'),
    ("src/hlthunk_emulator/software_card.h", '#include "hlthunk_shim/s.h"'),
    ("src/hlthunk_emulator/software_card.h", '#include "hlthunk_shim/hlthunk/h.h"'),
    ("src/hlthunk_emulator/software_card.h", "#include <ucp/api/ucp.h>"),
    ("src/uct/gaudi/base/ucx/x.h", '#include "uct/gaudi/copy/c.h"'),
    ("src/uct/gaudi/base/ucx/x.h", '#include "../../ipc/i.h"'),
    ("src/uct/gaudi/base/ucx/x.h", '#include "hlthunk_shim/s.h"'),
    ("src/uct/gaudi/base/cards/c.h", '#include "hlthunk_shim/hlthunk/h.h"'),
    ("src/uct/gaudi/base/memory/m.h",
     '#include "uct/gaudi/base/memory/application/a.h"'),
    ("src/uct/gaudi/base/memory/n.h", '#include "uct/gaudi/base/transfer/t.h"'),
    ("src/uct/gaudi/base/transfer/t.h",
     '#include "uct/gaudi/base/memory/application/a.h"'),
    ("src/uct/gaudi/base/transfer/t.h",
     '#include "hlthunk_emulator/hlthunk_emu.h"'),
    ("src/uct/gaudi/copy/c.h", '#include "uct/gaudi/ipc/i.h"'),
    ("src/uct/gaudi/ipc/i.h", '#include "uct/gaudi/copy/c.h"'),
    ("src/uct/gaudi/ipc/process/p.h",
     '#include "uct/gaudi/base/transfer/t.h"'),
    ("src/uct/gaudi/ipc/messages/m.h", '#include "uct/gaudi/ipc/sharing/s.h"'),
    ("src/uct/gaudi/ipc/sharing/s.h", '#include "uct/gaudi/ipc/messages/m.h"'),
    ("src/uct/gaudi/module.cc", '#include "hlthunk_emulator/software_card.h"'),
    ("src/loader/p.c", "#include <ucp/api/ucp.h>"),
    ("src/loader/p.c", '#include "util/u.h"'),
    ("test/t.cc", '#include "hlthunk_emulator/software_card.h"'),
    ("test/t.cc", '#include "no/such/file.h"'),
    # n.cc includes m.h, and a header and its source count as one.
    ("src/uct/gaudi/base/memory/m.h", '#include "uct/gaudi/base/memory/n.h"'),
]


def check(violation=None):
    """Whether the checker accepts the tree, and what it says."""
    with tempfile.TemporaryDirectory() as root:
        for name, text in CLEAN.items():
            path = os.path.join(root, name)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            if violation is not None and violation[0] == name:
                text += "\n" + violation[1] + "\n"
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
        result = subprocess.run([sys.executable, "-B", CHECKER, root],
                                stdout=subprocess.PIPE,
                                stderr=subprocess.STDOUT, text=True,
                                timeout=60, check=False)
    return result.returncode == 0, result.stdout


def main():
    failures = []
    accepted, output = check()
    if not accepted:
        failures.append(f"a tree in order is refused:\n{output}")
    for violation in VIOLATIONS:
        accepted, output = check(violation)
        named = output.startswith((violation[0] + ":",
                                   os.path.splitext(violation[0])[0] + ":"))
        if accepted or not named or "1 problem(s)" not in output:
            failures.append(f"missed: {violation}\n{output}")
    if failures:
        sys.exit("\n".join(failures))
    print(f"{len(VIOLATIONS)} violations were found, each in its place")


if __name__ == "__main__":
    main()
