#!/usr/bin/env python3
"""Fails when clang-tidy objects to a source file of the project.

usage: check_tidy.py ROOT BUILD_DIRECTORY
"""

import concurrent.futures
import os
import shutil
import subprocess
import sys

from common import report, tree_files


def main(root, build):
    tool = shutil.which("clang-tidy-14")
    if tool is None:
        sys.exit("clang-tidy-14 is missing (apt-get install clang-tidy-14)")
    names = [name for name in tree_files(root)
             if name.startswith("src/") and name.endswith(".cc")]
    if not names:
        sys.exit("no source file was found")

    def check(name):
        result = subprocess.run([tool, "-p", build, "--quiet", name], cwd=root,
                                stdout=subprocess.PIPE,
                                stderr=subprocess.DEVNULL, text=True,
                                check=False)
        return "" if result.returncode == 0 else f"{name}:\n{result.stdout}"

    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        problems = [text for text in pool.map(check, names) if text]
    report(problems, f"clang-tidy has nothing against {len(names)} files")


if __name__ == "__main__":
    main(*(os.path.abspath(argument) for argument in sys.argv[1:3]))
