#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Fails when a program that was built with the last release's ucx_gaudi.h would
no longer work with this library; and when releases are told in two ways.

usage: check_abi.py [--keep] ROOT BUILD_DIRECTORY
       --keep: what this tree declares becomes that of the release

test/abi/ucx_gaudi-VERSION.txt has the declarations of the last release's header,
one a line. Functions, types, enumerators, and members at the end of what is
queried with a field_mask may come; nothing may go or change, not even the name of
a parameter.
"""

import pathlib
import re
import sys

from common import read, report, run

HEADER = "src/program/ucx_gaudi.h"
LIBRARY = "lib/libuct_hlthunk.so.0"
ABI = "test/abi/ucx_gaudi-{}.txt"
COMPOUND = re.compile(r"(?:typedef )?(enum|struct) (\w+) \{ (.*?)[ ,]*\}.*")


def declarations(header):
    """Of a header: each declaration in one line."""
    text = re.sub(r"/\*(?:.|\n)*?\*/|^#(?:.*\\\n)*.*$|extern \"C\" \{", "", header,
                  flags=re.M)
    text = re.sub(r"\s+", " ", text).replace("( ", "(")
    return [one.strip() + ";" for one in
            re.findall(r"[^;{}]+(?:\{[^}]*\}[^;]*)?;", text)
            for one in [one.rstrip(";")]]


def enumerators(body):
    """Their values by their names."""
    values, following = {}, 0
    for one in body.split(", "):
        name, _, value = one.partition(" = ")
        first, _, second = value.partition(" << ")
        values[name] = (int(first) << int(second or 0)) if value else following
        following = values[name] + 1
    return values


def is_kept(old, now):
    """Whether what a declaration says holds for one of these, too."""
    compound = COMPOUND.fullmatch(old)
    if compound is None:
        return old in now
    kind, name, body = compound.groups()
    for found in filter(None, map(COMPOUND.fullmatch, now)):
        if found.groups()[:2] == (kind, name):
            if kind == "enum":
                return (enumerators(body).items() <=
                        enumerators(found[3]).items())
            return (found[3].startswith(body) if name.endswith("_attr")
                    else found[3] == body)
    return False


def changes(root, build, before):
    now = declarations(read(root, HEADER))
    for old in read(before).splitlines():
        if not is_kept(old, now):
            yield f"{before.name} is not kept: {old}"
    names = run(["nm", "-D", "--defined-only", "-j", build / LIBRARY]).stdout
    for name in sorted({found[1] for found in
                        (re.search(r"\b(ucx_gaudi_\w+)\(", one) for one in now)
                        if found} - set(names.split())):
        yield f"{LIBRARY} has no {name}, which {HEADER} declares"


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


    for name, pattern in (("debian/changelog", r"\A\S+ \(([\d.]+)-"),
                          ("packaging/ucx-gaudi.spec", r"^Version: (\S+)$"),
                          ("src/program/python/pyproject.toml",
                           r'^version = "(.*)"$')):
        found = re.search(pattern, read(root, name), re.M)
        if found is None or found[1] != version:
            yield f"{name}: not version {version}"


def keep(root):
    for path in root.glob(ABI.format("*")):
        path.unlink()
    (root / ABI.format(releases(root)[0])).write_text(
        "\n".join(declarations(read(root, HEADER))) + "\n")


def main(*arguments):
    root, build = (pathlib.Path(path).resolve() for path in arguments[-2:])
    if arguments[0] == "--keep":
        keep(root)
    problems = list(check_releases(root))
    for before in root.glob(ABI.format("*")):
        problems += changes(root, build, before)
    report(problems, "what programs were built with still works")


if __name__ == "__main__":
    main(*sys.argv[1:])
