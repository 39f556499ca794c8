#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Fails when cmake/Ucx.cmake or scripts/fetch-ucx-source takes source trees that
it must not, or does not say why.

usage: check_ucx_sources.py ROOT

Projects that do no more than include the former are configured, with trees that
have only what it looks for.
"""

import os
import pathlib
import re
import sys
import tempfile

from common import report, run

PROJECT = """cmake_minimum_required(VERSION 3.22)
project(sources LANGUAGES C)
list(APPEND CMAKE_MODULE_PATH "{root}/cmake")
include(Ucx)
message(STATUS "releases: ${{UCX_RELEASES}} .")
foreach(release IN LISTS UCX_RELEASES)
  ucx_suffix(${{release}} suffix)
  add_library(user${{suffix}} SHARED user.c)
  target_link_libraries(user${{suffix}} PRIVATE UCX::private${{suffix}}
    UCX::ucp${{suffix}} UCX::uct${{suffix}} UCX::ucs${{suffix}}
    UCX::ucm${{suffix}})
  target_link_options(user${{suffix}} PRIVATE -Wl,--no-undefined)
endforeach()
"""
USER = """#include <config.h>
#include <config.h>
#if !ENABLE_MT
#error the configuration is lost
#endif
void uct_iface_close(void);
void user(void);
void user(void) { uct_iface_close(); }
"""
# As UCX's configure leaves it.
CONFIGURATION = ("#ifndef UCX_CONFIG_H\n#define UCX_CONFIG_H\n"
                 "#define ENABLE_MT 1\n#endif\n")


def make_tree(place, name, version):
    tree = place / name
    for folder in ("uct/base", "uct/api", "ucp/api", "ucs", "ucm", "tools/perf"):
        (tree / "src" / folder).mkdir(parents=True)
    (tree / "src/uct/base/uct_md.h").write_text(
        "void uct_iface_close(void);\n")
    (tree / "src/uct/api/version.h.in").write_text("@MINOR_VERSION@\n")
    (tree / "src/ucp/api/ucp_version.h.in").write_text("@MINOR_VERSION@\n")
    numbers = zip(("major", "minor", "patch"), version.split("."))
    (tree / "configure.ac").write_text("".join(
        f"define([ucx_ver_{part}], {number})  # a comment\n"
        for part, number in numbers))
    return tree


def configure(place, *options, build=None, **environment):
    """Whether it works, and what it says on one line. The cache is the one in
    `place`, unless there is a changed environment that tells."""
    project = place / "project"
    if not environment:
        options = (f"-DUCX_SOURCE_CACHE={place}/cache", *options)
    with tempfile.TemporaryDirectory(dir=place) as fresh:
        result = run(["cmake", "-S", project, "-B", build or fresh, "-G",
                      "Ninja", *options], env={**os.environ, **environment})
    return result.returncode == 0, re.sub(r"\s+", " ", result.stdout)


def check(place, installed):
    """What is wrong with each of these: options, whether they are right, and
    what is said of them."""
    here = make_tree(place, "here", installed)
    release = installed.rsplit(".", 1)[0]
    new = make_tree(place, "new", "1.18.9")
    again = make_tree(place, "again", "1.18.8")
    old = make_tree(place, "old", "1.12.0")
    configured = make_tree(place, "configured", "1.20.9")
    (configured / "config.h").write_text(CONFIGURATION)
    broken = make_tree(place, "broken", "1.20.9")
    (broken / "config.h").write_text("nothing\n")
    make_tree(place / "cache", "ucx-1.22.0", "1.22.0")
    for version in (installed, "1.20.3", "1.20.12", "1.12.9"):
        make_tree(place / "several", f"ucx-{version}", version)
    make_tree(place / "branch", "ucx-1.22.0", "1.22.0")
    tree = make_tree(place / "branch", "ucx-1.22.0-7512d054", "1.22.0")
    (tree / "src/uct/api/uct.h").write_text(
        "void uct_md_mem_elem_release(void);\n")
    make_tree(place / "branch", f"ucx-{installed}", installed)
    nothing = place / "nothing"
    nothing.mkdir()

    def trees(*names):
        return "-DUCX_SOURCE_DIRS=" + ";".join(map(str, names))

    cases = [
        ([trees(here, new)], True, f"releases: {release};1.18"),
        ([trees(here, configured)], True, "config.h from there"),
        ([trees(new), "-DUCX_RELEASE=1.18"], True, "releases: 1.18 ."),
        (["-DUCX_RELEASE=1.22"], True, "are not those of UCX 1.22.0"),
        ([f"-DUCX_SOURCE_CACHE={place}/several"], True,
         f"releases: {release};1.20 ."),
        ([f"-DUCX_SOURCE_CACHE={place}/branch"], True,
         f"releases: {release};1.22;1.22-"),
        ([trees(here, new, again)], False, "are both UCX 1.18"),
        ([trees(here, old)], False, "UCX 1.12.0"),
        ([trees(here, nothing)], False, "is no source tree of UCX"),
        ([trees(here, broken)], False, "how UCX was configured"),
        ([trees(here), "-DUCX_RELEASE=1.20"], False, "no source of it"),
        ([trees(here), "-DUCX_RELEASE=new"], False, "is no release of UCX"),
    ]
    for options, right, text in cases:
        done, said = configure(place, *options)
        if done != right or text not in said:
            yield (f"{options}: {'works' if done else 'fails'}, and does not "
                   f"say '{text}':\n{said}")
    kept = make_tree(place / "home/.cache/ucx-gaudi", f"ucx-{installed}",
                     installed)
    done, said = configure(place, HOME=f"{place}/home", XDG_CACHE_HOME="")
    if not done or f"in {kept}" not in said:
        yield f"an empty XDG_CACHE_HOME is none, but:\n{said}"
    done, said = configure(place, HOME="", XDG_CACHE_HOME="")
    if done or "Neither HOME nor XDG_CACHE_HOME is set" not in said:
        yield f"sources are looked for without HOME:\n{said}"


def make_ucx(prefix, version="1.18.9"):
    """A UCX that has what cmake/UcxInstalled.cmake looks at."""
    for folder in ("bin", "include/ucp/api", "lib/pkgconfig"):
        (prefix / folder).mkdir(parents=True)
    (prefix / "bin/ucx_info").write_text(
        f"#!/bin/sh\necho '# Library version: {version}'\n"
        "echo '#define ENABLE_MT 1'\n")
    (prefix / "bin/ucx_info").chmod(0o755)
    (prefix / "lib/pkgconfig/ucx.pc").write_text(
        f"prefix={prefix}\nName: ucx\nDescription: UCX\nVersion: {version}\n")
    (prefix / "include/ucp/api/ucp.h").write_text(
        "#define UCP_API_MAJOR 1\n"
        f"#define UCP_API_MINOR {version.split('.')[1]}\n"
        "const char *ucp_get_version_string(void);\n")
    for lib in ("ucp", "uct", "ucs", "ucm"):
        run(["cc", "-shared", "-fPIC", "-xc", "-o", f"{prefix}/lib/lib{lib}.so",
             "-"], input='const char *ucp_get_version_string(void) '
                         f'{{ return "{version}"; }}\n').check_returncode()
    return prefix


def check_prefixes(place, installed):
    """What is wrong with a second UCX, however it is chosen."""
    other = make_ucx(place / "other ucx")
    old = make_ucx(place / "old ucx", "1.12.1")
    options = [f"-DUCX_SOURCE_DIRS={place}/here;{place}/new"]
    build = place / "mixed first"
    for given, changes, right, text in (
            ([], {"CMAKE_PREFIX_PATH": str(other)}, True,
             "which comes first in PATH"),
            ([], {"PATH": f"{other}/bin:{os.environ['PATH']}"}, True,
             "releases: 1.18;"),
            ([], {"PKG_CONFIG_PATH": f"{other}/lib/pkgconfig"}, True,
             "releases: 1.18;"),
            ([f"-DUCX_ROOT={other}"], {}, True, "releases: 1.18;"),
            ([f"-DUCX_ROOT={old}"], {}, False,
             "UCX 1.12 is not supported: this project is for UCX 1.13 to")):
        done, said = configure(place, *options, *given, build=build, **changes)
        if done != right or text not in said:
            yield (f"with {given} {changes} beside UCX {installed} cmake does "
                   f"not say '{text}':\n{said}")
    done, said = configure(place, *options, CMAKE_PREFIX_PATH="",
                           *[f"-DUCX_INCLUDE_DIR={other}/include"])
    if done or "are UCX 1.18, and" not in said:
        yield f"headers of another UCX are taken:\n{said}"


def check_build(place, installed):
    """What is wrong with building, in a folder whose name is not plain, and with
    what is changed in a tree afterwards."""
    here = make_tree(place, "plain", installed)
    (here / "config.h").write_text(CONFIGURATION)
    tree = make_tree(place, "changing", "1.18.9")
    build = place / "a build, to look at"
    run(["cmake", "-S", place / "project", "-B", build, "-G", "Ninja",
         f"-DUCX_SOURCE_DIRS={here};{tree}",
         f"-DUCX_SOURCE_CACHE={place}/cache"]).check_returncode()

    def said():
        result = run(["cmake", "--build", build])
        return re.sub(r"\s+", " ", result.stdout) + (
            " failed" if result.returncode else "")

    first = said()
    library = build / "libuser-1.18.so"
    if first.endswith("failed") or not library.exists():
        yield f"a build for several releases fails:\n{first}"
        return
    needed = run(["readelf", "-d", library]).stdout
    if "libuct.so.0" not in needed:
        yield f"what is built needs no libuct.so.0:\n{needed}"
    if "RUNPATH" in needed or "RPATH" in needed:
        yield f"what is built finds the stand-ins:\n{needed}"
    (tree / "config.h").write_text(CONFIGURATION)
    if "headers of 1.18.9 in" not in (text := said()) or \
            "No config.h" in text:
        yield f"a config.h that comes is not noticed:\n{text}"
    configure_ac = tree / "configure.ac"
    configure_ac.write_text(configure_ac.read_text().replace("9)", "7)"))
    if "headers of 1.18.7 in" not in (text := said()):
        yield f"another configure.ac is not noticed:\n{text}"
    (tree / "config.h").unlink()
    if f"No config.h is in {tree}" not in (text := said()):
        yield f"a config.h that goes is not noticed:\n{text}"


def fetch(root, *arguments, **environment):
    result = run([f"{root}/scripts/fetch-ucx-source", *map(str, arguments)],
                 env={**os.environ, **environment})
    return result.returncode == 0, result.stdout


def check_script(root, place):
    cache = place / "kept"
    tree = make_tree(cache, "ucx-1.18.9", "1.18.9")
    make_tree(cache, "ucx-1.18.8", "1.18.9")
    make_tree(cache, "ucx-1.22.0", "1.22.0")
    commit = make_tree(cache, "ucx-1.18.7-1df7b045", "1.18.7")
    development = make_tree(cache, "ucx-1.23.0", "1.23.0")
    branch = make_tree(cache, "ucx-1.22.0-7512d054", "1.22.0")
    for arguments, right, text in (
            (["1.18.9"], True, str(tree)),
            (["1.18.9", "1.18.8"], False, "is UCX 1.18.9, not 1.18.8"),
            (["1.22.0"], False, "are not those of UCX 1.22.0"),
            (["1.18"], False, "'1.18' is no version"),
            (["1.18.7-1df7b045"], True, str(commit)),
            (["--print-checksum", commit], True, "1.18.7-1df7b045 1df7b045 "),
            (["--print-checksum", place], False, "is no source tree"),
            (["--print-checksum", tree], True, "1.18.9 v1.18.9 "),
            (["--print-checksum", development], True,
             "1.23.0 9466d104a317c8ffddd9734e72055d8bbda021b3 "),
            (["--print-checksum", branch], True, "1.22.0-7512d054 "
             "7512d054ca1eb2929edf525a80cbca816228433b "),
            (["--cache", ""], False, "--cache needs a folder")):
        done, said = fetch(root, "--cache", cache, *arguments)
        if done != right or text not in said:
            yield (f"fetch-ucx-source {arguments}: "
                   f"{'works' if done else 'fails'}, and does not say "
                   f"'{text}':\n{said}")
    done, said = fetch(root, "1.18.9", HOME="", XDG_CACHE_HOME="")
    if done or "neither HOME nor XDG_CACHE_HOME" not in said:
        yield f"fetch-ucx-source puts sources somewhere without HOME:\n{said}"
    sums = [fetch(root, "--print-checksum", tree)[1]]
    for name in ("one.c", "one.h"):
        (tree / "src/ucs" / name).write_text("extern int one;\n")
        sums.append(fetch(root, "--print-checksum", tree)[1])
    if sums[0] != sums[1] or sums[1] == sums[2]:
        yield f"the checksum is not one of headers: {sums}"


def installed_version():
    return re.search(r"[Vv]ersion[: ]+(\d+\.\d+\.\d+)",
                     run(["ucx_info", "-v"]).stdout)[1]


def main(root):
    with tempfile.TemporaryDirectory() as place:
        place = pathlib.Path(place)
        (place / "project").mkdir()
        (place / "project/CMakeLists.txt").write_text(PROJECT.format(root=root))
        (place / "project/user.c").write_text(USER)
        installed = installed_version()
        report([*check_script(root, place), *check(place, installed),
                *check_prefixes(place, installed),
                *check_build(place, installed)],
               "the build takes the source trees that it should")


if __name__ == "__main__":
    main(os.path.abspath(sys.argv[1]))
