#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Tests gaudi_bench_mpi as each MPI library has it.

usage: check_mpi.py mpich|openmpi ROOT BUILD_DIRECTORY
"""

import os
import sys

from bench_case import BenchCase, main


class Messages(BenchCase):
    library = None

    def mpi(self, *arguments, ranks=2, launch=("--emulate=2",), **variables):
        command = [f"mpiexec.{self.library}", "-n", ranks]
        if self.library == "openmpi":
            command += ["--mca", "pml", "ucx", "--mca", "opal_common_ucx_tls",
                        "any", "--oversubscribe"]
            if os.geteuid() == 0:
                command += ["--allow-run-as-root"]
        return self.run_command(
            *command, self.build / "bin/ucx-gaudi", "run", *launch, "--",
            self.build / f"bin/gaudi_bench_mpi.{self.library}", *arguments,
            UCX_TLS="gaudi_copy,gaudi_ipc", **variables)

    def expect_table(self, arguments, sizes, ranks=2):
        status, out, err = self.mpi(*arguments, ranks=ranks,
                                    launch=(f"--emulate={ranks}",))
        self.assertEqual(0, status, out + err)
        lines = [line.split() for line in out.splitlines()]
        self.assertEqual(["#", "bytes", "us", "GB/s"], lines[1])
        self.assertEqual(sizes, [int(line[0]) for line in lines[2:]])
        for line in lines[2:]:
            self.assertEqual(3, len(line))
            self.assertGreater(float(line[1]), 0)

    def test_each_pair_of_memories_in_each_mode(self):
        # Data is compared by the program: eager, in a rendezvous, and one byte.
        for arguments in (("latency", "D", "D"), ("bandwidth", "D", "H"),
                          ("both-ways", "H", "D"), ("latency", "H", "H")):
            self.expect_table([*arguments, 1, 1 << 18, 0.0001],
                              [1 << power for power in range(19)])

    def test_a_reduction_of_host_memory_by_any_number_of_ranks(self):
        for ranks in (2, 3):
            self.expect_table(["allreduce", "H", "H", 8, 4096, 0.0001],
                              [1 << power for power in range(3, 13)],
                              ranks=ranks)

    def test_a_reduction_of_device_memory(self):
        # Who cannot do it ends; who can has a table, of bytes that are right.
        version = self.run_command(f"mpiexec.{self.library}", "--version")[1]
        arguments = ["allreduce", "D", "D", 8, 4096, 0.0001]
        if self.library == "openmpi" and " 5.0." in version:
            self.expect_table(arguments, [1 << power for power in range(3, 13)])
        else:
            self.assertNotIn("4096", self.mpi(*arguments)[1])

    def test_bytes_that_do_not_arrive_are_told(self):
        idle = self.build / "lib/hlthunk-emu-no-copy/libhl-thunk.so"
        self.assertTrue(idle.exists())
        for mode in ("latency", "bandwidth", "both-ways"):
            status, out, err = self.mpi(mode, "D", "D", 65536, 65536, 0.0001,
                                        launch=(), UCX_GAUDI_DRIVER=str(idle))
            self.assertNotEqual(0, status, out)
            self.assertIn("a wrong byte came", out + err)

    def test_bad_arguments_are_told(self):
        for arguments, reason in (
                ((), "usage: "),
                (("speed", "D", "D"), "no such mode"),
                (("latency", "H", "H", "8", "8", "0"), "seconds are")):
            status, out, err = self.mpi(*arguments)
            self.assertNotEqual(0, status)
            self.assertIn(reason, out + err)


if __name__ == "__main__":
    Messages.library = sys.argv[1]
    sys.argv[1] = "Messages"
    main(sys.modules[__name__])
