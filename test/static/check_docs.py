#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Checks the pages: their links lead somewhere, and the files that they name are
there.

usage: check_docs.py SOURCE_FOLDER
"""

import glob
import os
import re
import sys

from common import read, report, tree_files

LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")

FILE = re.compile(r"`((?:src|test|bench|cmake|scripts|docs)/[\w./-]+)`")
# They tell of trees that were.
OF_THE_PAST = ("CHANGELOG.md", "docs/adr/")


def anchors_of(text):
    """Names of a page's headings, as forges make them."""
    text = re.sub(r"^```.*?^```", "", text, flags=re.M | re.S)
    for heading in re.findall(r"^#+ (.*)$", text, flags=re.M):
        heading = re.sub(r"[^\w\- ]", "", heading.strip().lower())
        yield heading.replace(" ", "-")


def check_links(root, page):
    for target in LINK.findall(read(root, page)):
        if re.match(r"\w+:", target):
            continue
        path, _, anchor = target.partition("#")
        path = os.path.normpath(os.path.join(os.path.dirname(page), path)
                                if path else page)
        if not os.path.exists(os.path.join(root, path)):
            yield f"{page}: {target} is not there"
        elif anchor and anchor not in anchors_of(read(root, path)):
            yield f"{page}: {target} names no heading of {path}"


def check_files(root, page):
    """A name may lack its suffix."""
    if page.startswith(OF_THE_PAST):
        return
    for name in FILE.findall(read(root, page)):
        path = os.path.join(root, name)
        if not os.path.exists(path) and not glob.glob(path + ".*"):
            yield f"{page}: {name} is not there"


def check_reachable(root, pages):
    """README.md leads to every page of docs, but for the decisions."""
    linked = {target.partition("#")[0]
              for target in LINK.findall(read(root, "README.md"))}
    for page in pages:
        if os.path.dirname(page) == "docs" and page not in linked:
            yield f"README.md does not lead to {page}"


def main(root):
    pages = [name for name in tree_files(root) if name.endswith(".md")]
    problems = [problem for page in pages
                for check in (check_links, check_files)
                for problem in check(root, page)]
    problems += check_reachable(root, pages)
    report(problems, f"{len(pages)} pages lead where they say")


if __name__ == "__main__":
    main(os.path.abspath(sys.argv[1]))
