#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Runs UCX's own tests on Gaudi memory and compares with what is expected.

usage: run.py [--setting NAME] [--resume] [--jobs N] BUILD [FILTER...]

BUILD is a folder with the programs of this folder's CMakeLists.txt. Each test is
run whose name begins with gaudi and matches a FILTER (* for anything). Several
share a process; one that crashes or hangs costs itself alone. Results are in
BUILD/ucx_gtest, a file for each setting: SETTING.txt, of a choice SETTING-some.txt.

  --setting   in one way only: host, proto (the new protocols, where a release has
              both), or ports
  --resume    leave out what an earlier run did
  --jobs N    so many processes at a time

Fails if a test ends otherwise than expected-RELEASE.txt of this folder says: one
that it does not name has to pass, or to be skipped by itself. A line there: SETTING
TEST OUTCOME REASON. SETTING and TEST are regular expressions, OUTCOME is failed,
crashed or hung, or several, such as passed|crashed, where it depends on what lies
where in memory.
"""

import argparse
import collections
import concurrent.futures
import fnmatch
import os
import re
import selectors
import signal
import subprocess
import sys
import tempfile
import threading
import time

# Of each: which tests it makes a difference to, and its variables.
Setting = collections.namedtuple("Setting", "tests variables")
SETTINGS = {
    "host": Setting(r"gaudi", {}),
    "proto": Setting(r"gaudi\w*/[^.]*ucp",
                     {"UCX_PROTO_ENABLE": "y"}),
    "ports": Setting(r"(gaudi|gaudi_ipc)/",
                     {"HLTHUNK_EMU_PORTS": "y",
                      "UCX_GAUDI_IPC_ROUTES": "ports,host"}),
}
# Earlier ones have two sets of protocols, the old ones as default.
FIRST_WITH_NEW_ALONE = (1, 16)
CARDS = 2
# Tests of one process: few enough that a crash costs little.
BATCH = 100
# Longer than any test that passes takes beside others, in seconds.
LIMIT = 120
OUTCOMES = {"passed", "failed", "crashed", "hung"}
# The last of a test's output that is shown.
SHOWN = 15

Result = collections.namedtuple("Result", "test outcome output")
Expected = collections.namedtuple("Expected", "setting test outcome reason")


def fail(message):
    sys.exit(f"ucx_gtest: {message}")


def read_expected(path):
    """The lines of that file; none where it is not there."""
    found = []
    if not os.path.exists(path):
        print(f"There is no {path}: all tests have to pass")
        return found
    with open(path, encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            words = line.split(None, 3)
            if not words or words[0].startswith("#"):
                continue
            if len(words) < 4 or not OUTCOMES.issuperset(words[2].split("|")):
                fail(f"{path}:{number}: not SETTING TEST OUTCOME REASON")
            found.append(Expected(*words[:3], words[3].strip()))
    return found


class Runner:
    """Runs tests of the programs, with one setting."""

    def __init__(self, options, setting):
        self.setting = setting
        binaries = os.path.join(options.build, "bin")
        self.command = [os.path.join(binaries, "ucx-gaudi"), "run",
                        f"--emulate={CARDS}", "--",
                        os.path.join(binaries, "ucx_gtest")]
        self.environment = dict(os.environ)
        for name in list(self.environment):
            if name.startswith(("UCX_", "HLTHUNK_", "GTEST_")):
                del self.environment[name]
        # As the makefile of these tests has it. A test that expects a warning
        # takes it from the log.
        self.environment.update(UCX_HANDLE_ERRORS="none", UCX_LOG_LEVEL="warn",
                                UCX_LOG_PRINT_ENABLE="y",
                                **SETTINGS[setting].variables)
        self.lock = threading.Lock()
        folder = os.path.join(options.build, "ucx_gtest")
        os.makedirs(folder, exist_ok=True)
        # Some tests do not take the place of all.
        self.path = os.path.join(folder, f"{setting}.txt"
                                 if options.filters == ["*"] else
                                 f"{setting}-some.txt")
        self.earlier = []
        if options.resume and os.path.exists(self.path):
            with open(self.path, encoding="utf-8") as lines:
                self.earlier = [Result(*reversed(line.split()),
                                       ["in an earlier run"])
                                for line in lines]
        else:
            with open(self.path, "w", encoding="utf-8"):
                pass

    def tests(self):
        """Names of the tests that are for us."""
        listed = subprocess.run(
            [*self.command, "--gtest_list_tests", "--gtest_filter=gaudi*"],
            env=self.environment, stdout=subprocess.PIPE, text=True,
            timeout=LIMIT, check=False)
        if listed.returncode:
            fail(f"the tests cannot be listed: {listed.stdout}")
        found = []
        suite = ""
        for line in listed.stdout.splitlines():
            words = line.split()
            if line.startswith("gaudi"):
                suite = words[0]
            elif line.startswith("  ") and suite:
                found.append(suite + words[0])
        return [test for test in found
                if re.match(SETTINGS[self.setting].tests, test)]

    def say(self, result):
        with self.lock, open(self.path, "a", encoding="utf-8") as results:
            results.write(f"{result.outcome} {result.test}\n")

    def run(self, tests):
        """Results of these tests."""
        results = []
        while tests:
            ended = self.run_once(tests)
            if not ended:
                fail(f"{tests[0]} and those behind it cannot be run")
            for result in ended:
                self.say(result)
            results += ended
            done = {result.test for result in ended}
            tests = [test for test in tests if test not in done]
        return results

    def run_once(self, tests):
        """Results of those tests that were run before the process ended."""
        with tempfile.TemporaryDirectory() as node:
            with subprocess.Popen(
                    [*self.command, "--gtest_filter=" + ":".join(tests)],
                    env=dict(self.environment, HLTHUNK_EMU_NODE=node),
                    stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT, start_new_session=True,
                    cwd=node) as process:
                try:
                    return self.follow(process)
                finally:
                    # Children that a test left, too.
                    try:
                        os.killpg(process.pid, signal.SIGKILL)
                    except ProcessLookupError:
                        pass

    def follow(self, process):
        results = []
        test = None
        output = []
        is_skipped = False
        for line in self.lines(process):
            found = re.search(r"\[( RUN      |       OK |  FAILED  |     SKIP )"
                              r"\] ?(\S*)", line)
            kind = found.group(1).strip() if found else ""
            if kind == "RUN":
                test = found.group(2)
                output = []
                is_skipped = False
            elif kind == "SKIP":
                is_skipped = True
            elif kind in ("OK", "FAILED") and found.group(2).rstrip(",") == test:
                outcome = ("failed" if kind == "FAILED" else
                           "skipped" if is_skipped else "passed")
                results.append(Result(test, outcome, output))
                test = None
            else:
                output.append(line)
        if test:
            hung = process.poll() is None
            process.kill()
            code = process.wait()
            output.append("no end" if hung else f"exit code {code}")
            results.append(Result(test, "hung" if hung else "crashed", output))
        elif results and process.poll() not in (0, 1):
            # At its end, behind the last test.
            last = results.pop()
            results.append(Result(last.test, "crashed", output))
        return results

    def lines(self, process):
        """Lines of its output, until it ends or says nothing for LIMIT."""
        rest = b""
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            while selector.select(LIMIT):
                piece = os.read(process.stdout.fileno(), 65536)
                if not piece:
                    # Its output may be closed before it can be waited for.
                    try:
                        process.wait(LIMIT)
                    except subprocess.TimeoutExpired:
                        pass
                    break
                *whole, rest = (rest + piece).split(b"\n")
                for line in whole:
                    yield line.decode(errors="replace")


def judge(results, expected, setting, is_whole):
    """What is wrong, in lines."""
    used = set()
    for result in results:
        line = next((one for one in expected
                     if re.fullmatch(one.setting, setting)
                     and re.fullmatch(one.test, result.test)), None)
        used.add(line)
        if line:
            if result.outcome not in line.outcome.split("|"):
                yield (f"{result.test}: {result.outcome}, expected "
                       f"{line.outcome}: {line.reason}")
        elif result.outcome not in ("passed", "skipped"):
            yield "\n    ".join([f"{result.test}: {result.outcome}",
                                 *result.output[-SHOWN:]])
    if is_whole:
        for line in expected:
            if re.fullmatch(line.setting, setting) and line not in used:
                yield f"{line.test}: expected, and there is no such test"


def group_of(test):
    """What a test is counted with: the transports, and UCT or UCP."""
    first, _, suite = test.partition("/")
    return f"{'UCP' if 'ucp' in suite.split('.')[0] else 'UCT'} {first}"


def print_counts(results):
    outcomes = ("passed", "skipped", "failed", "crashed", "hung")
    groups = collections.defaultdict(collections.Counter)
    for result in results:
        groups[group_of(result.test)][result.outcome] += 1
        groups["all"][result.outcome] += 1
    print(f"{'':24}" + "".join(f"{outcome:>9}" for outcome in outcomes))
    for group in sorted(groups, key=lambda name: (name == "all", name)):
        print(f"{group:24}" + "".join(f"{groups[group][outcome]:9}"
                                      for outcome in outcomes))


def run_all(runner, options, expected):
    """What is wrong with one setting, in lines."""
    began = time.monotonic()
    results = runner.earlier if options.resume else []
    done = {result.test for result in results}
    tests = [test for test in runner.tests()
             if test not in done and any(fnmatch.fnmatchcase(test, wanted)
                                         for wanted in options.filters)]
    batches = [tests[at:at + BATCH] for at in range(0, len(tests), BATCH)]
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        for some in pool.map(runner.run, batches):
            results += some
    if not results:
        fail(f"there is no test {' '.join(options.filters)}")
    print_counts(results)
    print(f"{len(results)} tests of UCX {options.release}, setting "
          f"{runner.setting}, {time.monotonic() - began:.0f} s\n", flush=True)
    return judge(results, expected, runner.setting,
                 options.filters == ["*"])


def main():
    parser = argparse.ArgumentParser(usage=__doc__.split("usage: ")[1])
    parser.add_argument("--setting", choices=SETTINGS)
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("build", type=os.path.realpath)
    parser.add_argument("filters", nargs="*", default=["*"])
    options = parser.parse_args()

    with open(os.path.join(options.build, "ucx_gtest", "release"),
              encoding="utf-8") as file:
        options.release = file.read().strip()
    expected = read_expected(os.path.join(
        os.path.dirname(os.path.realpath(__file__)),
        f"expected-{options.release}.txt"))
    settings = list(SETTINGS)
    if tuple(map(int, options.release.split("."))) >= FIRST_WITH_NEW_ALONE:
        settings.remove("proto")
    wrong = []
    for setting in [options.setting] if options.setting else settings:
        wrong += run_all(Runner(options, setting), options, expected)
    if wrong:
        print("\n".join(wrong))
        fail(f"{len(wrong)} test(s) did not end as expected")


if __name__ == "__main__":
    main()
