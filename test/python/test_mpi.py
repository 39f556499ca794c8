#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""The example for mpi4py, by the MPI library that mpi4py is built for.

usage: test_mpi.py ROOT BUILD_DIRECTORY [unittest's arguments]
"""

import os
import unittest

import common

EXAMPLE = common.ROOT / "examples/mpi4py_device_buffers.py"
OPTIONS = ["--oversubscribe", "--mca", "pml", "ucx",
           "--mca", "opal_common_ucx_tls", "any",
           "--mca", "opal_common_ucx_devices", "any"]
if os.geteuid() == 0:
    OPTIONS.append("--allow-run-as-root")


class Mpi4py(unittest.TestCase):
    def check(self, ranks, *launcher, **variables):
        said = common.run("mpiexec.openmpi", "-n", str(ranks), *OPTIONS,
                          *launcher, "/usr/bin/python3", "-B", EXAMPLE,
                          **variables)
        self.assertEqual(ranks, said.count("has what was sent"), said)
        self.assertNotIn("WARN", said)

    def test_sends_device_memory_under_the_launcher(self):
        self.check(2, common.BUILD / "bin/ucx-gaudi", "run", "--emulate", "--",
                   UCX_GAUDI_DRIVER="")

    def test_sends_device_memory_where_the_package_comes_first(self):
        self.check(3)


if __name__ == "__main__":
    common.main()
