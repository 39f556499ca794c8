# SPDX-License-Identifier: BSD-3-Clause
"""The set timing: copies in a box that is modelled, beside what its wires
allow."""


from . import google
from .mpi import RANKS, all_to_all_time
from .perftest import OVERALL, message_time
from .result import BANDWIDTH, TIME, Result, size_text
from .run import OURS, by_way

# Gaudi2's figures (src/hlthunk_emulator/timing_figures.h): microseconds, and
# GB/s. The box is so many times slower that the machine keeps up, all alike.
TIMES = {"doorbell": 1.5, "completion": 2.5, "wakeup": 5, "port_latency": 1}
BANDWIDTHS = {"to_card": 25, "from_card": 25, "pdma_engine": 25, "pdma_all": 50,
              "edma_engine": 115, "edma_all": 920, "hbm": 2450, "uplink": 25,
              "port": 12.5}
CARDS_PER_UPLINK = 2
# A card's own: those to another card, and to all others.
PORTS = {"ports_of_pair": 3, "ports_of_card": 21}
WAYS = ("ports", "host")  # from card to card of two processes
# SynapseAI alone drives it, without HCL, which would have the ports.
GAUDI3 = {"HLTHUNK_EMU_ASIC": "gaudi3", "UCX_GAUDI_ENGINE": "synapse",
          "INIT_HCCL_ON_ACQUIRE": "false", "ENABLE_EXPERIMENTAL_FLAGS": "true"}
GAUDI3_PORT = 25  # GB/s
# One process copies; two processes are busy; eight are, on cores for two.
SLOWER, SLOWER_FOR_TWO, SLOWER_FOR_ALL = 100, 500, 5000
# Ports of eight, which are so much faster; and of each to the next one.
SLOWER_PORTS, SLOWER_RING = 32000, 4000

# case, transport, direction, what bounds it
MODELLED = [
    ("put", "gaudi_copy", "H-D", "to_card"),
    ("get", "gaudi_copy", "D-H", "from_card"),
    ("put_staged", "gaudi_copy", "H-D", "to_card"),
    ("get_staged", "gaudi_copy", "D-H", "from_card"),
    ("on_card", "gaudi_copy", "D-D", "edma_engine"),
    ("put_to_peer", "gaudi_ipc", "D-D", "uplink"),
    ("put_short_to_peer", "gaudi_ipc", "D-D", "uplink"),
    ("get_from_peer", "gaudi_ipc", "D-D", "uplink"),
]
BOTH_DIRECTIONS = [
    ("put_and_get", "gaudi_copy", "put", "get"),
    ("put_and_get_staged", "gaudi_copy", "put_staged", "get_staged"),
    ("put_and_get_peer", "gaudi_ipc", "put_to_peer", "get_from_peer"),
]
MODEL_BAR = 1 / 0.95
OVERLAP_BAR = 2 / 1.8
MODEL_BAR_FROM = 16 << 20  # bytes
# What a memcpy has to be faster by than each of these, to copy for both directions.
KEEPS_UP = 2

# Between two processes: cases, and the slowest wire of each way.
MANY = ("many_puts_to_peer", "many_gets_from_peer")
SLOWEST = {"ports": "ports_of_pair", "host": "uplink"}
MESSAGE_SIZES = (64 << 10, 1 << 20, 16 << 20)
MESSAGE_BYTES = 32 << 20  # in all messages of a run
MESSAGE_RUNS = 3
PAIR_BAR, PAIR_BAR_FROM = 1 / 0.95, 1 << 20
SHORTER_BARS = {"ports": 1 / 0.6}

# bytes of a block; the bar
ALL_TO_ALL_SIZES = {"ports": (1 << 20, 16 << 20), "host": (1 << 20, 4 << 20)}
ALL_TO_ALL_BAR, ALL_TO_ALL_BAR_FROM = 1 / 0.9, 4 << 20
ALL_TO_ALL_RUNS = 2
PORTS_ARE_FASTER = 12  # times than host memory, with the longest blocks

# What a ring's allreduce sends: steps, and bytes of each. By ports alone.
RING_STEPS, RING_BYTES, RING_BAR = 2 * (RANKS - 1), 32 << 20, 1 / 0.9


def slow_box(slower):
    """What the model is given, in microseconds and GB/s."""
    return ({name: value * slower for name, value in TIMES.items()} |
            {name: value / slower for name, value in BANDWIDTHS.items()} |
            {"cards_per_uplink": CARDS_PER_UPLINK})


def slow_ports(slower):
    """The same box with ports alone so slow."""
    return slow_box(1) | {"port": BANDWIDTHS["port"] / slower,
                          "port_latency": TIMES["port_latency"] * slower}


def width(box, wire):
    """GB/s."""
    return box["port"] * PORTS[wire] if wire in PORTS else box[wire]


def modelled(box):
    """The variables with which programs have this box."""
    return {"HLTHUNK_EMU_TIMING": ",".join(f"{name}={value}"
                                           for name, value in box.items())}


def warn_of_slow_memory(run, box):
    case = f"reference_memcpy/{MODEL_BAR_FROM}"
    taken = google.measure(run, f"^{case}$", by_size=False)[case]
    for name in sorted({bound for *_, bound in MODELLED}):
        if MODEL_BAR_FROM / taken < KEEPS_UP * box[name]:
            run.progress.clear()
            print(f"bench: memcpy gives {MODEL_BAR_FROM / taken:.1f} GB/s here: "
                  f"too little for a {name} of {box[name]} GB/s, what follows "
                  "means nothing")


def shortest_times(run, pattern, **variables):
    """By case and size."""
    times = google.measure(run, pattern, column="shortest", reduce=min,
                           **variables)
    return {name.removeprefix("timing_"): time for name, time in times.items()}


def shortest_of(run, runs, what, measure):
    """The same, of several runs."""
    runs = 1 if run.quick else runs
    run.progress.expect(runs)
    taken = []
    for _ in range(runs):
        run.progress.step(what)
        taken.append(measure())
    return min(taken)


def alone(times, box):
    """One copy at a time, and one in each direction."""
    for size in sorted({google.size_of(name) for name in times}):
        bar = MODEL_BAR if size >= MODEL_BAR_FROM else None
        for case, transport, direction, bound in MODELLED:
            if f"{case}/{size}" in times:
                yield Result(f"{transport}/{case}", times[f"{case}/{size}"],
                             direction=direction, size=size,
                             reference=f"link/{bound}",
                             reference_time=size / box[bound], bar=bar)
        bar = OVERLAP_BAR if size >= MODEL_BAR_FROM else None
        for case, transport, *single in BOTH_DIRECTIONS:
            if f"{case}/{size}" in times:
                yield Result(f"{transport}/{case}", times[f"{case}/{size}"],
                             TIME, size=size,
                             reference="the longer of both alone",
                             reference_time=max(times[f"{each}/{size}"]
                                                for each in single), bar=bar)


def pair_result(case, way, size, time, box):
    wire = SLOWEST[way]
    return Result(f"gaudi_ipc/{case}_over_{way}", time, BANDWIDTH, "D-D", size,
                  f"link/{wire}", size / width(box, wire),
                  PAIR_BAR if size >= PAIR_BAR_FROM else SHORTER_BARS.get(way))


def puts_and_gets(run, box, way, of="", **variables):
    """Many under way."""
    times = shortest_times(run, "^timing_many_", **by_way(way), **variables)
    for case in MANY:
        for name, time in times.items():
            if name.startswith(case):
                yield pair_result(case + of, way, google.size_of(name), time,
                                  box)


def messages(run, box, way, **variables):
    for size in MESSAGE_SIZES:
        if not run.wants(size):
            continue
        taken = shortest_of(
            run, MESSAGE_RUNS, f"tag_bw {size_text(size)} over {way}",
            lambda of=size: message_time(
                run, "tag_bw", of, max(MESSAGE_BYTES // of, 4), OVERALL, OURS,
                "gaudi", pinned=False, **by_way(way), **variables))
        yield pair_result("tag", way, size, taken, box)


def all_to_all_bound(way, size, box):
    """What the wires allow all together. Each of the ranks has a card, which
    reads and writes (RANKS - 1) blocks. Ports are its own. Over host memory
    what leaves the cards of a switch shares its uplink, and so does what comes
    to them, each way: CARDS_PER_UPLINK times that many blocks."""
    blocks = (RANKS - 1) * size
    if way == "ports":
        return "link/ports_of_card", blocks / width(box, "ports_of_card")
    return "link/uplink", CARDS_PER_UPLINK * blocks / box["uplink"]


def all_to_all(run, slower, box, way):
    """Yields results; returns nanoseconds of a byte in a real box, with the
    longest blocks."""
    longest = None
    for size in ALL_TO_ALL_SIZES[way]:
        if not run.wants(size) or (run.quick and size >= ALL_TO_ALL_BAR_FROM):
            continue
        what = f"all_to_all_of_{RANKS}_over_{way}"
        taken = shortest_of(
            run, ALL_TO_ALL_RUNS, f"{what} {size_text(size)}",
            lambda of=size: all_to_all_time(run, of, 1, "gaudi", **by_way(way),
                                            **modelled(box)))
        longest = taken / size / slower
        wire, bound = all_to_all_bound(way, size, box)
        yield Result(f"gaudi_ipc/{what}", taken, TIME, "D-D", size, wire, bound,
                     ALL_TO_ALL_BAR if size >= ALL_TO_ALL_BAR_FROM else None)
    return longest


def all_to_alls(run):
    over_ports = yield from all_to_all(run, SLOWER_PORTS,
                                       slow_ports(SLOWER_PORTS), "ports")
    over_host = yield from all_to_all(run, SLOWER_FOR_ALL,
                                      slow_box(SLOWER_FOR_ALL), "host")
    if over_ports and over_host and not run.quick:
        yield Result(f"gaudi_ipc/all_to_all_of_{RANKS}_over_ports", over_ports,
                     TIME, "D-D",
                     reference=f"1/{PORTS_ARE_FASTER} of that over host, a byte",
                     reference_time=over_host / PORTS_ARE_FASTER, bar=1.0)


def ring(run):
    if not run.wants(RING_BYTES) or run.quick:
        return
    what = f"ring_of_{RANKS}_over_ports"
    box = slow_ports(SLOWER_RING)
    taken = shortest_of(
        run, ALL_TO_ALL_RUNS, f"{what} {size_text(RING_BYTES)}",
        lambda: all_to_all_time(run, RING_BYTES, 1, "gaudi", steps=RING_STEPS,
                                **by_way("ports"), **modelled(box)))
    yield Result(f"gaudi_ipc/{what}", taken, TIME, "D-D", RING_BYTES,
                 "link/ports_of_pair",
                 RING_STEPS * RING_BYTES / width(box, "ports_of_pair"), RING_BAR)


def timing(run):
    box = slow_box(SLOWER)
    times = shortest_times(run, "^timing_[^m]", **by_way("host"),
                           **modelled(box))
    warn_of_slow_memory(run, box)
    yield from alone(times, box)
    yield from puts_and_gets(run, box, "host", **modelled(box))
    box = slow_box(SLOWER_FOR_TWO)
    # Each process has ports to look after.
    yield from puts_and_gets(run, box, "ports", **modelled(box))
    for way in WAYS:
        yield from messages(run, box, way, **modelled(box))
    box = box | {"port": GAUDI3_PORT / SLOWER_FOR_TWO}
    folder = run.build / "lib" / "synapse"
    yield from puts_and_gets(run, box, "ports", "_of_gaudi3", **modelled(box),
                             **GAUDI3, LD_LIBRARY_PATH=str(folder))
    yield from all_to_alls(run)
    yield from ring(run)
