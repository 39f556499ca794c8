#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Moves memory between two processes with an engine of its own: all four pairs
of host (CPU) and card (GPU) memory.

usage:

  UCX_GAUDI_DRIVER=emulator python3 examples/test_ipc_cpu_gpu.py [BYTES]

Without UCX_GAUDI_DRIVER on a machine that has two cards. The two agree on who
copies: a receiver with card memory sends a handle of it, and the sender pushes;
any other receiver gets a handle of the sender's memory, and pulls. So each byte
is copied once. With UCX_LOG_LEVEL=info each step is a line of the log.
ipc_matrix.c is the same in C.
"""

import argparse
import contextlib
import multiprocessing
import sys

try:
    import ucx_gaudi
except ModuleNotFoundError as error:
    sys.exit(f"{error} (PYTHONPATH=build/lib/python3/dist-packages, or that of "
             "an installation, leads to it)")

KINDS = ("host", "card")
PAIRS = [(source, target) for source in KINDS for target in KINDS]


def pattern(size, seed):
    """What is moved."""
    return bytes((seed * 31 + i) % 251 for i in range(251)) * (size // 251 + 1)


class Engine:
    """One end of a connection."""

    def __init__(self, connection):
        self.connection = connection
        self.stream = ucx_gaudi.Stream()

    def copy(self, target, source):
        """Copy, and say how much that was."""
        done = self.stream.copy(target, source).record()
        while not done.query():
            pass  # what else an engine has to do
        self.stream.synchronize()
        self.connection.send(len(source))

    def have_copied(self, memory):
        """Let the other end copy to or from here."""
        with ucx_gaudi.Export(memory) as export:
            self.connection.send(export.handle)
            copied = self.connection.recv()
        assert copied == len(memory), f"{copied} of {len(memory)} bytes"

    def send(self, memory):
        """Send all of a buffer or a bytearray."""
        handle = self.connection.recv()
        if handle is None:
            self.have_copied(memory)
        else:
            with ucx_gaudi.Buffer.open_handle(handle) as there:
                self.copy(there, memory)

    def receive(self, memory):
        """Receive as much as a buffer or a bytearray has room for."""
        if isinstance(memory, ucx_gaudi.Buffer):
            self.have_copied(memory)
            return
        self.connection.send(None)
        with ucx_gaudi.Buffer.open_handle(self.connection.recv()) as there:
            self.copy(memory, there)


@contextlib.contextmanager
def allocated(kind, size):
    """Memory that cards reach directly."""
    if kind == "card":
        with ucx_gaudi.Buffer(size) as memory:
            memory.fill(0)
            yield memory
    else:
        memory = bytearray(size)
        with ucx_gaudi.Registration(memory):
            yield memory


def move(connection, sends, size):
    """What one of the two processes does."""
    engine = Engine(connection)
    for seed, (source, target) in enumerate(PAIRS):
        expected = pattern(size, seed)[:size]
        with allocated(source if sends else target, size) as memory:
            if sends:
                if source == "card":
                    memory.copy_from(expected)
                else:
                    memory[:] = expected
                engine.send(memory)
                continue
            engine.receive(memory)
            seen = memory.tobytes() if target == "card" else bytes(memory)
            assert seen == expected, f"{source} to {target}: other bytes"
            way = "pushed" if target == "card" else "pulled"
            print(f"{source} to {target}: {way}, {size} bytes are the same",
                  flush=True)
    engine.stream.close()


def run(connection, sends, size):
    """One of the two processes: when it fails, the other one ends, too."""
    with connection:
        try:
            move(connection, sends, size)
        except ucx_gaudi.Error as error:
            sys.exit(f"{error} (each of the two needs a card: ucx-gaudi info)")
        except (EOFError, ConnectionError):
            sys.exit("the other process has ended")


def read_size():
    """The number of bytes, from the command line."""
    options = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("bytes", metavar="BYTES", nargs="?", type=int,
                         default=1000003)
    size = options.parse_args().bytes
    if size <= 0:
        options.error("BYTES is a positive number")
    return size


def main():
    """Start a receiver, and be the sender."""
    size = read_size()
    start = multiprocessing.get_context("spawn")
    here, there = start.Pipe()
    receiver = start.Process(target=run, args=(there, False, size))
    receiver.start()
    there.close()
    run(here, True, size)
    receiver.join()
    return receiver.exitcode


if __name__ == "__main__":
    sys.exit(main())
