# SPDX-License-Identifier: BSD-3-Clause
"""What was measured, as one table: a result is a row, and a CSV file has them
all. README of the columns: docs/benchmarks.md."""

import csv
import dataclasses
import re


class BenchError(Exception):
    """Why there are no results, for whoever runs the benchmarks."""


class Difference(int):
    """A bar in nanoseconds more or less than the reference."""


# What the time of a result is of.
SINGLE = "single"  # an operation, one at a time: its bandwidth follows
TIME = "time"  # what has no bandwidth
LATENCY = "latency"  # half of a message there and one back
BANDWIDTH = "bandwidth"  # a message of many that are under way
BOTH_WAYS = "both-ways"  # the same, in both directions at once
MEASURES = (SINGLE, TIME, LATENCY, BANDWIDTH, BOTH_WAYS)

COLUMNS = ("set", "series", "measure", "direction", "size_bytes", "latency_us",
           "bandwidth_gbs", "reference", "ratio", "bar", "verdict")


@dataclasses.dataclass
class Result:
    """One case. Times are nanoseconds, by medians of several runs."""
    series: str  # transport/what
    time: float
    measure: str = SINGLE
    direction: str = ""  # H-D: from host to device memory
    size: int | None = None  # bytes
    reference: str = ""  # another series of the same run, or what is known
    reference_time: float | None = None
    bar: float | Difference | None = None  # what the ratio may be at most

    @property
    def ratio(self):
        """The time as a multiple of the reference's."""
        return (None if self.reference_time is None
                else self.time / self.reference_time)

    @property
    def verdict(self):
        if self.bar is None:
            return ""
        if isinstance(self.bar, Difference):
            met = abs(self.time - self.reference_time) <= self.bar
        else:
            met = self.ratio <= self.bar
        return "ok" if met else "MISSED"

    @property
    def bar_text(self):
        if self.bar is None:
            return ""
        return (f"{self.bar / 1000:g} us" if isinstance(self.bar, Difference)
                else f"{self.bar:.2f}")

    def row(self, of_set):
        """As the CSV file has it."""
        is_rate = self.measure in (BANDWIDTH, BOTH_WAYS)
        ways = 2 if self.measure == BOTH_WAYS else 1
        has_rate = (self.size is not None and
                    self.measure not in (TIME, LATENCY))
        return {
            "set": of_set,
            "series": self.series,
            "measure": self.measure,
            "direction": self.direction,
            "size_bytes": "" if self.size is None else str(self.size),
            "latency_us": "" if is_rate else f"{self.time / 1000:.4g}",
            "bandwidth_gbs":
                f"{ways * self.size / self.time:.4g}" if has_rate else "",
            "reference": self.reference,
            "ratio": "" if self.ratio is None else f"{self.ratio:.4g}",
            "bar": self.bar_text,
            "verdict": self.verdict,
        }


UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def size_text(size):
    """Bytes in binary powers: 64, 4K, 16M."""
    for unit, factor in reversed(UNITS.items()):
        if size >= factor and size % factor == 0:
            return f"{size // factor}{unit}"
    return str(size)


def parse_size(text):
    match = re.fullmatch(r"(\d+)([KMG]?)", text.strip())
    if match is None or int(match[1]) == 0:
        raise ValueError(f"'{text}' is no size: 64, 4K and 1M are")
    return int(match[1]) * UNITS[match[2]]


def write_table(path, rows):
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def check_row(row):
    """What is wrong with a row that was read; None for a good one."""
    if None in row or None in row.values():
        return "has another number of columns"
    if row["measure"] not in MEASURES:
        return f"has the measure '{row['measure']}'"
    for column, kind in (("size_bytes", int), ("latency_us", float),
                         ("bandwidth_gbs", float), ("ratio", float)):
        try:
            good = row[column] == "" or 0 < kind(row[column]) < float("inf")
        except ValueError:
            good = False
        if not good:
            return f"has '{row[column]}' for {column}"
    return None


def read_table(path):
    """The rows of a file that write_table wrote."""
    try:
        with open(path, newline="", encoding="utf-8") as file:
            reader = csv.DictReader(file)
            columns = tuple(reader.fieldnames or ())
            rows = list(reader)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise BenchError(f"{path}: {error}") from error
    if columns != COLUMNS:
        raise BenchError(f"{path} is no table of results: its columns are not "
                         f"{', '.join(COLUMNS)}")
    if not rows:
        raise BenchError(f"{path} has no results")
    for number, row in enumerate(rows, 2):
        problem = check_row(row)
        if problem is not None:
            raise BenchError(f"{path}: line {number} {problem}")
    return rows
