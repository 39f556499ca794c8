# SPDX-License-Identifier: BSD-3-Clause
"""Sets that Google Benchmark measures in one process, and one beside it."""

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
    ("ipc_put_zcopy_from_host", "gaudi_ipc/put_zcopy", "H-D", None),
    ("ipc_put_zcopy_from_device", "gaudi_ipc/put_zcopy", "D-D", None),
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
# These copy the bytes twice, those of gaudi_ipc from one core's cache to the
# other's: case, bytes, bar.
TWICE = {("put_zcopy_staged", 1 << 20): 1.0,
         ("ipc_put_zcopy_from_host", 1 << 20): 1.5,
         ("ipc_put_zcopy_from_device", 1 << 20): 1.5,
         ("ipc_put_zcopy_from_host", 16 << 20): 1.0,
         ("ipc_put_zcopy_from_device", 16 << 20): 1.0}


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
        if (case, size) in TWICE:
            yield Result(series, time, direction=direction, size=size,
                         reference="two of memcpy/whole",
                         reference_time=2 * whole, bar=TWICE[case, size])
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

