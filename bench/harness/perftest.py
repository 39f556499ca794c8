# SPDX-License-Identifier: BSD-3-Clause
"""Stock ucx_perftest, between two processes."""

import functools
import os
import pathlib
import re
import socket
import subprocess
import time

from .result import BenchError
from .run import DEADLINE, clean_variables

# Column of ucx_perftest. Typical is its own median of the time between messages,
# in which other programs of the machine do not count. Large messages complete in
# groups: there only the overall time means something.
TYPICAL, OVERALL = 0, 2
# The first messages open buffers, and what windows wait for.
LEAST_WARM_UP = 4


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def listens(port):
    wanted = f":{port:04X} 00000000:0000 0A"
    return wanted in pathlib.Path("/proc/net/tcp").read_text(encoding="ascii")


@functools.cache
def perftest():
    """The command. One that is built with MPI takes itself for a rank of a job
    where it is not started from a terminal."""
    try:
        text = subprocess.run(["ucx_perftest", "-h"], stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True,
                              check=False).stdout
    except OSError as error:
        raise BenchError("ucx_perftest is missing: scripts/install-packages "
                         "bench") from error
    return ["ucx_perftest", "-f"] + (["-P", "0"] if "MPI mode" in text else [])


def start_side(run, arguments, transports, core, variables):
    """One side, on a core of its own if there is one. With the module nothing
    differs but the launcher, the name of its transport, and the variables."""
    launched = run.launched(8) if transports.startswith("gaudi") else []
    pinned = [] if core is None else ["taskset", "-c", str(core)]
    return subprocess.Popen(
        pinned + launched + perftest() + arguments,
        env=clean_variables(transports) | variables, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True)


def start_server(run, arguments, transports, core, variables):
    """A side that listens, and where. Another program may have taken the port
    meanwhile, or its own connections: then once more with another one."""
    for _ in range(5):
        port = free_port()
        server = start_side(run, arguments + ["-p", str(port)], transports,
                            core, variables)
        end = time.monotonic() + DEADLINE
        while server.poll() is None and time.monotonic() < end:
            if listens(port):
                return server, port
            time.sleep(0.005)
        server.kill()
        output = server.communicate()[0]
        if "Address already in use" not in output:
            break
    raise BenchError("ucx_perftest does not listen:\n" + output)


def message_time(run, test, size, iterations, column, transports, memory,
                 pinned=True, **variables):
    """Time of one message, in nanoseconds."""
    cores = sorted(os.sched_getaffinity(0))[:2]
    if len(cores) < 2 or not pinned:
        cores = [None, None]
    arguments = ["-t", test, "-s", str(size), "-n", str(iterations),
                 "-w", str(max(iterations // 20, LEAST_WARM_UP))]
    if memory != "host":
        arguments += ["-m", memory]
    server, port = start_server(run, arguments, transports, cores[0],
                                variables)
    sides = [server]
    try:
        sides.append(start_side(run, arguments + ["-p", str(port), "127.0.0.1"],
                                transports, cores[1], variables))
        output = sides[1].communicate(timeout=DEADLINE)[0]
        server_output = sides[0].communicate(timeout=DEADLINE)[0]
    except subprocess.TimeoutExpired as error:
        raise BenchError(f"ucx_perftest {test} of {size} bytes did not end "
                         f"within {DEADLINE} s") from error
    finally:
        for side in sides:
            side.kill()
            side.wait()
    # iterations; typical, average and overall microseconds; four rates. The
    # average is of the last second, in which perhaps none ended: infinite.
    final = re.search(r"^(?:Final:)?\s*(\d+)((?:\s+(?:[\d.]+|inf)){7})\s*$",
                      output, re.MULTILINE)
    if any(side.returncode for side in sides) or not final:
        raise BenchError(f"ucx_perftest failed:\n{output}{server_output}")
    return float(final.group(2).split()[column]) * 1000
