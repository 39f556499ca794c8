#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Fails when a library exports or needs what it must not.

usage: check_exports.py ROOT BUILD_DIRECTORY
"""

import fnmatch
import glob
import os
import re
import sys

from common import is_source, read, report, run, tree_files

# Libraries, SONAME, version script or the exported names; what ucx_gaudi.h
# declares.
LIBRARIES = [
    ("lib/ucx-gaudi/[0-9]*/libuct_hlthunk.so.0", r"libuct_hlthunk-[0-9.]+.so.0",
     "src/uct/gaudi/exports.map"),
    ("lib/hlthunk-emu/libhl-thunk.so", "libhl-thunk.so",
     "src/hlthunk_emulator/exports.map"),
    ("lib/libuct_hlthunk.so.0", "libuct_hlthunk.so.0",
     {"ucm_set_global_opts", "ucp_config_read", "uct_query_components",
      "ucs_module_global_init",
      "__gmon_start__", "mca_accelerator_gaudi_component", "mca_op_gaudi_component",
      "ucx_gaudi_*"}),
]
# What is installed beside these.
OTHERS = ["bin/ucx-gaudi", "lib/hlthunk-emu/libhbl.so",
          "lib/ucx-gaudi/openmpi/*.so"]
# What RHEL 9 has of libc and libgcc. Its libstdc++ is too old.
NEWEST = {"GLIBC": (2, 34), "GCC": (11,), "GLIBCXX": (), "CXXABI": ()}
UCX = re.compile(r"^libuc[mpst]\.so")

# Calls that allocate in libc, or have libstdc++ free what libc allocated: with
# RTLD_DEEPBIND it may be another allocator that frees than libc's.
ALLOCATES = re.compile(
    r"(?<!std::)\b(?:strn?dup|v?asprintf|getline|getdelim|scandir|open_w?memstream|"
    r"reallocarray|canonicalize_file_name|get_current_dir_name)\s*\("
    r"|\brealpath\s*\([^;]*,\s*(?:NULL|nullptr)\s*\)"
    r"|\bgetcwd\s*\(\s*(?:NULL|nullptr)"
    r"|\b(?:fs|filesystem)::(?:weakly_)?(?:canonical|current_path|absolute)\b")

# A row of the shim's table: need, result, name.
ROW = re.compile(r"HLTHUNK_SYMBOL\(\s*\w+,\s*[\w\s*]+,\s*(hlthunk_\w+)")


def output_of(*command):
    result = run(command)
    result.check_returncode()
    return result.stdout


def exported(library):
    names = set()
    for line in output_of("nm", "-D", "--defined-only", library).splitlines():
        words = line.split()
        if len(words) == 3 and words[1] != "A":
            names.add(words[2].split("@")[0])
    return names


def dynamic(library, tag):
    text = output_of("readelf", "-dW", library)
    return re.findall(r"\(" + tag + r"\)[^\[]*\[([^\]]*)\]", text)


def global_patterns(script):
    """The names in the global: part of a version script."""
    text = re.sub(r"/\*.*?\*/|#[^\n]*", "", read(script), flags=re.S)
    part = re.search(r"global:(.*?)(local:|\})", text, flags=re.S)
    return [] if part is None else re.findall(r"[\w*?]+", part[1])


def check(root, build, name, soname, rule):
    library = os.path.join(build, name)
    names = exported(library)
    if isinstance(rule, set):
        rule = (rule - {"ucx_gaudi_*"}) | set(re.findall(
            r"UCX_GAUDI_API [^;{]*?\b(ucx_gaudi_\w+)\(",
            read(root, "src/program/ucx_gaudi.h")))
        extra, missing = names - rule, rule - names
    else:
        patterns = global_patterns(os.path.join(root, rule))
        extra = {n for n in names
                 if not any(fnmatch.fnmatchcase(n, p) for p in patterns)}
        missing = {p for p in patterns if not fnmatch.filter(names, p)}
    for symbol in sorted(extra):
        yield f"{name}: exports {symbol}"
    for symbol in sorted(missing):
        yield f"{name}: does not export {symbol}"

    found = dynamic(library, "SONAME")
    if len(found) != 1 or not re.fullmatch(soname, found[0]):
        yield f"{name}: SONAME is {found}, not {soname}"
    needed = dynamic(library, "NEEDED")
    for other in (n for n in needed if UCX.match(n)):
        yield f"{name}: needs {other}, which has other names in wheels"
    if any(n.startswith("libhl-thunk") for n in needed):
        yield f"{name}: needs the driver, which is opened at run time only"
    if dynamic(library, "RUNPATH") or dynamic(library, "RPATH"):
        yield f"{name}: has a run path"


def check_runtime(build, name):
    """What older systems than that of the build may not have."""
    library = os.path.join(build, name)
    if any(n.startswith("libstdc++") for n in dynamic(library, "NEEDED")):
        yield f"{name}: needs libstdc++ of the system"
    for symbol in sorted(exported(library)):
        if symbol.startswith("_Z"):
            yield f"{name}: exports {symbol}"
    needs = re.findall(r"Name: (\w+)_([\d.]+) ",
                       output_of("readelf", "-VW", library))
    for kind, number in sorted(set(needs)):
        newest = NEWEST.get(kind)
        if newest is not None and tuple(map(int, number.split("."))) > newest:
            yield f"{name}: needs {kind}_{number}"


def check_allocations(root):
    """No source of what others load takes memory from libc's functions."""
    for name in filter(is_source, tree_files(root)):
        if name.startswith("src/") and not name.startswith("src/launcher/"):
            for call in ALLOCATES.findall(read(root, name)):
                yield f"{name}: {call.strip(' (')} allocates in libc"


def check_driver_functions(root, build):
    """Every function in the shim's table is there in the emulator."""
    library = os.path.join(build, "lib/hlthunk-emu/libhl-thunk.so")
    table = os.path.join(root, "src/hlthunk_shim/hlthunk/symbols.def")
    text = re.sub(r"/\*.*?\*/|//[^\n]*", "", read(table), flags=re.S)
    wanted = set(ROW.findall(text))
    if not wanted:
        yield f"{table}: no function was found"
    for symbol in sorted(wanted - exported(library)):
        yield f"{library}: does not export {symbol}"


def main(root, build):
    problems = []
    for pattern, *expected in LIBRARIES:
        names = glob.glob(pattern, root_dir=build)
        if not names:
            problems.append(f"{pattern}: there is none")
        for name in names:
            problems += check(root, build, name, *expected)
    for pattern in OTHERS + [library[0] for library in LIBRARIES]:
        names = glob.glob(pattern, root_dir=build)
        if not names:
            problems.append(f"{pattern}: there is none")
        for name in names:
            problems += check_runtime(build, name)
    problems += check_driver_functions(root, build)
    problems += check_allocations(root)
    report(problems, "the libraries export and need what they should")


if __name__ == "__main__":
    main(*sys.argv[1:])
