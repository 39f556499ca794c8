#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Looks at packages of the build: those for Debian are installed to a temporary
folder, RPMs have the same files, and the archive runs where it is unpacked.

usage: check_packages.py make|use BUILD_DIRECTORY PACKAGES

make puts packages for Debian into the folder PACKAGES; use takes them from there.
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
        "/bash-completion/completions/ucx-gaudi", "/docs/install.md"),
    "ucx-gaudi-transports-dev": (
        "/include/ucx_gaudi.h", "/libuct_hlthunk.so",
        "/pkgconfig/ucx-gaudi-transports.pc",
        "/examples/Makefile", "/examples/dmabuf.c"),
    "hl-thunk-emulator": ("/hlthunk-emu/libhl-thunk.so",),
    "python3-ucx-gaudi": (
        "/usr/lib/python3/dist-packages/ucx_gaudi/__init__.py",),
}
IN_EACH = ("/copyright", "/changelog.gz", "/changelog.Debian.gz")

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "scripts/package"

# How well they are compressed is of no interest.
QUICK = {"DPKG_DEB_COMPRESSOR_LEVEL": "0", "XZ_DEFAULTS": "-0"}

# What dpkg keeps for itself.
OF_DPKG = ("var/lib/dpkg", "var/log")


def package(kind, build, folder):
    run(SCRIPT, kind, "--from", build, folder, folder=folder,
        TMPDIR=str(folder), **QUICK)


def by_name(folder):
    """The packages for Debian that are there."""
    made = {}
    for path in folder.glob("*.deb"):
        name = run("dpkg-deb", "--field", path, "Package").strip()
        if not name.endswith("-dbgsym"):
            made[name] = path
    expect(set(made) == set(PACKAGES), f"the packages are {sorted(made)}")
    return made


def plain(listed):
    """Files by what they are called everywhere."""
    names = {re.sub(r"\.gz$|/(dist|site)-packages/.*", "",
                    name.lstrip("./")) for name in listed}
    return {name for name in names if not name.endswith("/") and
            "/doc/" not in name and "/lintian/" not in name}


def check_rpms(made, build, folder):
    package("rpm", build, folder)
    of_rpms, of_debs = set(), set()
    for path in folder.glob("*.rpm"):
        of_rpms |= plain(run("rpm", "-qpl", path).splitlines())
        needed = run("rpm", "-qp", "--requires", path)
        expect("libuc" not in needed and "stdc++" not in needed,
               f"{path.name} needs {needed}")
    for path in made.values():
        of_debs |= plain(re.findall(r" \./(\S+[^/\s])(?: -> .*)?$",
                                    run("dpkg-deb", "--contents", path), re.M))
    expect(of_rpms == of_debs and len(of_debs) > 15,
           f"in one kind of packages only: {of_rpms ^ of_debs}")


def check_archive(build, folder):
    package("tar", build, folder)
    (archive,) = folder.glob("ucx-gaudi-*-linux-*.tar.xz")
    run("tar", "-xf", archive, folder=folder)
    prefix = folder / archive.name.removesuffix(".tar.xz")
    check_listing(prefix.rename(folder / "moved"))
    prefix = folder / "moved"
    for name in ("bin/ucx-gaudi", "lib/hlthunk-emu/libhl-thunk.so"):
        for line in run("ldd", prefix / name).splitlines():
            expect(not re.search("libcjson|libnuma", line) or
                   f"{prefix}/lib/ucx-gaudi/bundled/" in
                   line.replace("/bin/../", "/").replace(
                       "/lib/hlthunk-emu/../", "/lib/"),
                   f"{name} takes {line}")


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


def field(made, package_name, name):
    return run("dpkg-deb", "--field", made[package_name], name).strip()


def check_dependencies(made):
    needed = {name: field(made, name, "Depends") for name in made}
    for name in ("libc6", "libcjson1", "libnuma1"):
        expect(re.search(rf"\b{name}\b", needed["ucx-gaudi-transports"]),
               f"{name} is not in {needed}")
    for name, packages in needed.items():
        expect("libstdc++" not in packages and
               (name.endswith("-dev") or "libucx" not in packages),
               f"{name} needs {packages}")
    told = field(made, "ucx-gaudi-transports", "Recommends")
    for name in ("libucx0", "ucx", "ucx-utils"):
        expect(re.search(rf"\b{name}\b", told), f"recommended are {told}")
    version = field(made, "ucx-gaudi-transports", "Version")
    expect(f"ucx-gaudi-transports (= {version})" in
           needed["ucx-gaudi-transports-dev"], f"{needed}")
    # The software Gaudi comes with those who have a use for it.
    for name in ("ucx-gaudi-transports", "ucx-gaudi-transports-dev"):
        told = field(made, name, "Suggests")
        expect("hl-thunk-emulator" in told, f"{name} suggests {told}")


def check_lintian(folder):
    if shutil.which("lintian") is None:
        sys.exit("lintian is missing (scripts/install-packages test)")
    # That of a build tree, whose libraries go to lib, as packages' do not.
    run("lintian", "--allow-root", "--fail-on", "error,warning",
        "--suppress-tags", "pkg-config-unavailable-for-cross-compilation",
        *folder.glob("*.deb"))


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
    # Its script compiles below / alone.
    python = made.pop("python3-ucx-gaudi")
    run("dpkg-deb", "--extract", python, root.parent / "python")
    shutil.copytree(root.parent / "python/usr", prefix, dirs_exist_ok=True)
    import_package(prefix)
    shutil.rmtree(prefix / "lib/python3")
    shutil.rmtree(prefix / "share/doc/python3-ucx-gaudi")
    installed = of_system(root)
    dpkg(root, "--install", *made.values())
    expect(of_system(root) == installed, "once more is not the same")
    dpkg(root, "--remove", "ucx-gaudi-transports-dev", "ucx-gaudi-transports")
    dpkg(root, "--purge", *made)
    left = set(of_system(root)) - set(before)
    expect(not left, f"left behind: {sorted(left)}")


def make(build, packages):
    shutil.rmtree(packages, ignore_errors=True)
    packages.mkdir()
    package("deb", build, packages)
    by_name(packages)


def use(build, packages):
    with scratch() as place:
        for name in ("rpm", "tar", "root"):
            (place / name).mkdir()
        made = by_name(packages)
        check_contents(made)
        check_dependencies(made)
        check_lintian(packages)
        check_rpms(made, build, place / "rpm")
        check_archive(build, place / "tar")
        check_use(made, place / "root")
    print("the packages can be installed, used and removed")


if __name__ == "__main__":
    {"make": make, "use": use}[sys.argv[1]](sys.argv[2],
                                            pathlib.Path(sys.argv[3]))
