#!/usr/bin/env python3
"""Installs the build to a temporary folder and uses it from there.

usage: check_installation.py run|build ROOT BUILD_DIRECTORY

run    ucx_info finds the transports: preloaded, in a slot, and after the folder
       was moved
build  a program is built by pkg-config, and runs
"""

import os
import pathlib
import subprocess
import sys
import tempfile

DEADLINE = 60


def run(*command, **variables):
    """What a command prints; its failure ends the test."""
    clean = {name: value for name, value in os.environ.items()
             if not name.startswith(("UCX_", "HLTHUNK_", "LD_", "PKG_CONFIG"))}
    clean["HLTHUNK_EMU_NODE"] = f"install-{os.getpid()}"
    result = subprocess.run(
        [str(word) for word in command], env={**clean, **variables},
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        timeout=DEADLINE, check=False)
    if result.returncode != 0:
        sys.exit(f"{command} failed:\n{result.stdout}")
    return result.stdout


def find_one(folder, name):
    found = list(folder.rglob(name))
    if len(found) != 1:
        sys.exit(f"{name} is installed as {found}")
    return found[0]


def check_listing(prefix, *options):
    listed = run(prefix / "bin/ucx-gaudi", "run", "--emulate=2", *options, "--",
                 "ucx_info", "-d")
    for line in ("Transport: gaudi_cpy", "Transport: gaudi_ipc",
                 "Device: gaudi0"):
        if line not in listed:
            sys.exit(f"{prefix}: '{line}' is not in what ucx_info prints with "
                     f"{options}:\n{listed}")


def check_links(prefix):
    for name in ("libuct_hlthunk.so.0", "libucx_perftest_gaudi.so.0"):
        found = [file for file in prefix.rglob(name)
                 if file.parent.name == "plugin"]
        if len(found) != 1 or not found[0].exists():
            sys.exit(f"{name} is no file in one plugin folder: {found}")


def check_running(prefix):
    check_links(prefix)
    check_listing(prefix)
    check_listing(prefix, "--slot")
    moved = prefix.rename(prefix.parent / "moved")
    check_listing(moved)
    check_listing(moved, "--slot")


def check_building(prefix, root):
    package = find_one(prefix, "ucx-gaudi-transports.pc")
    flags = run("pkg-config", "--cflags", "--libs", "ucx-gaudi-transports",
                "ucx", PKG_CONFIG_PATH=str(package.parent)).split()
    examples = root / "examples"
    program = prefix / "dmabuf"
    run("cc", "-std=c11", "-D_GNU_SOURCE", examples / "dmabuf.c",
        examples / "gaudi_memory.c", "-o", program, *flags)
    said = run(prefix / "bin/ucx-gaudi", "run", "--emulate", "--", program,
               LD_LIBRARY_PATH=str(package.parent.parent))
    if "are the same" not in said:
        sys.exit(f"the program says: {said}")


def main(case, root, build):
    with tempfile.TemporaryDirectory() as place:
        prefix = pathlib.Path(place) / "prefix"
        run("cmake", "--install", build, "--prefix", prefix)
        if case == "run":
            check_running(prefix)
        elif case == "build":
            check_building(prefix, pathlib.Path(root))
        else:
            sys.exit(__doc__)
    print("what was installed works")


if __name__ == "__main__":
    main(*sys.argv[1:])
