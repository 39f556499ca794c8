#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Compares box_maps.h with the tables of a copy of HabanaAI/HCL.

usage: check_box_maps.py ROOT HCL
"""

import os
import re
import sys

from common import read, report

MAPS = "src/hlthunk_shim/ports/box_maps.h"


def rows_of_hcl(text):
    """HCL's cards in order, each with (card, port) or a name for its ports."""
    tables = re.findall(r"location_(\d+)_mapping = \{(.*?)\};", text, re.S)
    return [[(int(card), int(port)) if card.isdigit() else card
             for card, port in re.findall(r"make_tuple\((\w+), *(\d+),", body)]
            for _, body in sorted(tables, key=lambda table: int(table[0]))]


def rows_of_map(rows, cards):
    """The same from the rows of a map."""
    out = {"-": "SCALEOUT_DEVICE_ID", ".": "NOT_CONNECTED_DEVICE_ID"}
    return [[out.get(row[at]) or (card // len(rows) * len(rows) + int(row[at]),
                                  ord(row[at + 1]) - ord("a"))
             for at in range(0, len(row), 2)]
            for card, row in enumerate(rows * (cards // len(rows)))]


def main(root, hcl):
    ours = read(root, MAPS)
    tables = {name: re.findall(r'"(.*?)"', body) for name, body in
              re.findall(r"\*(\w+)\[\] = \{(.*?)\};", ours, re.S)}
    maps = re.findall(r'\{"([^"]+)", \{[\d, ]+\}, "([^"]+)",\s*'
                      r"detail::(\w+),\s*(\d+)\}", ours)
    problems = [] if maps else [f"{MAPS}: no map was found"]
    for name, source, table, cards in maps:
        theirs = rows_of_hcl(read(hcl, os.path.join("hcl/src/platform", source)))
        if rows_of_map(tables[table], int(cards)) != theirs:
            problems.append(f"{MAPS}: {name} is not as {source} has it")
    report(problems, f"{len(maps)} maps are HCL's")


if __name__ == "__main__":
    main(*sys.argv[1:])
