#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Checks that docs/troubleshooting.md has every message that is printed.

usage: check_messages.py SOURCE_FOLDER [--list]

A message is what the log functions below are given at a level that users see
without asking: warnings, errors, and what goes to stderr. On the page each
begins an item, in backticks, with "..." for what differs from time to time,
and its remedy follows. Entries that no source has are found, too. --list
prints the messages of the sources.
"""

import os
import re
import sys

from common import is_source, read, report, tree_files

PAGE = "docs/troubleshooting.md"

# Function: which of its arguments is the format, and what it prints before it.
FUNCTIONS = {"ucs_warn": (0, ""), "ucs_error": (0, ""), "ucs_fatal": (0, ""),
             "ucs_log": (1, ""), "warn": (0, ""),
             "gaudi_complain": (0, "ucx-gaudi: "),
             "gaudi_say": (0, "ucx-gaudi: "), "fprintf": (1, "")}
CALL = re.compile(r"(?<![\w>.])(?:std::|util::)?(" + "|".join(FUNCTIONS) +
                  r")\(")
QUIET = re.compile(r"UCS_LOG_LEVEL_(DIAG|INFO|DEBUG|TRACE\w*)$")
CONVERSION = re.compile(r"%[-+ #0]*[\d*]*(?:\.[\d*]+)?(?:hh|h|ll|l|z|j)?"
                        r"[diouxXeEfgGscpm]")
LITERAL = re.compile(r'"((?:[^"\\]|\\.)*)"')

# Files that are a log function, print for a program of the launcher's own, or
# print where UCX_LOG_LEVEL asks for it.
NO_MESSAGES = ("src/util/warning.", "src/loader/messages.c", "src/loader/loader.h",
               "src/launcher/trial.cc", "src/loader/slot.c")

# Calls that print a text which was made before, by file: the texts.
MADE_BEFORE = {
    "src/uct/gaudi/base/ucx/status.cc": [],
    "src/uct/gaudi/base/cards/card_opening.cc": [
        "... cannot be opened: ...", "...: ... of ... cards are free..."],
    "src/launcher/main.cc": [
        "ucx-gaudi: unexpected argument: ...",
        "ucx-gaudi: an argument is empty",
        "ucx-gaudi: --emulate takes 1 to 64 cards, not '...'",
        "ucx-gaudi: --emulate is given twice",
        "ucx-gaudi: --slot excludes --plugin",
        "ucx-gaudi: a subcommand is required: run, env, info or check",
        "ucx-gaudi: ... takes ... to ..., not '...'",
        "ucx-gaudi: no command is given",
        "ucx-gaudi: only run takes a command"],
}


def arguments_at(text, place):
    """The arguments of a call whose parenthesis is before the place."""
    arguments = [""]
    depth = 1
    while depth > 0:
        literal = LITERAL.match(text, place)
        piece = literal.group() if literal else text[place]
        place += len(piece)
        depth += (piece in ("(", "[", "{")) - (piece in (")", "]", "}"))
        if piece == "," and depth == 1:
            arguments.append("")
        elif depth > 0:
            arguments[-1] += piece
    return [argument.strip() for argument in arguments]


def format_of(argument):
    """The string of literals and macros, of which some are a conversion."""
    parts = re.findall(LITERAL.pattern + r"|(\w+)", argument)
    return "".join(literal if not macro else
                   "x" if macro.startswith("PRI") else "..."
                   for literal, macro in parts)


def plain(text):
    return re.sub(r"\.\.\.(\.\.\.|\.)*", "...", " ".join(text.split()))


def messages_of(name, text):
    for call in CALL.finditer(text):
        function = call.group(1)
        arguments = arguments_at(text, call.end())
        place, prefix = FUNCTIONS[function]
        if (len(arguments) <= place or
                (function == "fprintf" and arguments[0] != "stderr") or
                (function == "ucs_log" and QUIET.match(arguments[0]))):
            continue
        message = plain(CONVERSION.sub("...", prefix + format_of(
            arguments[place])).replace("\\n", "").replace("%%", "%"))
        if re.fullmatch(r"(ucx-gaudi: )?[. ]*", message):
            if name in MADE_BEFORE:
                continue
            message = f"{function} in {name} prints a text that was made before"
        yield message
    yield from MADE_BEFORE.get(name, [])


def messages_of_tree(root):
    found = set()
    for name in tree_files(root):
        if (name.startswith("src/") and is_source(name) and
                not name.startswith(NO_MESSAGES)):
            found.update(messages_of(name, read(root, name)))
    return found


def entries_of(page):
    """(message, remedy) of each item that begins with messages."""
    for item in re.split(r"^- ", page, flags=re.M)[1:]:
        item = " ".join(re.split(r"\n(?! )", item)[0].split())
        spans = re.match(r"((?:`[^`]+`(?:, )?)+)(.*)", item)
        if spans is not None:
            for message in re.findall(r"`([^`]+)`", spans.group(1)):
                yield plain(message), spans.group(2).strip()


def check(sources, page):
    entries = list(entries_of(page))
    listed = {message for message, _ in entries}
    for message in sorted(sources - listed):
        yield f"{PAGE} lacks: {message}"
    for message in sorted(listed - sources):
        yield f"{PAGE} has what is never printed: {message}"
    for message, remedy in entries:
        if len(remedy) < 15:
            yield f"{PAGE} has no remedy for: {message}"


def check_self():
    """What must be found, in texts made for it."""
    source = ('ucs_warn("one %s (%zu)"\n " more %#" PRIx64, a(b, c), d);'
              'ucs_log(UCS_LOG_LEVEL_DEBUG, "quiet");'
              'ucs_log(level, "loud %d%%", 1);')
    found = set(messages_of("x.cc", source))
    if found != {"one ... (...) more ...", "loud ...%"}:
        yield f"messages were read as {found}"
    page = "- `one ... (...)\n  more ...`\n  Do what helps here.\n- `stale`\n  x\n"
    if len(list(check(found, page))) != 3:
        yield "a missing, a stale and a bare entry were not found"


def main(root):
    sources = messages_of_tree(root)
    if "--list" in sys.argv:
        print("\n".join(sorted(sources)))
        return
    report([*check_self(), *check(sources, read(root, PAGE))],
           f"{len(sources)} messages have a remedy")


if __name__ == "__main__":
    main(os.path.abspath(sys.argv[1]))
