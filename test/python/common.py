# SPDX-License-Identifier: BSD-3-Clause
"""What the tests of the Python package share: a box of software cards, UCX's
log, and other processes.

Imported before ucx_gaudi, which it lets be found in the build tree.
"""

import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

DEADLINE = 120

ROOT = pathlib.Path(sys.argv[1])
BUILD = pathlib.Path(sys.argv[2])
PACKAGES = BUILD / "lib/python3/dist-packages"
CARDS = 3

_scratch = tempfile.TemporaryDirectory()
LOG = pathlib.Path(_scratch.name) / "ucx.log"

_FOREIGN = ("UCX_", "HLTHUNK_", "LD_", "PYTHON", "OMPI_", "PMIX_", "HABANA_",
            "GAUDI_", "HLS_")

for _name in list(os.environ):
    if _name.startswith(_FOREIGN):
        del os.environ[_name]
os.environ.update(
    UCX_GAUDI_DRIVER="emulator", UCX_LOG_FILE=str(LOG),
    HLTHUNK_EMU_NODE=f"python-{os.getpid()}",
    HLTHUNK_EMU_DEVICES=str(CARDS), HLTHUNK_EMU_HBM="4G",
    PYTHONDONTWRITEBYTECODE="1")
sys.path.insert(0, str(PACKAGES))


def run(*command, code=0, **variables):
    """All that a command prints; another exit code ends the test."""
    environment = {**os.environ, "PYTHONPATH": str(PACKAGES),
                   "UCX_LOG_FILE": "stderr", **variables}
    result = subprocess.run(
        [str(word) for word in command],
        env={name: value for name, value in environment.items() if value},
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        timeout=DEADLINE, check=False, stdin=subprocess.DEVNULL)
    if result.returncode != code:
        raise AssertionError(f"{command} ended with {result.returncode}:\n"
                             f"{result.stdout}")
    return result.stdout


def run_python(text, **options):
    """What a program of Python prints, in a process of its own."""
    return run("/usr/bin/python3", "-B", "-c", text, **options)


class LoggedTest(unittest.TestCase):
    """Fails on what UCX logs, unless it was expected."""

    def setUp(self):
        self.seen = self._size()

    def tearDown(self):
        self.assertEqual("", self._news())

    def expect_log(self, text):
        self.assertIn(text, self._news())
        self.seen = self._size()

    @staticmethod
    def _size():
        return LOG.stat().st_size if LOG.exists() else 0

    def _news(self):
        if not LOG.exists():
            return ""
        with open(LOG, encoding="utf-8") as file:
            file.seek(self.seen)
            return file.read()


def main():
    unittest.main(argv=sys.argv[:1] + sys.argv[3:], module="__main__")
