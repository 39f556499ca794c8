#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Makes Debian packages of the build, and installs them to a temporary folder.

usage: check_packages.py BUILD_DIRECTORY

Nothing is installed on this system: what dpkg does goes to the folder, and its
programs are run from there.
"""

import os
import pathlib
import re
import shutil
import sys

from installing import (check_listing, expect, import_package, refused, run,
                        scratch, tree)

PACKAGES = {
    "ucx-gaudi-transports": (
        "/bin/ucx-gaudi", "/libuct_hlthunk.so.0", "/libucx_gaudi_preload.so",
        "/ucx-gaudi/slot/libucs.so.0", "/ucx-gaudi/slot/ucx/libuct_rdmacm.so.0",
        "/ucx-gaudi/plugin/libuct_hlthunk.so.0",
        "/ucx-gaudi/openmpi/mca_accelerator_gaudi.so",
        "/ucx-gaudi/openmpi/mca_op_gaudi.so", "/man1/ucx-gaudi.1.gz",
        "/bash-completion/completions/ucx-gaudi", "/docs/install.md",
        "/lintian/overrides/ucx-gaudi-transports"),
    "ucx-gaudi-transports-dev": (
        "/include/ucx_gaudi.h", "/libuct_hlthunk.so",
        "/pkgconfig/ucx-gaudi-transports.pc", "/man3/ucx_gaudi.3.gz",
        "/examples/Makefile", "/examples/dmabuf.c"),
    "hl-thunk-emulator": ("/hlthunk-emu/libhl-thunk.so",),
    "python3-ucx-gaudi": (
        "/usr/lib/python3/dist-packages/ucx_gaudi/__init__.py",),
}
IN_EACH = ("/copyright", "/changelog.gz", "/changelog.Debian.gz")

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "scripts/package"

# What dpkg keeps for itself.
OF_DPKG = ("var/lib/dpkg", "var/log")


def make(build, folder):
    """The packages of the build, by name."""
    said = run(SCRIPT, "--from", build, folder, folder=folder,
               TMPDIR=str(folder))
    expect("issing" not in said and "generated." in said,
           f"of packages is said:\n{said}")
    made = {}
    for path in folder.glob("*.deb"):
        made[run("dpkg-deb", "--field", path, "Package").strip()] = path
    expect(set(made) == set(PACKAGES), f"cpack makes {sorted(made)}")
    return made


def check_contents(made):
    for name, wanted in PACKAGES.items():
        listed = run("dpkg-deb", "--contents", made[name])
        for end in wanted + IN_EACH:
            expect(re.search(re.escape(end) + "( -> .*)?$", listed, re.M),
                   f"{name} has no {end}:\n{listed}")
        for line in listed.splitlines():
            mode, owner = line.split()[:2]
            expect(owner == "root/root", f"{name}: {line}")
            expect(mode[0] == "l" or mode[5] == mode[8] == "-",
                   f"{name}: others may write: {line}")
        expect(".debug" not in listed, f"{name} has symbols:\n{listed}")
    # Its name is the vendor's: never where libraries are looked for.
    listed = run("dpkg-deb", "--contents", made["hl-thunk-emulator"])
    found = re.findall(r"/([^/\n]+)/libhl-thunk\.so", listed)
    expect(found == ["hlthunk-emu"], f"libhl-thunk.so is in {found}")


def check_dependencies(made):
    needed = {name: run("dpkg-deb", "--field", path, "Depends")
              for name, path in made.items()}
    for name in ("libc6", "libcjson1", "libucx0"):
        expect(re.search(rf"\b{name}\b", needed["ucx-gaudi-transports"]),
               f"{name} is not in {needed}")
    for name, packages in needed.items():
        expect("libstdc++" not in packages, f"{name} needs {packages}")
    # One package serves several releases of UCX.
    expect(not re.search(r"libucx0 \((=|<)", needed["ucx-gaudi-transports"]),
           f"one version of UCX is asked for: {needed}")
    expect("ucx" not in needed["hl-thunk-emulator"], f"{needed}")
    version = run("dpkg-deb", "--field", made["ucx-gaudi-transports"],
                  "Version").strip()
    for name in ("ucx-gaudi-transports-dev", "python3-ucx-gaudi"):
        expect(f"ucx-gaudi-transports (= {version})" in needed[name],
               f"{needed}")


def check_suggestions(made):
    """The software Gaudi comes with those who have a use for it."""
    for name in ("ucx-gaudi-transports", "ucx-gaudi-transports-dev"):
        told = run("dpkg-deb", "--field", made[name], "Suggests")
        expect("hl-thunk-emulator" in told, f"{name} suggests {told}")


def check_releases(made):
    """Who looks at the package sees for which UCX it is."""
    package = made["ucx-gaudi-transports"]
    releases = re.findall(r"/ucx-gaudi/(\d+\.\d+)/libuct_hlthunk\.so\.0$",
                          run("dpkg-deb", "--contents", package), re.M)
    releases.sort(key=lambda release: [int(part) for part in
                                       release.split(".")])
    told = run("dpkg-deb", "--field", package, "Description")
    expect(releases and told.endswith(f"For UCX {', '.join(releases)}.\n"),
           f"modules for {releases} are told as {told}")


def check_lintian(folder):
    if shutil.which("lintian") is None:
        sys.exit("lintian is missing (scripts/install-packages test)")
    # That of a build tree, whose libraries go to lib, as packages' do not.
    run("lintian", "--allow-root", "--fail-on", "error,warning",
        "--suppress-tags", "pkg-config-unavailable-for-cross-compilation",
        *folder.glob("*deb"))


def dpkg(root, *words):
    """dpkg, with a folder for the system's root, and nobody's rights."""
    as_root = [] if os.geteuid() == 0 else ["unshare", "--map-root-user"]
    return run(*as_root, "dpkg", f"--root={root}", "--force-depends",
               "--force-script-chrootless", *words)


def check_flags(prefix):
    """The compiler and the linker look there by themselves."""
    (file,) = prefix.glob("lib/**/ucx-gaudi-transports.pc")
    told = run("pkg-config", "--cflags", "--libs", "ucx-gaudi-transports",
               PKG_CONFIG_PATH=str(file.parent))
    expect("-luct_hlthunk" in told and "/usr/lib" not in told and
           "/usr/include" not in told, f"pkg-config says {told}")


def of_system(root):
    return {path: content for path, content in tree(root).items()
            if not path.startswith(OF_DPKG)}


def check_use(made, root):
    for folder in ("updates", "info"):
        (root / "var/lib/dpkg" / folder).mkdir(parents=True)
    (root / "var/lib/dpkg/status").touch()
    before = of_system(root)
    prefix = root / "usr"

    dpkg(root, "--install", made["ucx-gaudi-transports"])
    refused("install the package hl-thunk-emulator", prefix / "bin/ucx-gaudi",
            "run", "--emulate", "ucx_info", "-d")
    dpkg(root, "--install", made["hl-thunk-emulator"],
         made["ucx-gaudi-transports-dev"])
    check_listing(prefix)
    check_flags(prefix)
    dpkg(root, "--install", made["python3-ucx-gaudi"])
    installed = of_system(root)
    dpkg(root, "--install", *made.values())
    expect(of_system(root) == installed, "once more is not the same")
    import_package(prefix)
    dpkg(root, "--remove", "python3-ucx-gaudi", "ucx-gaudi-transports-dev",
         "ucx-gaudi-transports")
    dpkg(root, "--purge", *made)
    left = set(of_system(root)) - set(before)
    expect(not left, f"left behind: {sorted(left)}")


def main(build):
    with scratch() as place:
        for name in ("packages", "root"):
            (place / name).mkdir()
        made = make(pathlib.Path(build), place / "packages")
        check_contents(made)
        check_dependencies(made)
        check_suggestions(made)
        check_releases(made)
        check_lintian(place / "packages")
        check_use(made, place / "root")
    print("the packages can be installed, used and removed")


if __name__ == "__main__":
    main(*sys.argv[1:])
