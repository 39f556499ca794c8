#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Gaudi memory in mpi4py's calls: each rank sends a buffer to the next one.

usage:

  mpiexec.openmpi -n 2 ucx-gaudi run --emulate
      python3 examples/mpi4py_device_buffers.py

Without --emulate on a machine that has the cards. Each rank opens a card.
Without the launcher it runs, too, where ucx_gaudi is imported first: it then
brings the transports to the UCX that MPI opens (UCX_GAUDI_DRIVER=emulator for
software cards), and Open MPI has to be told to use UCX: docs/mpi.md.

As in C, MPI libraries take Gaudi memory in sends, receives and broadcasts of
contiguous data. What they compute themselves (reductions, gathers, packing)
they do with the CPU, which cannot touch it: copy such data to the host first.
Open MPI 5.0 does that itself, under the launcher.
"""

import sys

try:
    import ucx_gaudi  # isort: skip  # before MPI, which opens UCX
    from mpi4py import MPI
except ModuleNotFoundError as error:
    sys.exit(f"{error} (PYTHONPATH=build/lib/python3/dist-packages, or that of "
             "an installation, leads to ucx_gaudi; install python3-mpi4py)")

COUNT = 1 << 20


def pattern(rank):
    """What a rank sends."""
    return bytes((7 * rank + i) % 251 for i in range(251)) * (COUNT // 251 + 1)


def by_address(buffer):
    """As mpi4py takes memory of any kind."""
    return [MPI.memory.fromaddress(buffer.pointer, buffer.size), MPI.BYTE]


def main():
    comm = MPI.COMM_WORLD
    right = (comm.rank + 1) % comm.size
    left = (comm.rank - 1) % comm.size

    to_send = ucx_gaudi.Buffer(COUNT)
    received = ucx_gaudi.Buffer(COUNT)
    to_send.copy_from(pattern(comm.rank)[:COUNT])

    received.fill(0)
    comm.Sendrecv(by_address(to_send), right, recvbuf=by_address(received),
                  source=left)
    assert received.tobytes() == pattern(left)[:COUNT], "Sendrecv"

    # Parts of them.
    received.fill(0)
    requests = [comm.Irecv(by_address(received[1000:3000]), left),
                comm.Isend(by_address(to_send[500:2500]), right)]
    MPI.Request.Waitall(requests)
    seen = received.tobytes()
    assert seen[1000:3000] == pattern(left)[500:2500], "Isend"
    assert not any(seen[:1000]) and not any(seen[3000:]), "beside Isend"

    # To a host array of anything with Python's buffer protocol.
    comm.Bcast(by_address(to_send), root=0)
    host = bytearray(COUNT)
    to_send.copy_to(host)
    assert host == pattern(0)[:COUNT], "Bcast"

    print(f"rank {comm.rank} of {comm.size}: {to_send.card} has what was sent",
          flush=True)
    # Freed with their last references; a card is closed with the process.


if __name__ == "__main__":
    main()
