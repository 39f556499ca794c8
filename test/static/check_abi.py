#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Fails when a program that was built with the last release's ucx_gaudi.h would
no longer work with this library; and when releases are told in two ways.

usage: check_abi.py [--keep] ROOT BUILD_DIRECTORY
       --keep: the ABI of this tree becomes that of the release

test/abi/ucx_gaudi-VERSION.abi is what abidw says of the last release. The
library's own functions only pass on what they are given, so the header's
declarations are compiled, and the library is asked for their names. Functions,
types, enumerators, and fields at the end of what is queried with a field_mask
may come; nothing may go or change.
"""

import contextlib
import os
import pathlib
import re
import sys
import tempfile
import xml.etree.ElementTree

from common import read, read_compilations, report, run

HEADER = "src/program/ucx_gaudi.h"
LIBRARY = "lib/libuct_hlthunk.so.0"
ABI = "test/abi/ucx_gaudi-{}.abi"
PROTOTYPE = re.compile(r"UCX_GAUDI_API ([^;{]*?\b(ucx_gaudi_\w+)\([^;]*\));")
# What the header says, and nothing of UCX's types, which differ by release.
ABIDW = ["abidw", "--drop-private-types", "--no-architecture",
         "--no-corpus-path", "--no-comp-dir-path", "--no-show-locs",
         "--no-elf-needed", "--type-id-style", "hash"]
MAY_GROW = """[suppress_type]
  name_regexp = ^ucx_gaudi_[a-z]+_attr$
  has_data_member_inserted_at = end
"""


@contextlib.contextmanager
def scratch():
    with tempfile.TemporaryDirectory() as folder:
        yield pathlib.Path(folder)


def output_of(command, **options):
    result = run(command, **options)
    if result.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}:\n{result.stdout}")
    return result.stdout


def ucx_folders(build):
    """Where the headers of UCX are that the module is built with."""
    for _, words, _ in read_compilations(build,
                                         build / "compile_commands.json"):
        found = [word for at, word in enumerate(words)
                 if words[at - 1] == "-isystem"]
        if any(os.path.isdir(os.path.join(path, "ucs")) for path in found):
            return [f"-I{path}" for path in found]
    return []


def abi_of(root, build, folder):
    """What abidw says of the header, and the functions that it has."""
    header = re.sub(r"/\*.*?\*/", "", read(root, HEADER), flags=re.S)
    functions = PROTOTYPE.findall(header)
    # Of enumerations there may be no function: bits of a field_mask.
    enums = sorted(set(re.findall(r"enum (ucx_gaudi_\w+)", header)))
    (folder / "functions.c").write_text("\n".join([
        f'#include "{root / HEADER}"',
        *(f"{prototype} {{ __builtin_trap(); }}" for prototype, _ in functions),
        *(f"void {name}_is(enum {name} *is) {{ (void)is; }}"
          for name in enums), ""]))
    soname = re.search(r"\(SONAME\).*\[(.*)\]", output_of(
        ["readelf", "-d", build / LIBRARY]))[1]
    output_of(["cc", "-g", "-shared", "-fPIC", f"-Wl,-soname,{soname}",
               *ucx_folders(build), "-o", "functions.so", "functions.c"],
              cwd=folder)
    return (output_of([*ABIDW, "--header-file", root / HEADER, "functions.so"],
                      cwd=folder), {name for _, name in functions})


def members(abi):
    """Of each structure: where its members are, and what."""
    corpus = xml.etree.ElementTree.fromstring(abi)
    types = {kind.get("id"): kind for kind in corpus.iter() if kind.get("id")}

    def describe(number):
        kind = types[number]
        inner = kind.get("type-id")
        return (kind.tag, kind.get("name"), kind.get("size-in-bits"),
                describe(inner) if inner and not kind.get("name") else None)

    return {structure.get("name"):
            [(member.get("layout-offset-in-bits"), variable.get("name"),
              describe(variable.get("type-id")))
             for member in structure.iter("data-member")
             for variable in member.iter("var-decl")]
            for structure in corpus.iter("class-decl")}


def changes(root, build, before):
    with scratch() as folder:
        now, functions = abi_of(root, build, folder)
        (folder / "now").write_text(now)
        (folder / "may_grow").write_text(MAY_GROW)
        exported = set(output_of(["nm", "-D", "--defined-only", "-j",
                                  build / LIBRARY]).split())
        for name in sorted(functions - exported):
            yield f"{LIBRARY} has no {name}, which {HEADER} declares"
        result = run(["abidiff", "--suppressions", "may_grow",
                      "--no-added-syms", before, "now"], cwd=folder)
        if result.returncode != 0:
            yield f"{before.name} is not kept:\n{result.stdout}"
        # Where a structure may grow, abidiff takes another last member, too.
        have = members(now)
        for name, old in members(read(before)).items():
            if have.get(name, [])[:len(old)] != old:
                yield f"{before.name}: {name} has other members"


def number(version):
    return tuple(int(part) for part in version.split("."))


def releases(root):
    """The header's version, the last release by CHANGELOG.md or None, and
    whether there are changes since."""
    version = ".".join(re.findall(
        r"define UCX_GAUDI_VERSION_(?:MAJOR|MINOR|PATCH) (\d+)",
        read(root, HEADER)))
    headings = re.findall(r"^## (.*)$", read(root, "CHANGELOG.md"), re.M)
    unreleased = headings[:1] == ["Unreleased"]
    told = [re.fullmatch(r"(\d+\.\d+\.\d+) - \d{4}-\d\d-\d\d", heading)
            for heading in headings[unreleased:]]
    return version, headings[unreleased:], told, unreleased


def check_releases(root):
    version, headings, told, unreleased = releases(root)
    for heading, found in zip(headings, told):
        if found is None:
            yield (f"CHANGELOG.md: '{heading}' is not 'Unreleased' at the top, "
                   "nor 'VERSION - YEAR-MONTH-DAY'")
            return
    numbers = [number(found[1]) for found in told]
    if numbers != sorted(set(numbers), reverse=True):
        yield "CHANGELOG.md: releases are not in order, the newest first"
    kept = [re.fullmatch(ABI.format(r"(\d+\.\d+\.\d+)"), name)
            for name in (str(path.relative_to(root))
                         for path in root.glob("test/abi/*"))]
    if len(kept) != 1 or kept[0] is None:
        yield f"{ABI.format('VERSION')} is not all that is in its folder"
        return
    last = told[0][1] if told else kept[0][1] # before the first release
    if kept[0][1] != last:
        yield f"{kept[0][0]} is kept, and the last release is {last}"
    if (version != last) and not (unreleased and
                                  number(version) > number(last)):
        yield f"{HEADER}: version {version}, and the last release is {last}"


def keep(root, build):
    version = releases(root)[0]
    with scratch() as folder:
        text, _ = abi_of(root, build, folder)
    for path in root.glob(ABI.format("*")):
        path.unlink()
    (root / ABI.format(version)).write_text(text)


def main(*arguments):
    root, build = (pathlib.Path(path).resolve() for path in arguments[-2:])
    if arguments[0] == "--keep":
        keep(root, build)
    problems = list(check_releases(root))
    for before in root.glob(ABI.format("*")):
        problems += changes(root, build, before)
    report(problems, "what programs were built with still works")


if __name__ == "__main__":
    main(*sys.argv[1:])
