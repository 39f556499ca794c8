# SPDX-License-Identifier: BSD-3-Clause
"""How the benchmarks are to run, and their programs."""

import dataclasses
import os
import pathlib
import statistics
import subprocess

from .progress import Progress
from .result import BenchError

LAUNCHER = "ucx-gaudi"
DEADLINE = 60  # seconds, of one run of a program
LONG_DEADLINE = 300  # seconds, of what sets up a lot

OURS = "gaudi_copy,gaudi_ipc"  # UCX_TLS


@dataclasses.dataclass
class Run:
    """What was asked for."""
    build: pathlib.Path
    repetitions: int  # of a program's cases
    min_time: float  # seconds, of a case
    pairs: int  # runs of a program and of its reference, in turns
    sweeps: int  # the same, for what is measured at many sizes
    sizes: frozenset | None  # bytes; None for all that there are
    quick: bool
    progress: Progress

    def program(self, name):
        """Path of a program of the build that is measured."""
        path = self.build / "bin" / name
        if not path.exists():
            raise BenchError(f"{path} is missing: build its target "
                             "'benchmarks', or leave out --build")
        return str(path)

    def wants(self, size):
        return self.sizes is None or size in self.sizes

    def launched(self, cards):
        """What a command begins with, to run with the module."""
        return [self.program(LAUNCHER), "run", f"--emulate={cards}", "--"]


def output_of(command, variables=None, deadline=DEADLINE):
    """What a program prints; an error tells about one that fails."""
    name = os.path.basename(command[0])
    try:
        result = subprocess.run(command, env=variables, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, timeout=deadline,
                                check=False, text=True, errors="replace")
    except OSError as error:
        raise BenchError(f"{name}: {error.strerror}") from error
    except subprocess.TimeoutExpired as error:
        raise BenchError(f"'{' '.join(command)}' did not end within {deadline} "
                         "s") from error
    if result.returncode != 0:
        raise BenchError(f"'{' '.join(command)}' failed ({result.returncode}):\n"
                         f"{result.stdout}{result.stderr}")
    return result.stdout


def clean_variables(transports):
    """The environment of a run, in a box of its own."""
    variables = {name: value for name, value in os.environ.items()
                 if not name.startswith(("UCX_", "HLTHUNK_", "LD_"))}
    variables["UCX_TLS"] = transports
    variables["HLTHUNK_EMU_NODE"] = f"bench-{os.getpid()}"
    return variables


def by_way(way):
    """The variables with which bytes go from card to card of two processes one
    way, "ports" or "host", and no other."""
    return {"UCX_GAUDI_IPC_ROUTES": way,
            "HLTHUNK_EMU_PORTS": "y" if way == "ports" else "n"}


def in_turns(run, kinds, rounds, measure, what):
    """What measure(kind) gives in each round, by kind. Each round has all of
    them, every other one from the last to the first."""
    taken = {kind: [] for kind in kinds}
    for turn in range(rounds):
        for kind in (kinds if turn % 2 == 0 else reversed(kinds)):
            run.progress.step(f"{what}, {kind}")
            taken[kind].append(measure(kind))
    return taken


def medians_in_turns(run, kinds, rounds, measure, what):
    """The same, of numbers: the median of each kind."""
    taken = in_turns(run, kinds, rounds, measure, what)
    return {kind: statistics.median(values) for kind, values in taken.items()}
