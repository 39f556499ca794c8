"""Sets that Google Benchmark measures in one process, and one beside it."""

import json
import tempfile

from . import google
from .result import TIME, Difference, Result
from .run import medians_in_turns

# --- uct ----------------------------------------------------------------------

# case of the program, series, direction, bar as a ratio of times or None
SHORT = [
    ("put_short/8", "gaudi_copy/put_short", "H-D", 1.4),
    ("get_short/8", "gaudi_copy/get_short", "D-H", 1.4),
]
BY_SIZE = [
    ("put_zcopy_registered", "gaudi_copy/put_zcopy_registered", "H-D", 1 / 0.9),
    ("get_zcopy_registered", "gaudi_copy/get_zcopy_registered", "D-H", 1 / 0.9),
    ("ipc_put_zcopy_from_host", "gaudi_ipc/put_zcopy", "H-D", 1 / 0.9),
    ("ipc_put_zcopy_from_device", "gaudi_ipc/put_zcopy", "D-D", 1 / 0.9),
    ("put_zcopy_staged", "gaudi_copy/put_zcopy_staged", "H-D", None),
    ("get_zcopy_staged", "gaudi_copy/get_zcopy_staged", "D-H", None),
    ("put_short", "gaudi_copy/put_short", "H-D", None),
    ("get_short", "gaudi_copy/get_short", "D-H", None),
    ("put_bcopy", "gaudi_copy/put_bcopy", "H-D", None),
    ("get_bcopy", "gaudi_copy/get_bcopy", "D-H", None),
]
BAR_FROM = 1 << 20  # bytes
# Of shorter ones, by case and bytes.
SHORTER_BARS = {("put_zcopy_registered", 64 << 10): 1.25}
WHOLE, PIECES = "reference_memcpy", "reference_memcpy_in_pieces"
# Beside the better of two ways to memcpy, for what no cache holds: the whole at
# once, and in pieces.
LONG = ("put_zcopy_registered", "get_zcopy_registered")
# Staging copies the bytes twice: case, bytes, bar.
STAGED = ("put_zcopy_staged", 1 << 20, 1.0)


def by_size(times, case, series, direction, bar):
    """The results of a case beside memcpy, and beside the better memcpy."""
    for name, time in times.items():
        size = google.size_of(name)
        whole = times.get(f"{WHOLE}/{size}")
        if name != f"{case}/{size}" or whole is None:
            continue
        yield Result(series, time, direction=direction, size=size,
                     reference="memcpy/whole", reference_time=whole,
                     bar=bar if size >= BAR_FROM
                     else SHORTER_BARS.get((case, size)))
        if (case, size) == STAGED[:2]:
            yield Result(series, time, direction=direction, size=size,
                         reference="two of memcpy/whole",
                         reference_time=2 * whole, bar=STAGED[2])
        pieces = times.get(f"{PIECES}/{size}")
        if case in LONG and pieces is not None:
            yield Result(series, time, direction=direction, size=size,
                         reference="memcpy/the better one",
                         reference_time=min(whole, pieces), bar=bar)


def uct(run):
    names = "|".join([case for case, *_ in BY_SIZE] + [WHOLE, PIECES])
    times = google.measure(run, f"^({names})/|^{google.SUBMISSION}$")
    for case, series, direction, bar in SHORT:
        if case in times:
            yield Result(series, times[case], direction=direction, size=8,
                         reference="hl-thunk/submit_and_poll",
                         reference_time=times[google.SUBMISSION], bar=bar)
    for case in BY_SIZE:
        yield from by_size(times, *case)
    for case, series in ((WHOLE, "memcpy/whole"), (PIECES, "memcpy/in_pieces")):
        for name, time in times.items():
            if name.startswith(case + "/"):
                yield Result(series, time, direction="H-H",
                             size=google.size_of(name))


# --- ucp ----------------------------------------------------------------------

EAGER, EAGER_PARTS = "ucp_eager_send/8", "reference_am_bcopy_of_get_short/8"
EAGER_BAR = 1.2


def ucp(run):
    times = google.measure(run, f"^({EAGER}|{EAGER_PARTS})$", by_size=False)
    yield Result("ucp/eager_send", times[EAGER], TIME, "D-H", 8,
                 "self/am_bcopy_of_get_short", times[EAGER_PARTS], EAGER_BAR)


# --- md -----------------------------------------------------------------------

# case, series, its reference, what that is, bar
MEMORY_DOMAIN = [
    ("registration_hit", "gaudi_copy/registration_hit",
     "reference_rcache_get_put", "ucs/rcache_get_put", 1.2),
    ("registration_hit", "gaudi_copy/registration_hit",
     "registration_miss", "gaudi_copy/registration_miss", None),
    ("registration_hit", "gaudi_copy/registration_hit",
     "registration_miss_mapped", "gaudi_copy/registration_miss_mapped", None),
    ("mem_query/100000", "gaudi_copy/mem_query_of_100000",
     "mem_query/10", "gaudi_copy/mem_query_of_10", 2.0),
]
DETECTION = "detect_host_pointer"
DETECTION_BAR = 30  # nanoseconds more or less
DETECTION_ROUNDS = 3


def md(run):
    names = "|".join(sorted({name for case, _, reference, *_ in MEMORY_DOMAIN
                             for name in (case, reference)}))
    times = google.measure(run, f"^({names})$", by_size=False)
    for case, series, reference, reference_series, bar in MEMORY_DOMAIN:
        yield Result(series, times[case], TIME, reference=reference_series,
                     reference_time=times[reference], bar=bar)
    rounds = 1 if run.quick else DETECTION_ROUNDS
    for cache in ("y", "n"):
        series = f"ucp/{DETECTION}_memtype_cache={cache}"

        def detect(kind, cache=cache):
            variables = {"UCX_MEMTYPE_CACHE": cache}
            if kind == "without the module":
                variables["GAUDI_BENCH_WITHOUT_MODULE"] = "1"
            return google.measure(run, f"^{DETECTION}$", by_size=False,
                                  **variables)[DETECTION]

        kinds = ["with the module", "without the module"]
        run.progress.expect(rounds * len(kinds))
        taken = medians_in_turns(run, kinds, rounds, detect, DETECTION)
        yield Result(series, taken[kinds[0]], TIME,
                     reference=f"{series} without the module",
                     reference_time=taken[kinds[1]],
                     bar=Difference(DETECTION_BAR))


# --- timing -------------------------------------------------------------------

# Gaudi2's figures (src/hlthunk_emulator/timing_figures.h) in a box that is so
# many times slower, times and bandwidths alike: the machine has to keep up.
SLOWER = 100
BOX = {"doorbell": 1.5, "completion": 2.5, "wakeup": 5, "import_page": 0.1}
BOX_BANDWIDTHS = {"to_card": 25, "from_card": 25, "pdma_engine": 25,
                  "pdma_all": 50, "edma_engine": 115, "edma_all": 920,
                  "hbm": 2450}
# case, transport, direction, what bounds it
MODELLED = [
    ("put", "gaudi_copy", "H-D", "to_card"),
    ("get", "gaudi_copy", "D-H", "from_card"),
    ("put_staged", "gaudi_copy", "H-D", "to_card"),
    ("get_staged", "gaudi_copy", "D-H", "from_card"),
    ("on_card", "gaudi_copy", "D-D", "edma_engine"),
    ("put_to_peer", "gaudi_ipc", "D-D", "from_card"),
    ("put_short_to_peer", "gaudi_ipc", "D-D", "from_card"),
    ("get_from_peer", "gaudi_ipc", "D-D", "to_card"),
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


def slow_box():
    """What the model is given, in microseconds and GB/s."""
    box = {name: value * SLOWER for name, value in BOX.items()}
    return box | {name: value / SLOWER
                  for name, value in BOX_BANDWIDTHS.items()}


def warn_of_slow_memory(run, box):
    case = f"{WHOLE}/{MODEL_BAR_FROM}"
    taken = google.measure(run, f"^{case}$", by_size=False)[case]
    for name in sorted({bound for *_, bound in MODELLED}):
        if MODEL_BAR_FROM / taken < KEEPS_UP * box[name]:
            run.progress.clear()
            print(f"bench: memcpy gives {MODEL_BAR_FROM / taken:.1f} GB/s here: "
                  f"too little for a {name} of {box[name]} GB/s, what follows "
                  "means nothing")


def timing(run):
    box = slow_box()
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(box, file)
        file.flush()
        times = google.measure(run, "^timing_", column="shortest", reduce=min,
                               HLTHUNK_EMU_TIMING=file.name)
    warn_of_slow_memory(run, box)
    sizes = sorted({google.size_of(name) for name in times})
    for size in sizes:
        bar = MODEL_BAR if size >= MODEL_BAR_FROM else None
        for case, transport, direction, bound in MODELLED:
            yield Result(f"{transport}/{case}", times[f"timing_{case}/{size}"],
                         direction=direction, size=size,
                         reference=f"link/{bound}",
                         reference_time=size / box[bound], bar=bar)
        bar = OVERLAP_BAR if size >= MODEL_BAR_FROM else None
        for case, transport, *single in BOTH_DIRECTIONS:
            yield Result(f"{transport}/{case}", times[f"timing_{case}/{size}"],
                         TIME, size=size, reference="the longer of both alone",
                         reference_time=max(times[f"timing_{each}/{size}"]
                                            for each in single), bar=bar)
