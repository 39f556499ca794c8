#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Streams, events and memory of other processes, in Python; and the example.

usage: test_engine.py ROOT BUILD_DIRECTORY [unittest's arguments]
"""

import os
import unittest

import common

import ucx_gaudi

UNSUPPORTED = -22

EXAMPLE = common.ROOT / "examples/test_ipc_cpu_gpu.py"

OPENER = """
import sys
import ucx_gaudi
with ucx_gaudi.Buffer.open_handle(bytes.fromhex(sys.argv[1])) as there:
    print(there.size, there.card, there[1:4].tobytes())
    there[:2].copy_from(b"zz")
"""


class Engines(common.LoggedTest):
    def tearDown(self):
        ucx_gaudi.close()
        super().tearDown()

    def test_copy_in_their_order(self):
        with ucx_gaudi.Stream() as stream, ucx_gaudi.Buffer(300000) as memory:
            target = bytearray(300000)
            event = stream.copy(memory, b"ab" * 150000).record()
            other = ucx_gaudi.Stream()
            other.wait(event).copy(target, memory)
            other.synchronize()
            self.assertTrue(event.query())
            event.synchronize()
            self.assertTrue(stream.query())
            self.assertEqual(b"ab" * 150000, target)
            other.close()
            other.close()
            with self.assertRaises(ValueError):
                other.synchronize()

    def test_keep_what_they_copy(self):
        stream = ucx_gaudi.Stream()
        memory = ucx_gaudi.Buffer(10)
        target = bytearray(10)
        stream.copy(target, memory.fill(7))
        with self.assertRaises(BufferError):
            memory.free()
        with self.assertRaises(BufferError):
            target.append(1)
        stream.synchronize()
        target.append(1)
        memory.free()
        self.assertEqual(bytes([7] * 10 + [1]), target)
        stream.close()

    def test_tell_what_failed_once(self):
        with ucx_gaudi.Stream() as stream:
            lost = ucx_gaudi.Buffer(10)
            wrong = ucx_gaudi.Buffer.wrap(lost.pointer, 10)
            lost.free()
            event = stream.copy(bytearray(10), wrong).record()
            with self.assertRaises(ucx_gaudi.Error):
                event.synchronize()
            with self.assertRaises(ucx_gaudi.Error):
                stream.synchronize()
            stream.synchronize()
            self.expect_log("10 bytes at")

    def test_refuse_what_does_not_fit(self):
        with ucx_gaudi.Stream() as stream:
            with self.assertRaises(ValueError):
                stream.copy(bytearray(1), b"ab")
            with self.assertRaises(ValueError):
                ucx_gaudi.Buffer.open_handle(b"short")
            with self.assertRaises(ucx_gaudi.Error):
                ucx_gaudi.Buffer.open_handle(bytes(64))
            self.expect_log("it is none")

    def test_export_memory_to_other_processes(self):
        for memory in (ucx_gaudi.Buffer(100).copy_from(b"0123456789" * 10),
                       bytearray(b"0123456789" * 10)):
            with ucx_gaudi.Export(memory) as export:
                said = common.run("/usr/bin/python3", "-B", "-c", OPENER,
                                  export.handle.hex())
                self.assertEqual("100 another process b'123'\n", said)
            seen = (bytes(memory) if isinstance(memory, bytearray)
                    else memory.tobytes())
            self.assertEqual(b"zz2345", seen[:6])
            with self.assertRaises(ValueError):
                print(export.handle)

    def test_are_of_one_process(self):
        memory = bytearray(10)
        with ucx_gaudi.Stream(), ucx_gaudi.Export(memory):
            child = os.fork()
            if child == 0:
                os._exit(0 if self.ends_quietly() else 1)
            self.assertEqual(0, os.waitpid(child, 0)[1])
            self.expect_log("forked from one that had UCX or cards open")

    @staticmethod
    def ends_quietly():
        """A child of who has cards open can have nothing."""
        try:
            ucx_gaudi.Stream()
        except ucx_gaudi.Error as error:
            return error.status == UNSUPPORTED
        return False


class Example(unittest.TestCase):
    def check(self, **variables):
        said = common.run("/usr/bin/python3", "-B", EXAMPLE, "300007",
                          UCX_LOG_LEVEL="info", **variables)
        for line in ("host to host: pulled", "host to card: pushed",
                     "card to host: pulled", "card to card: pushed"):
            self.assertIn(f"{line}, 300007 bytes are the same", said)
        self.assertNotIn("WARN", said)
        self.assertNotIn("ERROR", said)
        return said

    def test_moves_memory_over_ports(self):
        said = self.check(HLTHUNK_EMU_PORTS="y",
                          HLTHUNK_EMU_NODE=f"python-ports-{os.getpid()}")
        self.assertIn(": uses ports to the card", said)

    def test_moves_memory_through_the_host(self):
        self.check(UCX_GAUDI_IPC_ROUTES="host")

    def test_says_what_is_missing(self):
        for variables, words in (
                ({"UCX_GAUDI_DRIVER": "/none"}, "needs a card"),
                ({"HLTHUNK_EMU_DEVICES": "1",
                  "HLTHUNK_EMU_NODE": f"python-one-{os.getpid()}"},
                 "needs a card"),
                ({"PYTHONPATH": ""}, "PYTHONPATH=")):
            said = common.run("/usr/bin/python3", "-B", EXAMPLE, code=1,
                              **variables)
            self.assertIn(words, said)
            self.assertNotIn("Traceback", said)
        said = common.run("/usr/bin/python3", "-B",
                          EXAMPLE.with_name("mpi4py_device_buffers.py"),
                          code=1, PYTHONPATH="")
        self.assertIn("PYTHONPATH=", said)


if __name__ == "__main__":
    common.main()
