# SPDX-License-Identifier: BSD-3-Clause
"""Programs of Google Benchmark, by what they write as JSON."""

import collections
import json
import os
import re
import statistics
import subprocess

from .result import BenchError
from .run import output_of

PROGRAM = "gaudi_bench"
SUBMISSION = "reference_submit_and_poll/8"


def size_of(name):
    """The argument of a case, which is bytes with most of them."""
    match = re.search(r"/(\d+)(/|$)", name)
    return None if match is None else int(match[1])


def names_of(program, pattern, wanted):
    names = output_of([program, "--benchmark_list_tests",
                       f"--benchmark_filter={pattern}"]).split()
    if not names:
        raise BenchError(f"{os.path.basename(program)} has no case {pattern}")
    return [name for name in names if wanted(name)]


def stream(command, variables, saw):
    """What the program prints; saw(name) is called with each case that has
    been measured."""
    with subprocess.Popen(command, env={**os.environ, **variables}, text=True,
                          stdout=subprocess.PIPE) as process:
        text = name = ""
        try:
            for line in process.stdout:
                text += line
                # Of several repetitions there are means and the like, too.
                match = re.match(r'\s*"run_(name|type)": "(.*)"', line)
                if match is not None and match[1] == "name":
                    name = match[2]
                elif match is not None and match[2] == "iteration":
                    saw(name)
            process.wait()
        finally:
            process.kill()
    if process.returncode != 0:
        raise BenchError(f"{os.path.basename(command[0])} failed "
                         f"({process.returncode})")
    return text


def measured_rows(program, text):
    """The rows of an output, all of them good."""
    program = os.path.basename(program)
    try:
        rows = json.loads(text)["benchmarks"]
    except (ValueError, KeyError, TypeError) as error:
        raise BenchError(f"{program} wrote no results: {text[:200]!r}") from error
    for row in rows:
        if row.get("error_occurred"):
            raise BenchError(f"{program}: {row['run_name']}: "
                             f"{row.get('error_message', 'failed')}")
    return [row for row in rows if row["run_type"] == "iteration"]


def measure(run, pattern, by_size=True, program=PROGRAM, column="real_time",
            reduce=statistics.median, at_once=1, **variables):
    """A time of every case that a pattern names, of the sizes that are wanted, in
    nanoseconds: the median of several processes' unless reduce makes something
    else of them. Each process measures at_once times, for what takes long to set
    up."""
    program = run.program(program)
    wanted = (lambda name: run.wants(size_of(name))) if by_size else bool
    names = names_of(program, pattern, wanted)
    if not names:
        return {}
    processes = max(run.repetitions // at_once, 1)
    run.progress.expect(len(names) * processes * at_once)
    command = [
        program,
        f"--benchmark_filter=^({'|'.join(names)})$",
        f"--benchmark_min_time={run.min_time}",
        f"--benchmark_repetitions={at_once}",
        "--benchmark_enable_random_interleaving=true",
        "--benchmark_format=json",
    ]
    times = collections.defaultdict(list)
    for _ in range(processes):
        text = stream(command, variables, run.progress.step)
        for row in measured_rows(program, text):
            times[row["run_name"]].append(row[column])
    missing = [name for name in names if not times[name]]
    if missing:
        raise BenchError(f"{os.path.basename(program)} did not measure "
                         f"{', '.join(missing)}")
    # Google Benchmark says which clock it went by.
    return {name.removesuffix("/real_time"): reduce(times[name])
            for name in names}
