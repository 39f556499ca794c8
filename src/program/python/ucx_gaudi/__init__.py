# SPDX-License-Identifier: BSD-3-Clause
"""Device memory of Gaudi cards, for programs that send it with UCX or MPI.

    import ucx_gaudi
    from mpi4py import MPI

    with ucx_gaudi.Buffer(1 << 20) as memory:
        memory.copy_from(b"to be sent" * 1000)
        MPI.COMM_WORLD.Send([MPI.memory.fromaddress(memory.pointer, memory.size),
                             MPI.BYTE], dest=1)

The first allocation opens a card, which stays open until close() or the end of
the process. UCX of the same process then knows the memory, if this module was
imported before UCX was opened, or the program runs under `ucx-gaudi run`.

All functions may be called by any thread. Copies let other threads run.
"""

from ucx_gaudi._buffer import Buffer
from ucx_gaudi._engine import Event, Export, Registration, Stream
from ucx_gaudi._library import (Card, Error, OutOfMemoryError, cards, close,
                                library, open)  # noqa: A004

__all__ = ["Buffer", "Card", "Error", "Event", "Export", "OutOfMemoryError",
           "Registration", "Stream", "cards", "close", "library", "open"]
