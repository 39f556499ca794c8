# SPDX-License-Identifier: BSD-3-Clause
"""Tells what is measured while that takes its time, on stderr: on a terminal in
one line that is written again and again, else in a line now and then."""

import shutil
import sys
import time

EVERY = 5  # seconds from one line to the next, where they stay


class Progress:
    def __init__(self, sets):
        self.sets = sets
        self.place = 0
        self.done = self.total = 0
        self.name = ""
        self.begun = time.monotonic()
        self.told = 0.0
        self.on_terminal = sys.stderr.isatty()

    def begin_set(self, name):
        self.place += 1
        self.done = self.total = 0
        self.name = name
        self.told = 0.0  # the first one of a set is told at once

    def expect(self, count):
        """So many more steps are to come in this set."""
        self.total += count

    def step(self, what):
        """One of them begins, or has just ended."""
        self.done += 1
        now = time.monotonic()
        text = (f"[{now - self.begun:4.0f} s] set {self.place} of {self.sets}, "
                f"{self.name}: {self.done} of {self.total}, {what}")
        if self.on_terminal:
            width = shutil.get_terminal_size().columns
            print(f"\r\033[K{text[:width - 1]}", end="", file=sys.stderr,
                  flush=True)
        elif now - self.told >= EVERY:
            print(text, file=sys.stderr, flush=True)
            self.told = now

    def clear(self):
        """Make room for a line of something else."""
        if self.on_terminal:
            print("\r\033[K", end="", file=sys.stderr, flush=True)
