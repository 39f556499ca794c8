#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""scripts/install puts the build into a folder, and takes exactly that away.

usage: check_install_script.py ROOT BUILD_DIRECTORY
"""

import os
import pathlib
import sys

from installing import (ODD_NAME, attempt, check_listing, expect,
                        import_package, refused, run, scratch, tree)

LIST = "share/ucx-gaudi/installed"


class script:
    def __init__(self, root, build):
        self.path = pathlib.Path(root) / "scripts/install"
        self.build = build

    def words(self, prefix, *options):
        if "--remove" not in options:
            options = ("--from", self.build, *options)
        return (self.path, "--prefix", prefix, *options)

    def run(self, prefix, *options, **keywords):
        return run(*self.words(prefix, *options), **keywords)

    def refused(self, words, prefix, *options):
        refused(words, *self.words(prefix, *options))


def check_round(install, place):
    """In a folder with files of others, some of them in ours."""
    prefix = place / ODD_NAME
    (prefix / "lib").mkdir(parents=True)
    (prefix / "lib/libother.so").write_text("other")
    (prefix / "include").symlink_to("lib")
    before = tree(place)
    install.run(prefix)
    check_listing(prefix)
    installed = tree(place)
    install.run(prefix)
    expect(set(tree(place)) == set(installed), "once more is not the same")

    moved = prefix.rename(place / "moved")
    check_listing(moved)
    moved.rename(prefix)
    import_package(prefix)
    install.run(prefix, "--remove")
    expect(tree(place) == before, f"left: {set(tree(place)) ^ set(before)}")
    install.refused("nothing to remove", prefix, "--remove")
    expect(tree(place) == before, "removing nothing removes something")


def check_relative_and_new(install, place):
    """A folder that is not there goes again, but for files of others."""
    install.run("new/folder", folder=place)
    mine = place / "new/folder/lib/ucx-gaudi/mine"
    mine.write_text("mine")
    install.run(place / "new/folder", "--remove")
    left = [path for path in (place / "new/folder").rglob("*")
            if not path.is_dir()]
    expect(left == [mine] and mine.read_text() == "mine", f"left: {left}")
    mine.unlink()


def check_upgrade(install, place):
    """What an earlier version had, and this has not, goes."""
    prefix = place / "upgraded"
    install.run(prefix)
    old = prefix / "lib/ucx-gaudi/0.9"
    old.mkdir()
    (old / "module").write_text("old")
    with open(prefix / LIST, "a", encoding="utf-8") as file:
        file.write("lib/ucx-gaudi/0.9/module\n")
    library = prefix / "lib/libuct_hlthunk.so.0.0.0"
    in_use = library.stat().st_ino
    with open(library, "rb") as mapped:
        content = mapped.read()
        install.run(prefix)
        mapped.seek(0)
        expect(mapped.read() == content, "a library in use was written to")
    expect(library.stat().st_ino != in_use, "the library is the old one")
    expect(not old.exists(), f"{old} is left")
    install.run(prefix, "--remove")
    expect(not prefix.exists(), f"left: {sorted(tree(prefix))}")


def check_refusals(install, place):
    prefix = place / "refused"
    install.refused("no folder of a build", prefix, "--from", place)
    install.refused("cannot be written", "/proc/ucx-gaudi")
    install.refused("--remove takes no --from", prefix, "--remove", "--from",
                    install.build)
    for options in (("--nothing",), ("prefix",)):
        code, said = attempt(install.path, *options)
        expect(code == 2 and "usage: install" in said, f"{options}: {said}")

    install.run(prefix)
    outside = place / "outside"
    outside.write_text("outside")
    with open(prefix / LIST, "a", encoding="utf-8") as file:
        file.write("bin/../../outside\n")
    install.refused("is not below", prefix, "--remove")
    expect(outside.exists(), "a bad list removes something")


def main(root, build):
    os.umask(0o077)
    install = script(root, build)
    for check in (check_round, check_relative_and_new, check_upgrade,
                  check_refusals):
        with scratch() as place:
            check(install, place)
    print("scripts/install installs, upgrades and removes")


if __name__ == "__main__":
    main(*sys.argv[1:])
