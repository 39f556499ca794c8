#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Installs the build to a temporary folder of an odd name and looks at it there.

usage: check_installation.py run|build|parts|target ROOT BUILD_DIRECTORY

run    ucx_info finds the transports: preloaded, in a slot, and after the folder
       was moved; a user without rights gets a report
build  programs are built by pkg-config and by the examples' Makefile, against a
       folder that was moved, and run
parts  man pages, completion, licence, version are there and usable
target all that was built is what the target `installable` builds
"""

import os
import pathlib
import re
import shutil
import sys

from installing import (ODD_NAME, attempt, check_listing, expect, find_one, run,
                        scratch)


def check_links(prefix):
    for name in ("libuct_hlthunk.so.0", "libucx_perftest_gaudi.so.0"):
        found = [file for file in prefix.rglob(name)
                 if file.parent.name == "plugin"]
        expect(len(found) == 1 and found[0].exists(),
               f"{name} is no file in one plugin folder: {found}")
    for framework in ("accelerator", "op"):
        find_one(prefix, f"ucx-gaudi/openmpi/mca_{framework}_gaudi.so")


def check_anyone(prefix):
    """A user without rights, in a folder that takes no file."""
    anyone = ([] if os.geteuid() else
              ["setpriv", "--reuid=1234", "--regid=1234", "--clear-groups"])
    reports = prefix.parent / "reports"
    reports.mkdir()
    reports.chmod(0o777)
    prefix.parent.chmod(0o755)
    for what in ("info", "check"):
        run(*anyone, prefix / "bin/ucx-gaudi", what, "--emulate=2",
            folder="/proc", TMPDIR=str(reports),
            HLTHUNK_EMU_NODE=f"anyone-{os.getpid()}")
    expect(len(list(reports.iterdir())) == 1, "check leaves no report")


def check_running(prefix, *_):
    check_links(prefix)
    check_listing(prefix)
    check_anyone(prefix)
    check_listing(prefix, "--slot")
    moved = prefix.rename(prefix.parent / "moved")
    check_listing(moved)
    check_listing(moved, "--slot")


def check_building(prefix, *_):
    prefix = prefix.rename(prefix.parent / ("moved-" + ODD_NAME))
    package = find_one(prefix, "ucx-gaudi-transports.pc")
    library = package.parent.parent
    pkg_config = {"PKG_CONFIG_PATH": str(package.parent)}
    launcher = prefix / "bin/ucx-gaudi"
    told = run("pkg-config", "--variable=libdir", "ucx-gaudi-transports",
               **pkg_config)
    expect(pathlib.Path(told.strip().replace("\\", "")).resolve() == library,
           f"pkg-config says that the libraries are in {told}, not {library}")

    # As the pages have it: by a shell, which takes what pkg-config escapes.
    examples = find_one(prefix, "dmabuf.c").parent
    work = prefix.parent / "work"
    work.mkdir()
    (work / "program.c").write_text(
        "#include <stdio.h>\n#include <ucx_gaudi.h>\n"
        "int main(void)\n{\n"
        "    printf(\"%d\\n\", ucx_gaudi_version() == UCX_GAUDI_VERSION);\n"
        "    return ucx_gaudi_memory_type() == UCS_MEMORY_TYPE_UNKNOWN;\n}\n")
    run("sh", "-c", "eval cc program.c -o program "
        "\"$(pkg-config --cflags --libs ucx-gaudi-transports)\"",
        folder=work, **pkg_config)
    said = run(launcher, "run", "--emulate", work / "program",
               LD_LIBRARY_PATH=str(library))
    expect(said == "1\n", f"the program says: {said}")

    # make takes no such names.
    shutil.copytree(examples, work / "examples")
    run("make", "-f", "examples/Makefile", "MPICC=no-mpicc", folder=work,
        **pkg_config)
    said = run(launcher, "run", "--emulate", work / "dmabuf",
               LD_LIBRARY_PATH=str(library))
    expect("are the same" in said, f"dmabuf says: {said}")
    for name in ("uct_host_to_device", "ucp_host_to_device"):
        said = run(launcher, "run", "--emulate", work / name, work / "program.c")
        expect("are the same" in said, f"{name} says: {said}")
    run("make", "-f", "examples/Makefile", "clean", folder=work, **pkg_config)
    expect(not (work / "dmabuf").exists(), "make clean leaves dmabuf")


def check_man_page(file):
    complaints = run("groff", "-man", "-ww", "-Tutf8", "-z", file)
    expect(complaints == "", f"{file}: {complaints}")


def check_completeness(prefix):
    """Options that are there, the man page and completion have."""
    file = prefix / "share/man/man1/ucx-gaudi.1"
    check_man_page(file)
    page = file.read_text().replace("\\-", "-")
    completion = (prefix / "share/bash-completion/completions/ucx-gaudi"
                  ).read_text()
    for command in ("run", "env", "info", "check"):
        shown = run(prefix / "bin/ucx-gaudi", command, "--help")
        for option in set(re.findall(r"^ +(?:-\w,)?(--[a-z]+)", shown, re.M)):
            expect(option == "--help" or
                   re.search(rf"^\.TP\n\.\w+ {option}\b", page, re.M),
                   f"the man page has no entry {option}")
            expect(option in completion, f"the completion has no {option}")


def complete(prefix, *words):
    """What the completion offers for the last word."""
    script = prefix / "share/bash-completion/completions/ucx-gaudi"
    return run("bash", "-c", ". \"$1\"; shift; COMP_WORDS=(\"$@\"); "
               "COMP_CWORD=$(($# - 1)); _ucx_gaudi; "
               "printf '%s\\n' \"${COMPREPLY[@]}\"", "bash", script,
               "ucx-gaudi", *words).split()


def check_completion(prefix):
    for words, offered in ((("r",), "run"), (("--v",), "--version"),
                           (("run", "--em"), "--emulate"),
                           (("info", "--j"), "--json"),
                           (("run", "--emulate", "=", "2", "--sl"), "--slot"),
                           (("run", "basenam"), "basename"),
                           (("run", "--emulate", "--", "basenam"), "basename")):
        found = complete(prefix, *words)
        expect(offered in found, f"{words} is completed to {found}")
    found = complete(prefix, "run", "ls", "--em")
    expect("--emulate" not in found, f"ls gets {found}")


def check_parts(prefix, root, _):
    check_completeness(prefix)
    check_completion(prefix)
    documents = prefix / "share/doc/ucx-gaudi-transports"
    for name in ("README.md", "docs/install.md", "LICENSE"):
        path = root / name
        expect((documents / name).read_bytes() == path.read_bytes(),
               f"{name} is not installed")
    version = run("pkg-config", "--modversion", "ucx-gaudi-transports",
                  PKG_CONFIG_PATH=str(prefix / "lib/pkgconfig"))
    told = run(prefix / "bin/ucx-gaudi", "--version")
    expect(told.startswith(f"ucx-gaudi {version}modules for UCX 1."),
           f"version {version} is told as {told}")
    for name in ("include/ucx_gaudi.h", "lib/hlthunk-emu/libhl-thunk.so"):
        expect((prefix / name).is_file(), f"{name} is missing")
    # Nobody gets the software Gaudi by accident.
    expect(not list(prefix.glob("lib/libhl-thunk*")), "libhl-thunk.so is in lib")
    code, told = attempt("find", prefix, "-perm", "/022", "!", "-type", "l")
    expect(code == 0 and told == "", f"others may write to {told}")


def check_target(prefix, _, build):
    """What is installed and was built is what `installable` builds."""
    words = run("ninja", "-C", build, "-t", "commands", "installable").split()
    made = {pathlib.Path(word).name
            for option, word in zip(words, words[1:]) if option == "-o"}
    found = {path.name for path in prefix.rglob("*")
             if path.is_file() and not path.is_symlink() and
             path.read_bytes()[:4] == b"\x7fELF"}
    expect(found and found <= made, f"not built: {sorted(found - made)}")


CASES = {"run": check_running, "build": check_building, "parts": check_parts,
         "target": check_target}


def main(case, root, build):
    with scratch() as place:
        prefix = place / ODD_NAME
        run("cmake", "--install", build, "--prefix", prefix)
        CASES[case](prefix, pathlib.Path(root), build)
    print("what was installed works")


if __name__ == "__main__":
    main(*sys.argv[1:])
