#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Fails when installing packages takes away a UCX that somebody else packaged.

usage: check_site_ucx.py SOURCE_DIRECTORY PACKAGES

PACKAGES is a folder with those for Debian. apt and dpkg work on a temporary
folder. It has packages `ucx` as UCX itself and vendors make them, which exclude
the distribution's UCX, and an archive of packages without content that have the
names and relations of Debian's.
"""

import os
import pathlib
import re
import sys

from check_packages import by_name
from installing import attempt, expect, refused, run, scratch

DEBIAN = "1.13.1-1"
OF_DEBIAN = {
    "libucx0": "",
    "libucx-dev": f"Depends: libucx0 (= {DEBIAN})\n",
    "ucx-utils": f"Depends: libucx0 (= {DEBIAN})\n",
    "mpich": "Depends: libucx0 (>= 1.13.1)\n",
    "libmpich-dev": "Depends: libucx0 (>= 1.13.1)\n",
}


def relations(*fields, relation=""):
    return "".join(f"{field}: libucx0{relation}, libucx-dev{relation}, "
                   f"ucx-utils{relation}\n" for field in fields)


# Name: version, and fields as in UCX's debian/control, or where all is provided.
SITES = {
    "upstream": ("1.18.1", relations("Conflicts", "Replaces",
                                     relation=" (<< 1.18.1)")),
    "providing": ("1.18.1", relations("Provides", "Conflicts", "Replaces")),
}
TOO_OLD = ("1.12.0", relations("Conflicts", "Replaces"))

CONFIGURATION = """
Dir "{root}";
Dir::State::status "{root}/var/lib/dpkg/status";
APT::Sandbox::User "";
Acquire::Languages "none";
DPkg::Options {{ "--root={root}"; "--force-script-chrootless"; }};
"""


def make_package(folder, name, version, fields, files=()):
    tree = folder / f"{name}.files"
    for file in (*files, "DEBIAN/control"):
        (tree / file).parent.mkdir(parents=True, exist_ok=True)
        (tree / file).write_text("#!/bin/sh\necho 1.18.1\n")
        (tree / file).chmod(0o755)
    (tree / "DEBIAN/control").write_text(
        f"Package: {name}\nVersion: {version}\nArchitecture: amd64\n"
        f"Maintainer: nobody <nobody@example.org>\n{fields}Description: none\n")
    package = folder / f"{name}_{version}.deb"
    run("dpkg-deb", "--root-owner-group", "--build", tree, package)
    return package


def make_archive(folder, source, made):
    """What scripts/install-packages and the packages need, beside UCX."""
    folder.mkdir()
    script = (source / "scripts/install-packages").read_text()
    names = set(",".join(re.findall(
        r"^[^\s#]+ +([a-z][a-z0-9,.+-]+) +[a-z0-9,.+-]+$", script,
        re.M)).split(","))
    for package in made.values():
        needed = run("dpkg-deb", "--field", package, "Depends")
        names |= set(re.findall(r"(?:^|[,|] )([a-z][a-z0-9.+-]+)", needed))
    for name in names - set(made) - {"ucx"} | set(OF_DEBIAN):
        version = DEBIAN if name in OF_DEBIAN else "99"
        make_package(folder, name, version, OF_DEBIAN.get(name, ""))
    (folder / "Packages").write_text(
        run("dpkg-scanpackages", "--multiversion", ".", "/dev/null",
            folder=folder).partition("dpkg-scanpackages:")[0])


def make_programs(root):
    """A folder with the programs of this system, but for some."""
    folder = root / "programs"
    folder.mkdir()
    for place in ("/usr/sbin", "/usr/bin", "/sbin", "/bin"):
        for program in pathlib.Path(place).iterdir():
            if not (program.name.startswith(("mpi", "ucx_info", "cmake")) or
                    (folder / program.name).exists()):
                (folder / program.name).symlink_to(program)
    return folder


class System:
    """A folder with a dpkg and an apt of its own, and a UCX of the site."""

    def __init__(self, root, archive, site=None):
        for folder in ("var/lib/dpkg/info", "var/lib/dpkg/updates",
                       "var/lib/apt/lists/partial", "var/log/apt",
                       "var/cache/apt/archives/partial", "etc/apt/apt.conf.d",
                       "etc/apt/preferences.d"):
            (root / folder).mkdir(parents=True)
        (root / "var/lib/dpkg/status").touch()
        (root / "etc/apt/sources.list").write_text(
            f"deb [trusted=yes] file:{archive} ./\n")
        (root / "apt.conf").write_text(CONFIGURATION.format(root=root))
        self.root = root
        self.as_root = ([] if os.geteuid() == 0
                        else ["unshare", "--map-root-user"])
        self.variables = {"APT_CONFIG": str(root / "apt.conf"),
                          "DPKG_ADMINDIR": str(root / "var/lib/dpkg"),
                          "PATH": f"{root}/usr/bin:{make_programs(root)}"}
        self.run("apt-get", "update")
        if site:
            self.run("apt-get", "-y", "install", make_package(
                root, "ucx", *site,
                ("usr/bin/ucx_info", "usr/include/ucp/api/ucp.h")))

    def run(self, *command):
        return run(*self.as_root, *command, **self.variables)

    def refused(self, words, *command):
        refused(words, *self.as_root, *command, **self.variables)

    def has(self, name):
        code, said = attempt("dpkg-query", "-W", "-f=${db:Status-Status}", name,
                             **self.variables)
        return code == 0 and said == "installed"


def check_packages(system, made, what):
    system.run("apt-get", "-y", "install", made["ucx-gaudi-transports"],
               made["ucx-gaudi-transports-dev"])
    expect(system.has("ucx-gaudi-transports-dev") and system.has("ucx") and
           not system.has("libucx0"),
           f"the packages take away the UCX that is there: {what}")


def check_script(system, source, what):
    script = source / "scripts/install-packages"
    system.run(script, "build")
    expect(system.has("cmake") and system.has("ucx") and
           not system.has("libucx-dev"),
           f"install-packages takes away the UCX that is there: {what}")
    (system.root / "programs/cmake").symlink_to("/usr/bin/cmake")
    said = system.run(script, "bench")
    expect("left out" in said and "mpicc.mpich" in said,
           f"MPI, which would remove {what}, is missed: {said}")
    expect(system.has("ucx") and not system.has("mpich"),
           f"install-packages takes it away for MPI: {what}")
    # With nobody's rights, and without apt.
    (system.root / "programs/apt-get").unlink()
    run(script, "build", **system.variables)
    (system.root / "programs/cmake").unlink()
    refused("missing: cmake (apt-get install cmake, or dnf install cmake)",
            script, "build", **system.variables)


def main(source, packages):
    with scratch() as place:
        made = by_name(pathlib.Path(packages))
        archive = place / "archive"
        make_archive(archive, pathlib.Path(source), made)
        for name, site in SITES.items():
            check_packages(System(place / f"{name}-1", archive, site), made,
                           name)
            check_script(System(place / f"{name}-2", archive, site),
                         pathlib.Path(source), name)
        system = System(place / "old", archive, TOO_OLD)
        system.refused("remove is disabled", "apt-get", "-y", "--no-remove",
                       "install", made["ucx-gaudi-transports"])
        expect(system.has("ucx"), "an old UCX is taken away")
        system = System(place / "fresh", archive)
        system.run("apt-get", "-y", "install", made["ucx-gaudi-transports"])
        expect(system.has("libucx0") and not system.has("ucx"),
               "without a UCX it is not the distribution's that is installed")
    print("a UCX of the site is kept")


if __name__ == "__main__":
    main(*sys.argv[1:])
