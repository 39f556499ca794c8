#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Runs the commands of a page, and compares what they print with the page.

usage: run_commands.py PAGE ROOT BUILD_DIRECTORY

Each block of a page that is marked as "console" is one shell, in a folder that
looks like the source folder after a build. A line that begins with "$ " is a
command; what follows it is what it prints, where "..." stands for any lines, and
numbers may be others. A page's first block of C is program.c. What cannot run
here is in elsewhere.py, with the test that runs it, which has to exist.

The shell is at a terminal, as a reader's is. Where ucx_perftest is an MPI
program, blocks with it run once more as from a script, with what the page says
of that.
"""

import functools
import os
import pathlib
import re
import shlex
import socket
import subprocess
import sys
import tempfile

import elsewhere

DEADLINE = 240

# How the shell of a block begins. A program that was started in the background
# listens before the next command connects to it.
PRELUDE = r"""
set -euo pipefail
exec 3<&0
trap 'kill $(jobs -p) 2>/dev/null || true' EXIT
listening() {
    local i
    for i in $(seq 300); do
        grep -q "$(printf ':%04X 00000000:0000 0A' "$1")" /proc/net/tcp &&
            return
        sleep 0.1
    done
    echo "nobody listens to port $1"
    return 1
}
"""


def blocks_of(text):
    """Lists of (command, what it prints) of the console blocks."""
    for block in re.findall(r"^```console\n(.*?)^```", text, re.M | re.S):
        commands = []
        lines = iter(block.splitlines())
        for line in lines:
            if not line.startswith("$ "):
                if not commands:
                    sys.exit(f"a block begins without a command: {line}")
                commands[-1][1].append(line)
                continue
            command = line[2:]
            while command.endswith("\\"):
                command = command[:-1] + next(lines).strip()
            commands.append((re.sub(r"\s+#\s.*$", "", command), []))
        yield commands


def check_marks(page, text):
    """Refuses commands that would hide: blocks of a shell run nowhere."""
    if re.search(r"^\s*```\s*(sh|bash|shell)\b", text, re.M):
        sys.exit(f"{page} has a block of a shell: mark it as console, with "
                 "'$ ' before each command")


def plain(line):
    """A line without what differs from run to run."""
    line = re.sub(r"0x[0-9a-f]+|\d[\d.]*", "#", line)
    return " ".join(re.sub(r"[-+|]{3,}", "-", line).split())


def missing_lines(expected, printed):
    """Lines that were not printed, in the order in which they should be."""
    have = iter([plain(line) for line in printed.splitlines()])
    return [line for line in expected
            if line.strip() not in ("", "...") and plain(line) not in have]


def runnable(command, ports):
    """The command with its placeholders filled in."""
    for name, value in elsewhere.PLACEHOLDERS.items():
        command = re.sub(rf"\b{name}\b", value, command)
    if "$(pkg-config" in command:
        # What it escapes, a shell has to read: the build may lie below spaces.
        command = f'eval "{command}"'
    status = elsewhere.status_of(command)
    if status != 0:
        command += f" || test $? = {status}"
    for port in re.findall(r"-p (\d{4,5})\b", command):
        if port not in ports:
            with socket.socket() as free:
                free.bind(("", 0))
                ports[port] = str(free.getsockname()[1])
        command = command.replace(f"-p {port}", f"-p {ports[port]}")
        if command.rstrip().endswith("&"):
            # At the terminal, as where there is job control.
            command = f"{command.rstrip()[:-1]}<&3 &\nlistening {ports[port]}"
    return command


def takes_itself_for_a_rank():
    """Whether ucx_perftest does where it is at no terminal."""
    said = subprocess.run(["ucx_perftest", "-h"], text=True, check=False,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    return elsewhere.MPI_MODE in said.stdout


def as_from_a_script(commands):
    return [(command.replace("ucx_perftest", "ucx_perftest -P 0"), prints)
            for command, prints in commands]


def script_of(commands, ports, tests):
    """What a shell runs, and what it should print; exits on an unknown test."""
    script = PRELUDE
    expected = []
    for command, prints in commands:
        name = elsewhere.test_of(command)
        if name is not None:
            if name not in tests and not elsewhere.is_this_run(name):
                sys.exit(f"'{command}' should be run by {name}, which is no "
                         "test")
            print(f"elsewhere ({name}): {command}")
            continue
        script += f"printf '%s\\n' {shlex.quote('$ ' + command)}\n"
        script += runnable(command, ports) + "\n"
        expected += prints
    return script + "wait\n", expected


def make_folder(place, text, root, build):
    for entry in root.iterdir():
        if entry.name not in ("build", ".git"):
            (place / entry.name).symlink_to(entry)
    (place / "build").symlink_to(build)
    (place / "home/.cache/ucx-gaudi/ucx-1.18.1").mkdir(parents=True)
    # The system's own, for which its packages are.
    (place / "bin").mkdir()
    (place / "bin/python3").symlink_to("/usr/bin/python3")
    program = re.search(r"^```c\n(.*?)^```", text, re.M | re.S)
    (place / "program.c").write_text(
        program.group(1) if program else elsewhere.PROGRAM, encoding="utf-8")


def run_block(script, folder, build, at_terminal):
    environment = {name: value for name, value in os.environ.items()
                   if not name.startswith(elsewhere.NOT_PASSED_ON)}
    environment.update(
        HLTHUNK_EMU_NODE=f"docs-{os.getpid()}", HOME=str(folder / "home"),
        TMPDIR=str(folder),
        PATH=f"{folder}/bin:{build}/bin:{environment['PATH']}",
        **elsewhere.SETTINGS)
    ours, theirs = os.openpty()
    process = subprocess.Popen(
        ["bash", "-c", script], cwd=folder, env=environment,
        stdin=theirs if at_terminal else subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        start_new_session=True)
    os.close(theirs)
    try:
        printed, _ = process.communicate(timeout=DEADLINE)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, 9)
        sys.exit(f"not done in {DEADLINE} s:\n{process.communicate()[0]}")
    finally:
        os.close(ours)
    print(printed)
    return process.returncode, printed


def check_self():
    page = "```console\n$ a \\\n  b  # x\nout 12\n...\n$ c\n```\n"
    if list(blocks_of(page)) != [[("a b", ["out 12", "..."]), ("c", [])]]:
        sys.exit(f"blocks are read wrongly: {list(blocks_of(page))}")
    if missing_lines(["one 1", "...", "two 0x1f"], "x\none 23\ntwo 0x2\n"):
        sys.exit("lines with other numbers are missed")
    if missing_lines(["two", "one"], "one\ntwo\n") != ["one"]:
        sys.exit("lines in the wrong order are not missed")


def try_block(page, text, root, build, commands, at_terminal):
    """What is wrong with it."""
    ports = {}
    script, expected = script_of(commands, ports, tests_of(build))
    with tempfile.TemporaryDirectory() as folder:
        make_folder(pathlib.Path(folder), text, root, build)
        status, printed = run_block(script, pathlib.Path(folder), build,
                                    at_terminal)
    if status != 0:
        yield f"a block of {page} ends with {status}: {commands[0][0]}"
    for line in missing_lines(expected, printed):
        yield f"{page} has a line that was not printed: {line}"


@functools.cache
def tests_of(build):
    listed = subprocess.run(["ctest", "--test-dir", build, "-N"], text=True,
                            stdout=subprocess.PIPE, check=True).stdout
    return set(re.findall(r"Test +#\d+: (.*?)(?:  # .*)?$", listed, re.M))


def main(page, root, build):
    check_self()
    wrong = []
    text = (root / page).read_text(encoding="utf-8")
    check_marks(page, text)
    for commands in blocks_of(text):
        wrong += try_block(page, text, root, build, commands, True)
        if any("ucx_perftest" in command for command, _ in commands) and \
                takes_itself_for_a_rank():
            if "`-P 0`" not in text:
                wrong.append(f"{page} does not tell of -P 0")
            wrong += try_block(page, text, root, build,
                               as_from_a_script(commands), False)
    sys.exit("\n".join(wrong) or 0)


if __name__ == "__main__":
    main(sys.argv[1], pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3]))
