#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Makes Debian packages twice, and fails if a byte of them differs.

usage: check_reproducible.py ROOT

By scripts/package, in copies of the tree: folders of other names, one with a
space, whose files have other times; another cache of UCX's sources, umask and
time zone. It takes three minutes of a CPU for each release of UCX at hand.
"""

import os
import pathlib
import shutil
import subprocess
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "static"))
from common import tree_files
from installing import clean_environment, differences, expect, scratch


def copy_tree(root, folder):
    for name in tree_files(root):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(root / name, folder / name)
    # The one that a source archive tells the time by.
    shutil.copystat(root / "CHANGELOG.md", folder / "CHANGELOG.md")


def make(folder, umask, **variables):
    """The packages of a tree, by name."""
    result = subprocess.run(
        [folder / "scripts/package"], stdin=subprocess.DEVNULL, umask=umask,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        timeout=1800, check=False,
        env=clean_environment({**variables, "CCACHE_DISABLE": "1"}))
    expect(result.returncode == 0, result.stdout)
    return {path.name: path
            for path in (folder / "build/package/packages").iterdir()}


def main(root):
    root = pathlib.Path(root)
    kept = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or
                        pathlib.Path.home() / ".cache") / "ucx-gaudi"
    with scratch() as place:
        folders = place / "one", place / "another folder"
        for folder in folders:
            copy_tree(root, folder)
        (place / "cache").mkdir()
        (place / "cache/ucx-gaudi").symlink_to(kept)
        one = make(folders[0], 0o022)
        other = make(folders[1], 0o077, TZ="XST-13",
                     XDG_CACHE_HOME=str(place / "cache"))
        expect(len(one) == 7 and one.keys() == other.keys(),
               f"the packages are {sorted(one)} and {sorted(other)}")
        found = [line for name in sorted(one)
                 for line in differences(one[name], other[name])]
        expect(not found, "\n".join(found))
    print(f"{len(one)} packages are the same")


if __name__ == "__main__":
    main(*sys.argv[1:])
