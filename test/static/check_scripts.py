#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Fails when the scripts let through what they must not.

usage: check_scripts.py ROOT

Settings of the caller's shell, CDPATH among them, and tests that were skipped
without need.
"""

import glob
import os
import re
import shutil
import subprocess
import sys
import tempfile

from common import read, report, run

FOREIGN = ["UCX_TLS", "UCX_NET_DEVICES", "UCX_LOG_LEVEL", "HLTHUNK_EMU_DEVICES",
           "HABANA_VISIBLE_DEVICES", "HLS_MODULE_ID", "GAUDI_MAPPING_TABLE",
           "OMPI_MCA_btl", "MPICH_CC", "GTEST_FILTER", "CTEST_PARALLEL_LEVEL",
           "ASAN_OPTIONS", "PYTHON_UCX_GAUDI_LIBRARY"]
HONOURED = ["HOME", "XDG_CACHE_HOME", "TMPDIR", "https_proxy",
            "CMAKE_BUILD_PARALLEL_LEVEL", "CMAKE_CXX_COMPILER_LAUNCHER",
            "CMAKE_PREFIX_PATH", "PKG_CONFIG_PATH", "CMAKE_LIBRARY_PATH",
            "CCACHE_DIR", "GAUDI_TEST_HLTHUNK", "GAUDI_TEST_NO_SKIPS",
            "GAUDI_TEST_SETTINGS", "GAUDI_TEST_KERNEL"]
# A cluster's tools: used, and said.
TOOLS = ["CC", "CXX", "CFLAGS", "CXXFLAGS", "LDFLAGS", "CPATH", "LIBRARY_PATH",
         "LD_LIBRARY_PATH", "PYTHONPATH"]

BARE = {"PATH": os.environ["PATH"]}

# A script up to the line that does so.
CHANGES_FOLDER = re.compile(r".*?^[^#\n]*\bcd .*BASH_SOURCE.*?\n", re.M | re.S)

LEFT_OUT = """<testcase name="one.skips"><skipped message=""/>
<system-out>{reason}</system-out></testcase>"""
FAILED = ('<testsuite><testcase name="one.runs" status="run"/>'
          '<testcase name="one.fails"><failure message=""/><system-out>'
          + "the first line" + "\n" * 20 + "the last line"
          '</system-out></testcase>'
          '<testcase name="one.expects"><failure message=""/><system-out>'
          + "the first line" + "\ntest_one.cc:5: Failure\nwhat it expects"
          + "\n" * 20 + "the summary</system-out></testcase></testsuite>")
SKIPPED = """<testsuite><testcase name="one.runs" status="run"/>
<testcase name="one.skips"><skipped message=""/>
<system-out>here: Skipped
{reason}</system-out></testcase></testsuite>"""


def check_environment(root):
    given = {name: "/nowhere" for name in FOREIGN + HONOURED + TOOLS}
    result = subprocess.run(
        ["bash", "-c", ". scripts/environment; exec env -0"], cwd=root,
        env=BARE | given, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True, check=True)
    left = {entry.split("=")[0] for entry in result.stdout.split("\0")}
    used, _, told = result.stderr.partition("not used")
    used, told = used.split(), told.split()
    for name in FOREIGN:
        if name in left:
            yield f"scripts/environment leaves {name}"
        if name not in told:
            yield f"scripts/environment does not tell that it clears {name}"
    for name in HONOURED + TOOLS:
        if name not in left:
            yield f"scripts/environment clears {name}"
        if (name in TOOLS) != (name in used):
            yield f"scripts/environment says of what it uses: {used}"


def check_path(root):
    """Programs are of the UCX that CMake finds."""
    for given in ({"CMAKE_PREFIX_PATH": "/a b:/c"},
                  {"CMAKE_PREFIX_PATH": "/c", "UCX_ROOT": "/a b"}):
        said = run(["bash", "-c", ". scripts/environment; "
                    "echo ${UCX_ROOT-}$CMAKE_PREFIX_PATH:$PATH"], cwd=root,
                   env=BARE | given).stdout
        if said != f"/a b:/c:/a b/bin:/c/bin:{BARE['PATH']}\n":
            yield f"with {given} programs are looked for in {said}"


def check_read_only(root):
    result = run(["bash", "-c", "export UCX_TLS=gcc; readonly UCX_TLS; "
                  "set -e; . scripts/environment; echo went on"], cwd=root,
                 env=BARE)
    if result.returncode == 0 or "UCX_TLS is read-only" not in result.stdout:
        yield f"scripts/environment with a read-only UCX_TLS: {result.stdout}"


def check_cdpath(root):
    """Runs each script up to its cd, from where CDPATH leads elsewhere."""
    checked = 0
    for path in [".ci/run", *glob.glob("scripts/*", root_dir=root),
                 *glob.glob("test/tools/*", root_dir=root)]:
        start = CHANGES_FOLDER.match(read(root, path))
        if start is None:
            continue
        checked += 1
        with tempfile.TemporaryDirectory() as place:
            place = os.path.realpath(place)
            for tree in ("here", "elsewhere"):
                os.makedirs(os.path.join(place, tree, os.path.dirname(path)))
            with open(os.path.join(place, "here", path), "w",
                      encoding="utf-8") as file:
                file.write(start.group() + "pwd\n")
            result = run(["bash", path], cwd=os.path.join(place, "here"),
                         env=BARE | {"CDPATH": os.path.join(place,
                                                            "elsewhere")})
            if result.stdout != os.path.join(place, "here") + "\n":
                yield f"{path} follows CDPATH to {result.stdout}"
    if checked == 0:
        yield "no script was found that changes its folder"


# In packages of the list `build`, or of every system.
OF_BUILD = {"readelf", "ucx_info", "unshare"}


def check_build_needs(root):
    """What the list `build` of install-packages has is enough to configure:
    programs of its other lists are hidden."""
    lists = dict(re.findall(r"^(\w+)='\n(.*?)^'", read(
        root, "scripts/install-packages"), re.M | re.S))
    programs = {name: set(re.findall(r"^([a-z][\w.+-]*) ", rows, re.M))
                for name, rows in lists.items()}
    hidden = [path for name in set().union(*programs.values())
              if name not in programs["build"] | OF_BUILD and
              (path := shutil.which(name)) is not None]
    namespace = ["unshare", "--mount"]
    if os.geteuid() != 0:
        namespace.append("--map-root-user")
    if run([*namespace, "true"]).returncode != 0:
        print("no namespace of mounts: what a build needs is not checked")
        return
    with tempfile.TemporaryDirectory() as place:
        result = run([*namespace, "sh", "-euc", 'for program; do\n'
                      'mount --bind /dev/null "$(realpath "$program")"\ndone\n'
                      'exec cmake -S "$0" -B build -G Ninja '
                      "-DCMAKE_DISABLE_FIND_PACKAGE_GTest=ON "
                      "-DCMAKE_DISABLE_FIND_PACKAGE_benchmark=ON", root,
                      *hidden], cwd=place)
    if len(hidden) < 5 or result.returncode != 0:
        yield (f"without {' '.join(sorted(hidden))} this cannot be built:\n"
               f"{result.stdout}")


def judge(root, results, *options, **setting):
    """What test/tools/results makes of results of tests."""
    with tempfile.NamedTemporaryFile("w", suffix=".xml") as file:
        file.write(results)
        file.flush()
        return run([os.path.join(root, "test/tools/results"), *options,
                    file.name, *(["/nowhere/tests-none.xml"] if options
                                 else [])], env=BARE | setting)


def check_skips(root):
    refused = "The system refuses this: unshare: Operation not permitted"
    for reason, setting, right in (
            (refused, {}, True), (refused, {"GAUDI_TEST_NO_SKIPS": "1"}, False),
            ("no time today", {}, False), ("", {}, False)):
        result = judge(root, SKIPPED.format(reason=reason), **setting)
        if (result.returncode == 0) != right:
            yield f"a test skipped with '{reason}': {result.stdout}"
        if "one.skips" not in result.stdout or "one.runs" in result.stdout:
            yield f"the list of skipped tests is wrong: {result.stdout}"


def check_left_out(root):
    case = LEFT_OUT.format(reason="These cards do not have it: a reason")
    for settings, accepted in (
            ("GAUDI_TEST_FRAMEWORK=y", True),
            ("GAUDI_TEST_FRAMEWORK=y HLTHUNK_EMU_ASIC=gaudi3", True),
            ("HLTHUNK_EMU_IMPORT=n", True),
            ("UCX_GAUDI_IPC_ROUTES=host", False), ("", False)):
        result = judge(root, f"<testsuite>{case}</testsuite>",
                       GAUDI_TEST_SETTINGS=settings)
        if (result.returncode == 0) != accepted:
            yield f"one left out with '{settings}': {result.stdout}"


def check_failed(root):
    output = judge(root, FAILED, "--failed").stdout
    for wanted in (": one.fails\n", "    the last line\n",
                   ": one.expects\n", "    what it expects\n",
                   "tests-none.xml was not written\n"):
        if wanted not in output:
            yield f"the list of failed tests has no '{wanted}': {output}"
    for unwanted in ("one.runs", "the first line", "the summary"):
        if unwanted in output:
            yield f"the list of failed tests has '{unwanted}': {output}"


def check_help(root):
    """Each script says how it is called, and does nothing else."""
    for path in glob.glob("scripts/*", root_dir=root):
        for option in ("-h", "--help"):
            if not os.access(os.path.join(root, path), os.X_OK):
                continue
            result = run([os.path.join(root, path), option], env=BARE)
            if (result.returncode != 0 or
                    not re.search(r"^usage: ", result.stdout, re.M) or
                    "#" in result.stdout):
                yield f"{path} {option}: {result.stdout}"


def check_no_network(root):
    """A machine without cmake, on which apt-get says why it failed."""
    for said in ("Err:1 x Temporary failure resolving 'x'",
                 "E: dpkg was interrupted"):
        with tempfile.TemporaryDirectory() as place:
            for name in os.listdir("/usr/bin"):
                if not name.startswith(("apt-get", "cmake", "id")):
                    os.symlink(f"/usr/bin/{name}", f"{place}/{name}")
            for name, body in (("apt-get", f'echo "{said}"; exit 100'),
                               ("id", "echo 0")):
                path = os.path.join(place, name)
                with open(path, "w", encoding="utf-8") as file:
                    file.write(f"#!/bin/sh\n{body}\n")
                os.chmod(path, 0o755)
            result = run(
                [os.path.join(root, "scripts/install-packages"), "build"],
                env={"PATH": place})
        for wanted in (said, "apt-get failed; missing: cmake (apt-get install "
                       "cmake, or dnf install cmake)"):
            if result.returncode != 1 or wanted not in result.stdout:
                yield f"install-packages, with '{said}': {result.stdout}"


def main(root):
    report([*check_environment(root), *check_path(root),
            *check_build_needs(root),
            *check_read_only(root),
            *check_cdpath(root), *check_skips(root), *check_left_out(root),
            *check_failed(root), *check_help(root),
            *check_no_network(root)],
           "the scripts let through what they should")


if __name__ == "__main__":
    main(os.path.abspath(sys.argv[1]))
