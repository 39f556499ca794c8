# SPDX-License-Identifier: BSD-3-Clause
"""On what the results were measured, for the page that shows them."""

import datetime
import os
import pathlib
import platform
import re
import subprocess

CARDS = ("software Gaudi2 (HLTHUNK_EMU_ASIC to choose another): their memory is "
         "this machine's, and threads of this machine are their DMA engines. No "
         "figure is one of a card. The set timing alone has a model of one's "
         "links.")


def printed(command, pattern):
    """What a pattern finds in what a program prints."""
    try:
        text = subprocess.run(command, stdout=subprocess.PIPE,
                              stderr=subprocess.DEVNULL, text=True, timeout=60,
                              check=False).stdout
    except (OSError, subprocess.TimeoutExpired):
        return "not there"
    match = re.search(pattern, text, re.MULTILINE)
    return "not known" if match is None else match[1]


def found(path, pattern):
    """What a pattern finds in a file."""
    try:
        text = pathlib.Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return "not known"
    match = re.search(pattern, text, re.MULTILINE)
    return "not known" if match is None else match[1].strip().strip('"')


def facts(build, settings):
    """Names and values, in the order in which they are shown."""
    now = datetime.datetime.now(datetime.timezone.utc)
    memory = found("/proc/meminfo", r"^MemTotal:\s+(\d+) kB")
    version = found(build / "CMakeCache.txt",
                    r"^CMAKE_PROJECT_VERSION:STATIC=(.*)$")
    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    return {
        "Date": now.strftime("%Y-%m-%d %H:%M UTC"),
        "Cards": CARDS,
        "UCX": printed(["ucx_info", "-v"], r"ersion[ =](\d+\.\d+\.\d+)"),
        "Transports": version,
        "MPI": f"MPICH {printed(['mpiexec.mpich', '--version'], r'Version: *(.*)$')}"
               ", Open MPI "
               f"{printed(['mpiexec.openmpi', '--version'], r'([0-9.]+)$')}",
        "Processor": f"{found('/proc/cpuinfo', r'^model name.*: (.*)$')}, "
                     f"{len(os.sched_getaffinity(0))} cores",
        "Memory": (f"{int(memory) / (1 << 20):.0f} GiB" if memory.isdigit()
                   else memory),
        "System": f"{found('/etc/os-release', r'^PRETTY_NAME=(.*)$')}, "
                  f"Linux {platform.release()}",
        "Load before": f"{load} (averages of 1, 5 and 15 minutes)",
        "Settings": settings,
    }
