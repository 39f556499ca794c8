#!/usr/bin/env python3
"""Fails when the scripts let through what they must not.

usage: check_scripts.py ROOT

Settings of the caller's shell, and tests that were skipped without need.
"""

import os
import subprocess
import sys
import tempfile

from common import report

FOREIGN = ["UCX_TLS", "UCX_NET_DEVICES", "UCX_LOG_LEVEL", "HLTHUNK_EMU_DEVICES",
           "HABANA_VISIBLE_DEVICES", "HLS_MODULE_ID", "GAUDI_MAPPING_TABLE",
           "OMPI_MCA_btl", "MPICH_CC", "GTEST_FILTER", "CTEST_PARALLEL_LEVEL",
           "CMAKE_GENERATOR", "CMAKE_GENERATOR_PLATFORM", "CMAKE_PREFIX_PATH",
           "ASAN_OPTIONS", "CC", "CXX", "CFLAGS", "CXXFLAGS", "LDFLAGS",
           "CPATH", "PKG_CONFIG_LIBDIR", "LD_LIBRARY_PATH"]
HONOURED = ["HOME", "XDG_CACHE_HOME", "TMPDIR", "https_proxy",
            "CMAKE_BUILD_PARALLEL_LEVEL", "CMAKE_CXX_COMPILER_LAUNCHER",
            "CCACHE_DIR", "GAUDI_TEST_HLTHUNK"]

SKIPPED = """<testsuite><testcase name="one.runs" status="run"/>
<testcase name="one.skips"><skipped message=""/>
<system-out>here: Skipped
{reason}</system-out></testcase></testsuite>"""


def check_environment(root):
    given = {name: "/nowhere" for name in FOREIGN + HONOURED}
    result = subprocess.run(
        ["bash", "-c", ". scripts/environment; exec env -0"], cwd=root,
        env={"PATH": os.environ["PATH"], **given}, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True, check=True)
    left = {entry.split("=")[0] for entry in result.stdout.split("\0")}
    told = result.stderr.split()
    for name in FOREIGN:
        if name in left:
            yield f"scripts/environment leaves {name}"
        if name not in told:
            yield f"scripts/environment does not tell that it clears {name}"
    for name in HONOURED:
        if name not in left:
            yield f"scripts/environment clears {name}"


def check_skips(root):
    refused = "The system refuses this: unshare: Operation not permitted"
    for reason, right in ((refused, True), ("no time today", False), ("", False)):
        with tempfile.NamedTemporaryFile("w", suffix=".xml") as file:
            file.write(SKIPPED.format(reason=reason))
            file.flush()
            result = subprocess.run(
                [os.path.join(root, "scripts/skipped-tests"), file.name],
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                check=False)
        if (result.returncode == 0) != right:
            yield f"a test skipped with '{reason}': {result.stdout}"
        if "one.skips" not in result.stdout or "one.runs" in result.stdout:
            yield f"the list of skipped tests is wrong: {result.stdout}"


def main(root):
    report([*check_environment(root), *check_skips(root)],
           "the scripts let through what they should")


if __name__ == "__main__":
    main(os.path.abspath(sys.argv[1]))
