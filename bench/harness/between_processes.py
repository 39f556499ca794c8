# SPDX-License-Identifier: BSD-3-Clause
"""Sets that start stock programs, mostly two that talk to each other."""

import os
import re
import shlex
import statistics
import time

from . import google, mpi
from .perftest import OVERALL, TYPICAL, message_time
from .result import (BANDWIDTH, LATENCY, TIME, BenchError, Difference, Result,
                     size_text)
from .run import (LAUNCHER, OURS, by_way, in_turns, medians_in_turns,
                  output_of)

QUICKER = 10  # times fewer iterations


def message_times(run, senders, test, size, count, column, rounds, what=""):
    """Median time of a message by sender, of which there are UCX_TLS, the
    memory of both sides, and perhaps variables."""
    return medians_in_turns(
        run, list(senders), rounds,
        lambda name: message_time(run, test, size, count, column,
                                  *senders[name][:2],
                                  **dict(*senders[name][2:])),
        f"{test} {size_text(size)}{what}")


# --- host ---------------------------------------------------------------------

# test, bytes, iterations for some tenths of a second, column, measure
HOST = [
    ("tag_lat", 8, 200000, TYPICAL, LATENCY),
    ("tag_bw", 8, 1000000, TYPICAL, BANDWIDTH),
    ("tag_bw", 4096, 200000, TYPICAL, BANDWIDTH),
    ("tag_bw", 1 << 20, 2000, OVERALL, BANDWIDTH),
]
HOST_BAR = 1.05


def host(run):
    run.progress.expect(2 * run.pairs * len(HOST))
    senders = {"with the module": ("gaudi_copy,sm", "host"),
               "without": ("sm", "host")}
    for test, size, iterations, column, measure in HOST:
        count = iterations // (QUICKER if run.quick else 1)
        times = message_times(run, senders, test, size, count, column,
                              run.pairs)
        yield Result("sm/tag with the module", times["with the module"], measure,
                     "H-H", size, "sm/tag", times["without"], HOST_BAR)


# --- ipc ----------------------------------------------------------------------

SWEEP = [8, 64, 256, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20,
         4 << 20, 16 << 20, 64 << 20]
SWEEP_BYTES = 1 << 30  # in all messages of a run
# test, measure, most iterations, bars by size
TESTS = [
    ("tag_bw", BANDWIDTH, 50000, {64 << 10: 0.9, 1 << 20: 0.8}),
    ("tag_lat", LATENCY, 20000, {8: 2.5}),
]
SENDERS = {"gaudi_ipc": (OURS, "gaudi", by_way("host")), "sm": ("sm", "host"),
           "tcp": ("tcp", "host")}
# test, iterations, bar: of 8 bytes of host memory over gaudi_ipc, beside sm
HOST_MEMORY = [("ucp_am_lat", "am", 200000, 1.3), ("tag_lat", "tag", 200000, None)]
# Of device memory: beside what its parts take.
PARTS_BAR = 1.3


def iterations_of(run, size, most):
    count = min(most, SWEEP_BYTES // size)
    return max(count // QUICKER, 5) if run.quick else count


def sweep(run):
    """Messages by size, of ours over host memory and of stock transports in
    turns."""
    sizes = [size for size in SWEEP if run.wants(size)]
    rounds = {(test, size): run.pairs if size in bars else run.sweeps
              for test, *_, bars in TESTS for size in sizes}
    run.progress.expect(len(SENDERS) * sum(rounds.values()))
    for test, measure, most, bars in TESTS:
        for size in sizes:
            count = iterations_of(run, size, most)
            column = TYPICAL if measure == LATENCY else OVERALL
            times = message_times(run, SENDERS, test, size, count, column,
                                  rounds[test, size])
            yield Result("gaudi_ipc/tag_over_host", times["gaudi_ipc"], measure,
                         "D-D", size, "sm/tag", times["sm"], bars.get(size))
            for name in ("sm", "tcp"):
                yield Result(f"{name}/tag", times[name], measure, "H-H", size)


def host_memory(run):
    """Short messages between host memories, beside stock ones."""
    if not run.wants(8):
        return
    run.progress.expect(2 * run.pairs * len(HOST_MEMORY))
    senders = {"gaudi_ipc": (OURS, "host"), "sm": ("sm", "host")}
    for test, what, iterations, bar in HOST_MEMORY:
        count = iterations // (QUICKER if run.quick else 1)
        times = message_times(run, senders, test, 8, count, TYPICAL, run.pairs,
                              " of host memory")
        yield Result(f"gaudi_ipc/{what}", times["gaudi_ipc"], LATENCY, "H-H", 8,
                     f"sm/{what}", times["sm"], bar)


def parts_of_a_message(run):
    """A short message between device memories, beside one between host memories
    and the two submissions that it needs."""
    if not run.wants(8):
        return
    submission = google.measure(run, f"^{google.SUBMISSION}$",
                                by_size=False)[google.SUBMISSION]
    run.progress.expect(2 * run.pairs)
    kinds = {"tag": ("tag_lat", "gaudi"), "am": ("ucp_am_lat", "host")}
    count = 20000 // (QUICKER if run.quick else 1)
    times = medians_in_turns(
        run, list(kinds), run.pairs,
        lambda kind: message_time(run, kinds[kind][0], 8, count, TYPICAL, OURS,
                                  kinds[kind][1]), "8 of device memory")
    yield Result("gaudi_ipc/tag", times["tag"], LATENCY, "D-D", 8,
                 "gaudi_ipc/am and two of hl-thunk/submit_and_poll",
                 times["am"] + 2 * submission, PARTS_BAR)


# The CPU's time for a short put over ports, beside one that is over.
PORTS_PUT, SHORT_PUT = "post_over_ports", "cpu_of_put_short"


def put_over_ports(run):
    times = google.measure(run, f"^({PORTS_PUT}|{SHORT_PUT})/", by_size=False,
                           reduce=min, **by_way("ports"))
    taken = {name: next(time for case, time in times.items()
                        if case.startswith(name))
             for name in (PORTS_PUT, SHORT_PUT)}
    yield Result(f"gaudi_ipc/{PORTS_PUT}", taken[PORTS_PUT], TIME, "D-D", 8,
                 "gaudi_copy/put_short", taken[SHORT_PUT], 1.0)


def ipc(run):
    yield from sweep(run)
    yield from host_memory(run)
    yield from parts_of_a_message(run)
    yield from put_over_ports(run)
    yield from mpi.all_to_all(run)


# --- serving ------------------------------------------------------------------

SERVING = "gaudi_bench_serving"
SERVING_BLOCKS = 2048  # of a list, as the program has it
SERVING_BESIDE = "reference_"  # begins the name of a case between host memory
# A list of so many blocks may take ten times what a tenth of it takes.
LONG_LIST = 112_000
LONG_LIST_BAR = 1.2


def serving_times(run, what, **how):
    """Of the lists, between device memory and between host memory."""
    times = google.measure(
        run, f"^({SERVING_BESIDE})?serving_{what}/", program=SERVING,
        at_once=run.repetitions, **launcher_variables(run, 2),
        **by_way("host"), UCX_TLS=OURS, **how)
    return {name: (time_taken, times[f"{SERVING_BESIDE}{name}"])
            for name, time_taken in times.items()
            if not name.startswith(SERVING_BESIDE)}


def lists_of_blocks(run):
    """Nanoseconds of a block."""
    for name, times in serving_times(run, "lists").items():
        cards, host = (each / SERVING_BLOCKS for each in times)
        yield Result("gaudi_ipc/lists_of_blocks_over_host", cards, BANDWIDTH,
                     "D-D", google.size_of(name), "lists between host memory",
                     host)


def long_lists(run):
    """Nanoseconds of a block of a long list, and of one of a tenth."""
    times = {google.size_of(name): [each / google.size_of(name)
                                    for each in both]
             for name, both in
             serving_times(run, "long_list", by_size=False).items()}
    cards, host = times[LONG_LIST]
    series = f"gaudi_ipc/block_of_{LONG_LIST}_over_host"
    yield Result(series, cards, TIME, "D-D",
                 reference=f"of {LONG_LIST // 10}",
                 reference_time=times[LONG_LIST // 10][0], bar=LONG_LIST_BAR)
    yield Result(f"{series}_beside_host", cards, TIME, "D-D",
                 reference="of as many between host memory",
                 reference_time=host)


def serving(run):
    yield from lists_of_blocks(run)
    if not run.quick:
        yield from long_lists(run)


# --- init ---------------------------------------------------------------------

INIT = "gaudi_bench_init"
INIT_CARDS = {"all": 8, "auto": 1}  # UCX_GAUDI_DEVICES, and cards opened
INIT_BAR = Difference(15_000_000)  # nanoseconds more or less
INIT_PAIRS = 3  # of these runs for one of ucx_perftest: they take milliseconds
BARE = "none"  # without the module


def launcher_variables(run, cards):
    """What the launcher sets to load the module, with the software box."""
    lines = output_of([run.program(LAUNCHER), "env", f"--emulate={cards}"])
    loading = dict(word.split("=", 1)
                   for word in shlex.split(lines.replace(";", " "))
                   if "=" in word)
    return {**loading, "HLTHUNK_EMU_NODE": f"bench-{os.getpid()}"}


def init_variables(run):
    """The environment of each kind of run."""
    bare = {name: value for name, value in os.environ.items()
            if not name.startswith(("UCX_", "HLTHUNK_", "LD_", "HABANA_", "HLS_",
                                    "GAUDI_"))}
    module = launcher_variables(run, 8)
    return {BARE: bare} | {cards: bare | module | {"UCX_GAUDI_DEVICES": cards}
                           for cards in INIT_CARDS}


def count_cards(variables):
    """Cards that a process opens; the figures mean nothing if they are not
    there."""
    listed = output_of(["ucx_info", "-d"], variables)
    return len(re.findall(r"^#\s+Device: gaudi\d+$", listed, re.MULTILINE))


def init(run):
    variables = init_variables(run)
    opened = {cards: count_cards(variables[cards]) for cards in variables}
    if opened != {BARE: 0, **INIT_CARDS}:
        raise BenchError(f"the cards opened are {opened}, not {INIT_CARDS}")
    program = run.program(INIT)

    def start_and_end(cards):
        """Nanoseconds within the program, and of the whole process."""
        begin = time.monotonic_ns()
        inside = float(output_of([program], variables[cards]))
        return inside, time.monotonic_ns() - begin

    rounds = run.pairs * INIT_PAIRS
    run.progress.expect(len(variables) * rounds)
    taken = in_turns(run, list(variables), rounds, start_and_end, "cards")
    for place, what in ((0, "ucp_init"), (1, "process_of_ucp_init")):
        times = {cards: statistics.median(pair[place] for pair in pairs)
                 for cards, pairs in taken.items()}
        for cards in INIT_CARDS:
            yield Result(f"ucp/{what} with cards={cards}", times[cards], TIME,
                         reference=f"ucp/{what}", reference_time=times[BARE],
                         bar=INIT_BAR if place == 0 else None)
