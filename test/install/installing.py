# SPDX-License-Identifier: BSD-3-Clause
"""What the tests of installations share."""

import contextlib
import os
import pathlib
import subprocess
import sys
import tempfile

DEADLINE = 240

# With what has a meaning to a shell or in a pattern; without what pkg-config and
# lists such as LD_PRELOAD cannot have.
ODD_NAME = "an-ödd+name's[1]"


def clean_environment(variables):
    foreign = ("UCX_", "HLTHUNK_", "LD_", "PKG_CONFIG", "OMPI_", "DESTDIR",
               "PYTHON")
    clean = {name: value for name, value in os.environ.items()
             if not name.startswith(foreign)}
    clean["HLTHUNK_EMU_NODE"] = f"install-{os.getpid()}"
    return {**clean, **variables}


def attempt(*command, folder=None, **variables):
    """The exit code of a command, and what it prints."""
    result = subprocess.run(
        [str(word) for word in command], cwd=folder,
        env=clean_environment(variables), stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        errors="surrogateescape", timeout=DEADLINE, check=False)
    return result.returncode, result.stdout


def run(*command, folder=None, **variables):
    """What a command prints; its failure ends the test."""
    code, text = attempt(*command, folder=folder, **variables)
    if code != 0:
        sys.exit(f"{[str(word) for word in command]} failed:\n{text}")
    return text


def expect(holds, what):
    if not holds:
        sys.exit(what)


def refused(words, *command, **variables):
    """A command fails, and says so in these words."""
    code, text = attempt(*command, **variables)
    expect(code != 0 and words in text,
           f"{[str(word) for word in command]} should fail with '{words}', "
           f"but ends with {code}:\n{text}")


def find_one(folder, pattern):
    found = list(folder.rglob(pattern))
    expect(len(found) == 1, f"{pattern} is installed as {found}")
    return found[0]


def tree(folder):
    """Every path below a folder, and what links and files have."""
    def content(path):
        if path.is_symlink():
            return os.readlink(path)
        return path.read_bytes() if path.is_file() else None
    return {str(path.relative_to(folder)): content(path)
            for path in folder.rglob("*")}


def check_listing(prefix, *options):
    """The installed ucx_info finds the transports of an installation."""
    listed = run(prefix / "bin/ucx-gaudi", "run", "--emulate=2", *options,
                 "ucx_info", "-d")
    for line in ("Transport: gaudi_cpy", "Transport: gaudi_ipc",
                 "Device: gaudi0"):
        expect(line in listed, f"{prefix}: '{line}' is not in what ucx_info "
                               f"prints with {options}:\n{listed}")


def import_package(prefix):
    """Python fills device memory with what was installed, and writes bytecode
    beside it."""
    packages = prefix / "lib/python3/dist-packages"
    said = run("/usr/bin/python3", "-c", "import ucx_gaudi\n"
               "print(ucx_gaudi.Buffer(8).fill(b'ok').tobytes())",
               PYTHONPATH=str(packages), UCX_GAUDI_DRIVER="emulator")
    expect(said == "b'okokokok'\n", f"Python says: {said}")
    expect(list(packages.rglob("__pycache__/*.pyc")),
           "Python has written no bytecode")


@contextlib.contextmanager
def scratch():
    with tempfile.TemporaryDirectory() as place:
        yield pathlib.Path(place).resolve()
