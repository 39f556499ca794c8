#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Fails when scripts/fetch-ucx-source changes anything outside its cache, or does
not name the cache when that cannot be written.

usage: check_fetching.py ROOT

It runs as root, with a root folder of its own that shows the system's folders,
and stand-ins for apt that have a source of UCX 1.18.9. Skipped where the system
refuses namespaces.
"""

import os
import re
import sys
import tempfile

from common import report, run

SKIPPED = 77  # as CMakeLists.txt has it

ENTER = r"""
shopt -s extglob
mount -t tmpfs root "$0"
for entry in /!(programs|tree|download|room|full|read-only|file); do
    if [ -L "$entry" ]; then
        cp -P "$entry" "$0"
    elif [ -d "$entry" ]; then
        mkdir "$0$entry"
        mount --rbind "$entry" "$0$entry"
    fi
done
exec chroot "$0" "$@"
"""
FETCH = r"""
mkdir /programs /tree /download /room /full /read-only
touch /file /tree/kept /download/kept
mount -t tmpfs -o size=200m room /room
mount -t tmpfs -o size=4m full /full
mount -t tmpfs -o ro read-only /read-only
cat >/programs/apt-get <<'END'
#!/bin/sh
case " $* " in
*" indextargets "*) echo "mirror stable main" ;;
*" source "*) head -c 8M /dev/zero >ucx.tar && echo >ucx.dsc ;;
esac
END
cat >/programs/apt-cache <<'END'
#!/bin/sh
echo "Version: 1.18.9-1"
END
cat >/programs/dpkg-source <<'END'
#!/bin/sh
for tree; do :; done
mkdir -p "$tree/src/uct/base" && echo >"$tree/src/uct/base/uct_md.h" &&
    printf 'define([ucx_ver_%s], %s)\n' major 1 minor 18 patch 9 \
        >"$tree/configure.ac"
END
chmod +x /programs/*
PATH=/programs:$PATH
list() { ls -A / /tree /download; }
before=$(list)
status=0
(cd /room && exec "$0" --cache "$1" 1.18.9) || status=$?
after=$(list)
echo "status $status"
[ "$before" = "$after" ] || diff <(echo "$before") <(echo "$after")
ls -A /room/*
"""

REFUSAL = r"cannot be put into {}.*set XDG_CACHE_HOME to another folder"
CACHES = {
    "/room/cache": (0, r"UCX 1\.18\.9: /room/cache/ucx-1\.18\.9\b"),
    "relative": (0, r"UCX 1\.18\.9: /room/relative/ucx-1\.18\.9\b"),
    "/full/cache": (1, REFUSAL.format("/full/cache")),
    "/read-only/cache": (1, REFUSAL.format("/read-only/cache")),
    "/file/below": (1, REFUSAL.format("/file/below")),
}


def check(sandbox, script):
    for cache, (status, words) in CACHES.items():
        said = run([*sandbox, "bash", "-euc", FETCH, script, cache]).stdout
        if (f"\nstatus {status}\n" not in said or
                not re.search(words, said) or "apt has no source" in said):
            yield f"--cache {cache}: not status {status} and '{words}':\n{said}"
        if re.search(r"^[<>]", said, re.M):
            yield f"--cache {cache} changes the root folder:\n{said}"
        if ".fetch" in said.rpartition("\nstatus ")[2]:
            yield f"--cache {cache} leaves its folder:\n{said}"


def main(root):
    namespaces = ["unshare", "--mount", "--propagation", "private",
                  *([] if os.geteuid() == 0 else ["--map-root-user"])]
    tried = run([*namespaces, "true"])
    if tried.returncode != 0:
        print("The system refuses this:", tried.stdout.strip())
        sys.exit(SKIPPED)
    with tempfile.TemporaryDirectory() as place:
        sandbox = [*namespaces, "bash", "-euc", ENTER, place]
        report([*check(sandbox, f"{root}/scripts/fetch-ucx-source")],
               "sources are put into the cache, and nowhere else")


if __name__ == "__main__":
    main(os.path.abspath(sys.argv[1]))
