#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""The example for mpi4py, by the MPI library that mpi4py is built for, and
Open MPI's OpenSHMEM.

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


# Device memory to the next rank's heap, which is host memory, and back.
SHMEM = """
import contextlib
import ctypes
import ucx_gaudi
# Open MPI 4.1 unloads it while its hook for freed memory is set, and crashes.
with contextlib.suppress(OSError):
    kept = ctypes.CDLL("libmca_common_ucx.so.40")
shmem = ctypes.CDLL("liboshmem.so.40", mode=ctypes.RTLD_GLOBAL)
shmem.shmem_init()
shmem.shmem_malloc.restype = ctypes.c_void_p
rank, ranks = shmem.shmem_my_pe(), shmem.shmem_n_pes()
right = (rank + 1) % ranks
for size in 8, 8192, 1 << 20:
    heap = ctypes.c_void_p(shmem.shmem_malloc(ctypes.c_size_t(size)))
    source, target = ucx_gaudi.Buffer(size), ucx_gaudi.Buffer(size)
    source.fill(1 + rank)
    target.fill(0)
    shmem.shmem_putmem(heap, ctypes.c_void_p(source.pointer),
                       ctypes.c_size_t(size), right)
    shmem.shmem_barrier_all()
    sent = bytes([1 + (rank - 1) % ranks]) * size
    assert ctypes.string_at(heap, size) == sent
    shmem.shmem_getmem(ctypes.c_void_p(target.pointer), heap,
                       ctypes.c_size_t(size), right)
    assert target.tobytes() == bytes([1 + rank]) * size
    shmem.shmem_barrier_all()
shmem.shmem_finalize()
print("a rank has what was sent", flush=True)
"""


class OpenShmem(unittest.TestCase):
    def test_puts_and_gets_device_memory(self):
        for heap, variables in (("mmap", {}), ("sysv", {}),
                                ("ucx", {"UCX_PROTO_ENABLE": "y"}),
                                ("ucx", {"UCX_NUM_PPN": "1"})):
            said = common.run("mpiexec.openmpi", "-n", "2", *OPTIONS,
                              "--mca", "sshmem", heap, "/usr/bin/python3",
                              "-B", "-c", SHMEM, **variables)
            self.assertEqual(2, said.count("has what was sent"), said)


if __name__ == "__main__":
    common.main()
