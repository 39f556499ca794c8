# SPDX-License-Identifier: BSD-3-Clause
"""What the tests of the benchmarks share: runs of scripts/bench and of programs
of the build, in a scratch folder."""

import csv
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import unittest

DEADLINE = 250  # seconds


class BenchCase(unittest.TestCase):
    root = build = None  # set by main()

    def setUp(self):
        place = tempfile.TemporaryDirectory()
        self.addCleanup(place.cleanup)
        self.place = pathlib.Path(place.name)
        self.results = self.place / "results"
        self.results.mkdir()

    def run_command(self, *command, **variables):
        """(exit status, stdout, stderr). All files of MPI libraries are in the
        scratch folder, and what a command starts ends with it."""
        clean = {name: value for name, value in os.environ.items()
                 if not name.startswith(("UCX_", "HLTHUNK_", "OMPI_", "LD_"))}
        clean["HLTHUNK_EMU_NODE"] = f"bench-test-{os.getpid()}"
        for name in ("TMPDIR", "HOME", "OMPI_MCA_btl_vader_backing_directory"):
            clean[name] = str(self.place)
        with subprocess.Popen(
                [str(word) for word in command], env={**clean, **variables},
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                stderr=subprocess.PIPE, text=True,
                start_new_session=True) as process:
            try:
                out, err = process.communicate(timeout=DEADLINE)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                raise
        return process.returncode, out, err

    def bench(self, *arguments, build=None, **variables):
        """scripts/bench, with results in the scratch folder."""
        return self.run_command(
            sys.executable, "-B", self.root / "scripts/bench", "--build",
            build or self.build, "--output", self.results, *arguments,
            **variables)

    def rows(self):
        with open(self.results / "results.csv", newline="",
                  encoding="utf-8") as file:
            return list(csv.DictReader(file))

    def expect_refused(self, outcome, *texts):
        """It said why, and no more."""
        status, _, err = outcome
        self.assertEqual(1, status, err)
        self.assertNotIn("Traceback", err)
        for text in texts:
            self.assertIn(text, err)

    def write_results(self, lines, facts='{"Date": "today & <now>"}'):
        header = ("set,series,measure,direction,size_bytes,latency_us,"
                  "bandwidth_gbs,reference,ratio,bar,verdict")
        (self.results / "results.csv").write_text(
            "\n".join([header, *lines]) + "\n", encoding="utf-8")
        (self.results / "facts.json").write_text(facts, encoding="utf-8")

    def write_program(self, name, text):
        """A stand-in for a program of a build; gives the folder of that."""
        program = self.place / "build/bin" / name
        program.parent.mkdir(parents=True, exist_ok=True)
        program.write_text(text, encoding="utf-8")
        program.chmod(0o755)
        return program.parent.parent

    def google_program(self, names, answers):
        """A stand-in for one of Google Benchmark that has cases of these names,
        and prints each answer in turn."""
        for number, answer in enumerate(answers):
            text = answer if isinstance(answer, str) else json.dumps(answer)
            (self.place / f"answer-{number}").write_text(text, encoding="utf-8")
        listed = "\\n".join(names)
        return self.write_program("gaudi_bench", f"""#!/bin/sh
case "$1" in
--benchmark_list_tests) printf '{listed}\\n'; exit ;;
esac
cd '{self.place}' || exit
turn=$(cat turn 2>/dev/null || echo 0)
echo $((turn + 1)) >turn
exec cat "answer-$turn"
""")


def main(module):
    """Run one class of tests: CLASS ROOT BUILD_DIRECTORY."""
    name, root, build = sys.argv[1:]
    BenchCase.root = pathlib.Path(root)
    BenchCase.build = pathlib.Path(build)
    suite = unittest.defaultTestLoader.loadTestsFromName(name, module)
    if suite.countTestCases() == 0:
        sys.exit(f"{name} has no tests")
    result = unittest.TextTestRunner(verbosity=2).run(suite)
    sys.exit(0 if result.wasSuccessful() else 1)
