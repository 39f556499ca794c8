#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""The Python package in processes that start in different ways.

usage: test_processes.py ROOT BUILD_DIRECTORY [unittest's arguments]
"""

import unittest

import common

LAUNCHER = common.BUILD / "bin/ucx-gaudi"
LOADER = common.BUILD / "lib/libuct_hlthunk.so.0"

USE = """
import ucx_gaudi
with ucx_gaudi.Buffer(1000) as buffer:
    assert buffer.fill(5).tobytes() == bytes([5]) * 1000
print("used")
"""

FORKING = """
import multiprocessing
import ucx_gaudi

def use(value):
    with ucx_gaudi.Buffer(1000) as buffer:
        assert buffer.fill(value).tobytes() == bytes([value]) * 1000
    ucx_gaudi.close()
    return value

def use_in_children():
    with multiprocessing.get_context("fork").Pool(2) as pool:
        assert pool.map(use, range(8)) == list(range(8))

if __name__ == "__main__":
    use_in_children()
    use(1)
    use_in_children()
    with ucx_gaudi.Buffer(10):
        try:
            use_in_children()
        except ucx_gaudi.Error as error:
            print(error.status)
"""

REFUSED = """
import ucx_gaudi
print(ucx_gaudi.cards())
try:
    ucx_gaudi.Buffer(10)
except ucx_gaudi.Error as error:
    print(error.status, error)
"""


class Processes(unittest.TestCase):
    def test_need_nothing_but_the_package(self):
        self.assertEqual("used\n", common.run_python(USE))

    def test_may_be_started_by_the_launcher(self):
        for options in (["--emulate"], ["--emulate", "--slot"]):
            said = common.run(LAUNCHER, "run", *options, "--",
                              "/usr/bin/python3", "-B", "-c", USE,
                              UCX_GAUDI_DRIVER="")
            self.assertEqual("used\n", said)

    def test_may_be_forked_by_who_has_nothing_open(self):
        said = common.run_python(FORKING)
        self.assertIn("-22\n", said)
        self.assertIn("forked from one that had UCX or cards open", said)

    def test_find_the_library_by_a_variable(self):
        self.assertEqual("used\n", common.run_python(
            USE, PYTHON_UCX_GAUDI_LIBRARY=str(LOADER)))
        said = common.run_python("import ucx_gaudi", code=1,
                                 PYTHON_UCX_GAUDI_LIBRARY="/nonexistent.so")
        self.assertIn("ImportError: libuct_hlthunk.so.0 of ucx-gaudi is not to "
                      "be found (PYTHON_UCX_GAUDI_LIBRARY can name it)", said)

    def test_may_have_no_module(self):
        loader = common.BUILD / "test-tools/no-module/libuct_hlthunk.so.0"
        said = common.run_python(REFUSED, PYTHON_UCX_GAUDI_LIBRARY=str(loader))
        self.assertIn("[]\n", said)
        self.assertIn("-14 ucx_gaudi_mem_alloc: ", said)
        lines = [line for line in said.splitlines()
                 if line.startswith("ucx-gaudi: ")]
        self.assertEqual(1, len(lines), said)
        self.assertIn("no module fits UCX", lines[0])

    def test_may_end_with_memory(self):
        self.assertEqual("", common.run_python(
            "import ucx_gaudi\n"
            "kept = [ucx_gaudi.Buffer(1000).fill(1) for _ in range(10)]\n"
            "kept.append(kept)\n"))

    def test_are_warned_when_ucx_came_first(self):
        first = ("import ctypes\n"
                 "ctypes.CDLL('libucp.so.0', mode=ctypes.RTLD_GLOBAL)\n")
        said = common.run_python(first + USE)
        self.assertIn("<string>:4: RuntimeWarning: UCX was loaded before "
                      "ucx_gaudi", said)
        self.assertIn("used\n", said)
        said = common.run(LAUNCHER, "run", "--emulate", "--",
                          "/usr/bin/python3", "-B", "-c", first + USE,
                          UCX_GAUDI_DRIVER="")
        self.assertEqual("used\n", said)


if __name__ == "__main__":
    common.main()
