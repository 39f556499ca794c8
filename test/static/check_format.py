#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Fails when clang-format would change a source file.

usage: check_format.py ROOT
"""

import os
import shutil
import subprocess
import sys

from common import tree_files


def main(root):
    tool = shutil.which("clang-format-14")
    if tool is None:
        sys.exit("clang-format-14 is missing (apt-get install clang-format-14)")
    names = [name for name in tree_files(root)
             if name.endswith((".c", ".cc", ".h"))]
    if not names:
        sys.exit("no source file was found")
    result = subprocess.run([tool, "--dry-run", "-Werror"] + names, cwd=root,
                            timeout=300, check=False)
    if result.returncode != 0:
        sys.exit("run clang-format-14 -i on these files")
    print(f"{len(names)} files are formatted")


if __name__ == "__main__":
    main(os.path.abspath(sys.argv[1]))
