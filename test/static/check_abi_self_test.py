#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Changes the header of a small tree and fails if check_abi.py takes what
breaks programs, or refuses what does not.

usage: check_abi_self_test.py
"""

import os
import pathlib
import sys
import tempfile

from common import report, run

CHECK = pathlib.Path(__file__).resolve().parent / "check_abi.py"

HEADER = """#include <stdint.h>
#define UCX_GAUDI_API
#define UCX_GAUDI_VERSION_MAJOR 0
#define UCX_GAUDI_VERSION_MINOR 1
#define UCX_GAUDI_VERSION_PATCH 0
enum ucx_gaudi_x_attr_field { ONE = 1, TWO = 2 };
typedef struct ucx_gaudi_x_attr { uint64_t field_mask; int one; } x_t;
typedef struct ucx_gaudi_handle { char bytes[64]; } handle_t;
/** A function. */
UCX_GAUDI_API int ucx_gaudi_query(unsigned number,
                                  x_t *attr);
UCX_GAUDI_API int ucx_gaudi_open(const handle_t *handle);
"""
CHANGES = "# Changelog\n\n## Unreleased\n\n- More.\n\n## 0.1.0 - 2026-01-31\n"

OPEN = "UCX_GAUDI_API int ucx_gaudi_open(const handle_t *handle);"
# What is put in place of what, in the header or in CHANGELOG.md.
BREAKS = [
    (OPEN, ""),
    ("unsigned number", "uint64_t number"),
    ("API int ucx_gaudi_query", "API void *ucx_gaudi_query"),
    ("ONE = 1, TWO = 2", "ONE = 1, TWO = 4"),
    ("ONE = 1, TWO = 2", "ONE = 1"),
    ("int one;", "int before; int one;"),
    ("int one;", "long one;"),
    ("bytes[64]", "bytes[65]"),
    ("bytes[64];", "bytes[64]; int more;"),
    ("0.1.0", "0.1.1"),
    ("0.1.0 - 2026-01-31", "0.1.0"),
    ("0.1.0 -", "0.0.9 - 2026-01-31\n\n## 0.1.0 -"),
    ("MINOR 1", "MINOR 0"),
    ("MINOR 1", "MINOR 2\n#define LATER"),
]
KEEPS = [
    (OPEN, OPEN + "\nUCX_GAUDI_API int ucx_gaudi_close(void);"),
    (OPEN, OPEN + "\ntypedef struct ucx_gaudi_y { int y; } y_t;\n"
     "enum ucx_gaudi_y_field { Y = 1 };\n"
     "UCX_GAUDI_API int ucx_gaudi_y(y_t *y);"),
    ("ONE = 1, TWO = 2", "ONE = 1, TWO = 2, FOUR = 4"),
    ("int one;", "int one; int two; long more;"),
    ("MINOR 1", "MINOR 2"),
    ("number", "other_name"),
]


class tree:
    def __init__(self, root):
        self.root = pathlib.Path(root)
        self.build = self.root / "build"
        for folder in ("src/program", "test/abi", "build/lib"):
            (self.root / folder).mkdir(parents=True)
        (self.build / "compile_commands.json").write_text("[]")
        self.write("", "")

    def write(self, old, new, exported=None):
        """The tree, with one change in what is written."""
        header, changes = (text.replace(old, new, 1) if old else text
                           for text in (HEADER, CHANGES))
        if "LATER" in header: # without anything that is not released
            changes = changes.replace("## Unreleased\n\n- More.\n\n", "")
        (self.root / "src/program/ucx_gaudi.h").write_text(header)
        (self.root / "CHANGELOG.md").write_text(changes)
        names = exported or ("query", "open", "close", "y")
        source = "".join(f"void ucx_gaudi_{name}(void) {{}}\n"
                         for name in names)
        run(["cc", "-shared", "-fPIC", "-Wl,-soname,lib.so.0", "-x", "c", "-o",
             self.build / "lib/libuct_hlthunk.so.0", "-"],
            input=source).check_returncode()

    def check(self, *options):
        result = run([sys.executable, "-B", CHECK, *options, self.root,
                      self.build])
        return result.returncode == 0, result.stdout


def main():
    failed = []
    with tempfile.TemporaryDirectory() as root:
        one = tree(root)
        def expect(what, wanted):
            accepted, said = one.check()
            if accepted != wanted or "Traceback" in said:
                failed.append(f"{what}: {'taken' if accepted else said}")

        expect("nothing is kept", False)
        accepted, said = one.check("--keep")
        if not accepted or os.listdir(one.root / "test/abi") != [
                "ucx_gaudi-0.1.0.abi"]:
            failed.append(f"--keep: {said}")
        expect("nothing changed", True)
        for changes, wanted in ((BREAKS, False), (KEEPS, True)):
            for old, new in changes:
                if old not in HEADER + CHANGES:
                    failed.append(f"there is no {old}")
                one.write(old, new)
                expect(f"{old} -> {new}", wanted)
        one.write("", "", exported=("query",))
        expect("a library without a function of the header", False)
    report(failed, f"{len(BREAKS)} changes that break programs are refused, "
           f"{len(KEEPS)} others taken")


if __name__ == "__main__":
    main()
