# SPDX-License-Identifier: BSD-3-Clause
"""The sets of benchmarks, in the order in which they run."""

import typing

from . import between_processes, in_process, modelled, mpi


class Set(typing.NamedTuple):
    measure: typing.Callable  # of a Run, gives Results
    what: str  # for people


SETS = {
    "uct": Set(in_process.uct, """\
put and get through UCT, and puts to another process through gaudi_ipc, beside
memcpy and a bare submission; long ones of registered memory beside the better
of a memcpy of the whole and one in pieces, too"""),
    "ucp": Set(in_process.ucp, """\
an eager message from Gaudi memory beside the UCT calls it consists of"""),
    "md": Set(in_process.md, """\
the memory domain: a cached registration beside UCX's bare cache and beside one
that is not cached; a look-up among many allocations beside one among ten; UCP's
detection of a host pointer with the module loaded beside without it"""),
    "host": Set(between_processes.host, """\
stock ucx_perftest on host memory, between two processes over shared memory, with
the module loaded beside without it"""),
    "ipc": Set(between_processes.ipc, """\
stock ucx_perftest between two processes with a card each, from device memory to
device memory over gaudi_copy and gaudi_ipc alone, beside host memory over stock
sm and tcp; short messages of host memory, and of device memory beside their
parts; the CPU's time to post a short put over ports, beside one that is over;
blocks from each of eight ranks of MPICH to each other one"""),
    "mpi": Set(mpi.measure, """\
messages between two ranks of MPICH and of Open MPI, from device memory to device
memory over gaudi_copy and gaudi_ipc, beside host memory over stock sm: half of a
ping-pong, a window of messages, and windows in both directions; with Open MPI
5.0 an allreduce of both"""),
    "timing": Set(modelled.timing, """\
put and get through UCT, copies on the card, and puts and gets between it and the
card of another process, on a modelled box that is 100 times slower than one of
Gaudi2s, or more, beside the time that its links need; both directions at once
beside one of them; messages, an all-to-all and a ring of ranks"""),
    "serving": Set(between_processes.serving, """\
what NIXL does for a serving system: writes of 2,048 blocks at once to another
process, from device memory to device memory over host memory, beside host memory
to host memory by the same endpoint; and of 112,000, beside a tenth of them"""),
    "init": Set(between_processes.init, """\
start and end of UCX in a fresh process, with eight emulated cards and the module
beside without it: all cards opened, and one"""),
}
