# SPDX-License-Identifier: BSD-3-Clause
"""Plots of bandwidth and latency against size, by gnuplot."""

import math
import shutil
import subprocess
import typing

from .result import (BANDWIDTH, BOTH_WAYS, LATENCY, SINGLE, BenchError,
                     size_text)

# Told apart by people who see colours in other ways, too (Okabe and Ito).
COLOURS = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9"]
# Of references: colour and dashes.
REFERENCES = [("#000000", "(6,4)"), ("#777777", "(6,4)"), ("#000000", "(1,4)")]
# Of gnuplot: filled where the card is written to, open where it is read from.
POINTS = {"H-D": 7, "D-H": 6, "D-D": 5, "H-H": 2}


class Line(typing.NamedTuple):
    of_set: str
    series: str
    direction: str
    label: str
    is_reference: bool = False
    measures: dict | None = None  # instead of the figure's


class Figure(typing.NamedTuple):
    name: str  # of the files
    title: str
    lines: list
    measures: dict  # the column of the table: the measures that are taken
    note: str  # below it, for people


RATE, TIME_TAKEN = "bandwidth_gbs", "latency_us"
AXES = {RATE: ("bandwidth", "Bandwidth (GB/s)"),
        TIME_TAKEN: ("latency", "Latency (µs)")}
MESSAGES = {RATE: (BANDWIDTH,), TIME_TAKEN: (LATENCY,)}

MEMCPY = Line("uct", "memcpy/whole", "H-H", "memcpy", True, {RATE: (SINGLE,)})
MPI = [
    Line("mpi", "mpich/gaudi", "D-D", "MPICH"),
    Line("mpi", "openmpi/gaudi", "D-D", "Open MPI"),
    Line("mpi", "mpich/sm", "H-H", "MPICH, stock sm", True),
    Line("mpi", "openmpi/sm", "H-H", "Open MPI, stock sm", True),
    MEMCPY,
]

FIGURES = [
    Figure("uct", "Copies between host and device memory, through UCT", [
        Line("uct", f"gaudi_copy/{case}", direction, label)
        for case, direction, label in (
            ("put_zcopy_registered", "H-D", "put_zcopy, registered"),
            ("get_zcopy_registered", "D-H", "get_zcopy, registered"),
            ("put_zcopy_staged", "H-D", "put_zcopy, staged"),
            ("get_zcopy_staged", "D-H", "get_zcopy, staged"),
            ("put_short", "H-D", "put_short"),
            ("get_short", "D-H", "get_short"))
    ] + [
        Line("uct", "memcpy/whole", "H-H", "memcpy", True),
        Line("uct", "memcpy/in_pieces", "H-H", "memcpy in pieces", True),
    ], {RATE: (SINGLE,), TIME_TAKEN: (SINGLE,)},
        "One operation at a time. Registered: host memory that the card reaches; "
        "staged: any other."),
    Figure("ipc", "Messages between two processes, by ucx_perftest", [
        Line("ipc", "gaudi_ipc/tag_over_host", "D-D", "gaudi_ipc"),
        Line("ipc", "sm/tag", "H-H", "stock sm", True),
        Line("ipc", "tcp/tag", "H-H", "stock tcp", True),
        MEMCPY,
    ], MESSAGES, "Tag messages: many under way for the bandwidth, half of a "
        "ping-pong for the latency."),
    Figure("mpi", "Messages between two MPI ranks", MPI, MESSAGES,
           "A window of messages for the bandwidth, half of a ping-pong for the "
           "latency."),
    Figure("mpi-both-ways",
           "Messages between two MPI ranks, in both directions at once", MPI,
           {RATE: (BOTH_WAYS,)},
           "Windows in both directions; their bandwidths together."),
    Figure("serving", "Writes of 2,048 blocks to another process", [
        Line("serving", "gaudi_ipc/lists_of_blocks_over_host", "D-D",
             "device memory"),
        MEMCPY,
    ], {RATE: (BANDWIDTH,)}, "Many blocks under way, by one endpoint, as NIXL "
        "writes keys and values."),
]

KINDS = {
    "png": "pngcairo size 1280,640 font 'DejaVu Sans,13'",
    "svg": "svg size 960,480 dynamic font 'DejaVu Sans,sans-serif,13' "
           "background '#ffffff'",
}


def points_of(figure, column, rows):
    """(line, its (size, value)s in order)s; lines without any are left out, and
    none is there where only references would be."""
    taken = []
    for line in figure.lines:
        measures = (line.measures or figure.measures).get(column, ())
        points = {int(row["size_bytes"]): float(row[column]) for row in rows
                  if (row["set"], row["series"], row["direction"]) == line[:3] and
                  row["measure"] in measures and row["size_bytes"] and
                  row[column]}
        if points:
            taken.append((line, sorted(points.items())))
    return taken if not all(line.is_reference for line, _ in taken) else []


def size_tics(sizes):
    """Powers of two from the least to the largest, not too many."""
    first = math.ceil(math.log2(min(sizes)))
    last = math.floor(math.log2(max(sizes)))
    step = 1
    while (last - first) / step > 13:
        step *= 2
    return ", ".join(f'"{size_text(1 << power)}" {1 << power}'
                     for power in range(first, last + 1) if power % step == 0)


def style_of(line, place):
    point = POINTS[line.direction]
    if line.is_reference:
        colour, dashes = REFERENCES[place % len(REFERENCES)]
        return f"lw 2 dt {dashes} lc rgb '{colour}' pt {point} ps 0.9"
    return (f"lw 2.5 lc rgb '{COLOURS[place % len(COLOURS)]}' pt {point} "
            "ps 1.0")


def script_of(figure, column, points, kind, path):
    """What gnuplot is given."""
    sizes = [size for _, values in points for size, _ in values]
    text = [
        f"set terminal {KINDS[kind]}",
        f"set output '{path}'",
        "set encoding utf8",
        f"set title '{figure.title}' font ',15' noenhanced",
        "set xlabel 'Size (bytes)'",
        f"set ylabel '{AXES[column][1]}'",
        "set logscale x 2",
        "set logscale y 10",
        f"set xtics ({size_tics(sizes)})",
        "set mytics 10",
        "set format y '%g'",
        f"set xrange [{min(sizes) / 1.3}:{max(sizes) * 1.3}]",
        "set border 3 lc rgb '#444444'",
        "set tics nomirror textcolor rgb '#222222'",
        "set grid xtics ytics lt 1 lc rgb '#dddddd' lw 1",
        # Beside the lines, never over them.
        "set key outside right center Left reverse noenhanced spacing 1.4 "
        "samplen 3",
    ]
    plots = []
    places = {True: 0, False: 0}
    for number, (line, values) in enumerate(points):
        text.append(f"$line{number} << EOD")
        text += [f"{size} {value}" for size, value in values]
        text.append("EOD")
        style = style_of(line, places[line.is_reference])
        places[line.is_reference] += 1
        source, target = line.direction.split("-")
        plots.append(f"$line{number} with linespoints {style} "
                     f"title '{line.label} ({source}→{target})'")
    text.append("plot " + ", ".join(plots))
    return "\n".join(text) + "\n"


def require_gnuplot():
    if shutil.which("gnuplot") is None:
        raise BenchError("gnuplot is missing: scripts/install-packages bench")


def draw(folder, rows):
    """PNG and SVG files of all figures that there are results of. Gives
    (figure, the names of its files without their ends)s. Older ones go."""
    drawn = []
    for figure in FIGURES:
        names = []
        for column in figure.measures:
            name = f"{figure.name}-{AXES[column][0]}"
            for kind in KINDS:
                (folder / f"{name}.{kind}").unlink(missing_ok=True)
            points = points_of(figure, column, rows)
            if not points:
                continue
            for kind in KINDS:
                result = subprocess.run(
                    ["gnuplot"], cwd=folder, timeout=60, check=False, text=True,
                    input=script_of(figure, column, points, kind,
                                    f"{name}.{kind}"),
                    stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
                # It warns of what is no error of its own.
                if result.returncode != 0:
                    raise BenchError(f"gnuplot failed at {name}.{kind}:\n"
                                     f"{result.stdout}")
            names.append(name)
        if names:
            drawn.append((figure, names))
    return drawn
