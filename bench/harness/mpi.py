# SPDX-License-Identifier: BSD-3-Clause
"""Our programs for the MPI libraries that are installed."""

import os
import shutil
import statistics

from .result import (BANDWIDTH, BOTH_WAYS, LATENCY, TIME, BenchError,
                     Result, size_text)
from .run import (LONG_DEADLINE, OURS, clean_variables, in_turns,
                  medians_in_turns, output_of)

LIBRARIES = ("mpich", "openmpi")
PROGRAM = "gaudi_bench_mpi"
ALL_TO_ALL = "gaudi_bench_alltoall.mpich"
ALLREDUCE = "allreduce"
RANKS = 8
# bytes of a block, rounds of one run
ALL_TO_ALL_SIZES = [(65536, 20), (1 << 20, 10)]

SMALLEST, LARGEST = 1, 4 << 20  # bytes of a message
SECONDS, QUICK_SECONDS = 0.2, 0.02  # of a size
# UCX_TLS, memory of each rank
KINDS = {"gaudi": (OURS, "D"), "sm": ("sm", "H")}


def start(library, ranks):
    """The command that starts a job, up to its program. Each rank has a core of
    its own, if there are as many."""
    command = [f"mpiexec.{library}", "-n", str(ranks)]
    if ranks <= len(os.sched_getaffinity(0)):
        command += ["-bind-to" if library == "mpich" else "--bind-to", "core"]
    if library == "openmpi":
        # By itself it takes UCX for some networks only.
        command += ["--mca", "pml", "ucx", "--mca", "opal_common_ucx_tls",
                    "any", "--oversubscribe"]
        if os.geteuid() == 0:
            command += ["--allow-run-as-root"]
    return command


def command_of(run, library, ranks, program, memory):
    """A job of a program, under the launcher where memory is of cards."""
    if shutil.which(f"mpiexec.{library}") is None:
        raise BenchError(f"mpiexec.{library} is missing: "
                         "scripts/install-packages bench")
    launched = run.launched(ranks) if memory == "D" else []
    return start(library, ranks) + launched + [run.program(program)]


def all_to_all_time(run, size, rounds, kind, steps=0, **variables):
    """Median time of a round, in nanoseconds. With steps a round is so many of
    a ring."""
    transports, memory = KINDS[kind]
    command = command_of(run, "mpich", RANKS, ALL_TO_ALL, memory)
    return float(output_of(
        command + ["gaudi" if memory == "D" else "host", str(size),
                   str(rounds), str(steps)],
        clean_variables(transports) | variables, LONG_DEADLINE))


def all_to_all(run):
    """Blocks from each of eight ranks of MPICH to each other one."""
    what = f"all_to_all_of_{RANKS}"
    sizes = [entry for entry in ALL_TO_ALL_SIZES if run.wants(entry[0])]
    run.progress.expect(len(sizes) * len(KINDS) * run.pairs)
    for size, rounds in sizes:
        times = medians_in_turns(
            run, list(KINDS), run.pairs,
            lambda kind, of=(size, rounds): all_to_all_time(run, *of, kind),
            f"{what} {size_text(size)}")
        yield Result(f"gaudi_ipc/{what}", times["gaudi"], TIME, "D-D", size,
                     f"sm/{what}", times["sm"])
        yield Result(f"sm/{what}", times["sm"], TIME, "H-H", size)


def message_times(run, library, mode, kind, sizes):
    """By size, nanoseconds of a message."""
    transports, memory = KINDS[kind]
    program = f"{PROGRAM}.{library}"
    output = output_of(
        command_of(run, library, 2, program, memory) +
        [mode, memory, memory, str(min(sizes)), str(max(sizes)),
         str(QUICK_SECONDS if run.quick else SECONDS)],
        clean_variables(transports), LONG_DEADLINE)
    rows = [line.split() for line in output.splitlines()
            if not line.startswith("#")]
    times = {int(row[0]): float(row[1]) * 1000 for row in rows if len(row) == 3}
    if not times or len(times) != len(rows):
        raise BenchError(f"{program} printed no table:\n{output}")
    return times


def knows_cards(library):
    """Whether its reductions reach memory of cards: our components' release."""
    mpiexec = shutil.which(f"mpiexec.{library}")
    return library == "openmpi" and mpiexec is not None and (
        " 5.0." in output_of([mpiexec, "--version"]))


def measure(run):
    """The set mpi."""
    modes = (LATENCY, BANDWIDTH, BOTH_WAYS)
    sizes = (SMALLEST, LARGEST)
    if run.sizes is not None:
        sizes = [size for size in run.sizes if size <= LARGEST]
    if not sizes:
        return
    of = {library: modes + ((ALLREDUCE,) if knows_cards(library) else ())
          for library in LIBRARIES}
    run.progress.expect(sum(map(len, of.values())) * len(KINDS) * run.sweeps)
    for library, its_modes in of.items():
        for mode in its_modes:
            what, measured = ("", mode) if mode in modes else (f"_{mode}", TIME)
            taken = in_turns(
                run, list(KINDS), run.sweeps,
                lambda kind, of=(library, mode): message_times(run, *of, kind,
                                                               sizes),
                f"{library} {mode}")
            times = {kind: {size: statistics.median(each[size] for each in runs)
                            for size in runs[0]}
                     for kind, runs in taken.items()}
            for size, time in times["gaudi"].items():
                yield Result(f"{library}/gaudi{what}", time, measured, "D-D",
                             size, f"{library}/sm{what}", times["sm"][size])
            for size, time in times["sm"].items():
                yield Result(f"{library}/sm{what}", time, measured, "H-H", size)
