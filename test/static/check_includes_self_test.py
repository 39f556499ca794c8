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
    "src/hlthunk_shim/a.h": "#include <vector>\n",
    "src/hlthunk_shim/hlthunk_abi.h": "",
    "src/hlthunk_shim/a.cc": '#include "hlthunk_shim/a.h"\n',
    "src/hlthunk_shim/emu/hlthunk_emu.h":
        '#include "hlthunk_shim/hlthunk/abi.h"\n',
    "src/hlthunk_shim/emu/card.h": '#include "hlthunk_shim/emu/hlthunk_emu.h"',
    "src/uct/gaudi/base/b.h":
        '#include "hlthunk_shim/a.h"\n#include <ucs/type/status.h>\n',
    "src/uct/gaudi/copy/c.h": '#include "uct/gaudi/base/b.h"\n',
    "src/uct/gaudi/ipc/i.h": '#include "uct/gaudi/base/b.h"\n',
    "src/uct/gaudi/module.cc":
        '#include "uct/gaudi/copy/c.h"\n#include "uct/gaudi/ipc/i.h"\n',
    "src/preload/p.c": "#include <dlfcn.h>\n",
    "test/t.cc": '#include "hlthunk_shim/emu/hlthunk_emu.h"\n',
}

# One more line in a file, each against the rules.
VIOLATIONS = [
    ("src/hlthunk_shim/a.cc", "#include <ucs/debug/log.h>"),
    ("src/hlthunk_shim/a.cc", "#  include <uct/api/uct.h>"),
    ("src/hlthunk_shim/a.h", "#include <config.h>"),
    ("src/hlthunk_shim/a.h", '#include "uct/gaudi/base/b.h"'),
    ("src/hlthunk_shim/a.h", "#include <uct/gaudi/base/b.h>"),
    ("src/hlthunk_shim/a.h", '#include "../uct/gaudi/base/b.h"'),
    ("src/hlthunk_shim/a.h", '#include "hlthunk_shim/emu/hlthunk_emu.h"'),
    ("src/hlthunk_shim/a.h", '#include "emu/card.h"'),
    ("src/hlthunk_shim/emu/card.h", '#include "hlthunk_shim/a.h"'),
    ("src/hlthunk_shim/emu/card.h", "#include <ucp/api/ucp.h>"),
    ("src/uct/gaudi/base/b.h", '#include "uct/gaudi/copy/c.h"'),
    ("src/uct/gaudi/base/b.h", '#include "../ipc/i.h"'),
    ("src/uct/gaudi/base/b.h", '#include "hlthunk_shim/emu/hlthunk_emu.h"'),
    ("src/uct/gaudi/copy/c.h", '#include "uct/gaudi/ipc/i.h"'),
    ("src/uct/gaudi/ipc/i.h", '#include "uct/gaudi/copy/c.h"'),
    ("src/uct/gaudi/module.cc", '#include "hlthunk_shim/emu/card.h"'),
    ("src/preload/p.c", "#include <ucp/api/ucp.h>"),
    ("src/preload/p.c", '#include "hlthunk_shim/a.h"'),
    ("test/t.cc", '#include "hlthunk_shim/emu/card.h"'),
    ("test/t.cc", '#include "no/such/file.h"'),
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
        result = subprocess.run([sys.executable, CHECKER, root],
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
        named = output.startswith(violation[0] + ":")
        if accepted or not named or "1 problem(s)" not in output:
            failures.append(f"missed: {violation}\n{output}")
    if failures:
        sys.exit("\n".join(failures))
    print(f"{len(VIOLATIONS)} violations were found, each in its place")


if __name__ == "__main__":
    main()
