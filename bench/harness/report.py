# SPDX-License-Identifier: BSD-3-Clause
"""The page that shows the results: report.html, beside pictures and table."""

import html
import json
import pathlib

from . import figures
from .result import BenchError, read_table, size_text
from .sets import SETS

TABLE, FACTS, PAGE = "results.csv", "facts.json", "report.html"

STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; color: #222; background: #fff;
       max-width: 1280px; margin: 2em auto; padding: 0 1em; }
h1 { font-size: 1.6em; } h2 { font-size: 1.25em; margin-top: 2em; }
table { border-collapse: collapse; font-size: 13px; }
td, th { padding: 2px 10px; text-align: left; border-bottom: 1px solid #ddd;
         vertical-align: top; }
td.number { text-align: right; font-variant-numeric: tabular-nums; }
.missed { background: #fbe3d6; font-weight: bold; }
.pictures { display: flex; flex-wrap: wrap; gap: 1em; }
.pictures a { flex: 1 1 480px; } .pictures img { width: 100%; }
.note { color: #555; margin-top: 0; }
summary { cursor: pointer; }
"""

HEADINGS = ("series", "measure", "direction", "size", "latency (µs)",
            "bandwidth (GB/s)", "reference", "ratio", "bar", "")


def cell(text, is_number=False):
    opening = '<td class="number">' if is_number else "<td>"
    return f"{opening}{html.escape(text)}</td>"


def result_row(row):
    size = size_text(int(row["size_bytes"])) if row["size_bytes"] else ""
    missed = ' class="missed"' if row["verdict"] == "MISSED" else ""
    return (f"<tr{missed}>" + cell(row["series"]) + cell(row["measure"]) +
            cell(row["direction"].replace("-", "→")) + cell(size, True) +
            cell(row["latency_us"], True) + cell(row["bandwidth_gbs"], True) +
            cell(row["reference"]) + cell(row["ratio"], True) +
            cell(row["bar"], True) + cell(row["verdict"]) + "</tr>")


def result_table(rows):
    head = "".join(f"<th>{html.escape(text)}</th>" for text in HEADINGS)
    return (f"<table><thead><tr>{head}</tr></thead><tbody>" +
            "\n".join(result_row(row) for row in rows) + "</tbody></table>")


def pictures(drawn):
    for figure, names in drawn:
        yield f"<h2>{html.escape(figure.title)}</h2>"
        yield (f'<p class="note">{html.escape(figure.note)} D is device memory, '
               "H host memory. Dashed: references.</p>")
        yield '<div class="pictures">'
        for name in names:
            text = html.escape(f"{figure.title}: {name.rsplit('-', 1)[1]} "
                               "against size")
            yield (f'<a href="{name}.png"><img src="{name}.svg" '
                   f'alt="{text}"></a>')
        yield "</div>"


def summary(rows):
    judged = [row for row in rows if row["verdict"]]
    missed = [row for row in judged if row["verdict"] == "MISSED"]
    text = (f"{len(rows)} results, of which {len(judged)} have a bar: "
            f"{len(judged) - len(missed)} meet it, {len(missed)} miss it.")
    yield f"<p>{text}</p>"
    if missed:
        yield result_table(missed)


def tables(rows):
    yield "<h2>All results</h2>"
    yield ('<p class="note">The ratio is the time as a multiple of that of the '
           "reference, which was measured in the same run: less is better. "
           f'The same as a table: <a href="{TABLE}">{TABLE}</a>.</p>')
    for name in dict.fromkeys(row["set"] for row in rows):
        of_set = [row for row in rows if row["set"] == name]
        what = SETS[name].what if name in SETS else ""
        yield (f"<details open><summary><b>{html.escape(name)}</b>: "
               f"{html.escape(what)}</summary>")
        yield result_table(of_set) + "</details>"


def read_facts(folder):
    path = folder / FACTS
    try:
        facts = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise BenchError(f"{path}: {error}") from error
    if not isinstance(facts, dict):
        raise BenchError(f"{path} has no names and values")
    return {str(name): str(value) for name, value in facts.items()}


def write(folder):
    """The page and its pictures, of the table and the facts in a folder. Gives
    the path of the page."""
    folder = pathlib.Path(folder)
    rows = read_table(folder / TABLE)
    facts = read_facts(folder)
    drawn = figures.draw(folder, rows)
    lines = [
        '<!DOCTYPE html><html lang="en"><head><meta charset="utf-8">',
        "<title>Benchmarks of the Gaudi transports</title>",
        f"<style>{STYLE}</style></head><body>",
        "<h1>Benchmarks of the Gaudi transports</h1>",
        "<table>",
        *(f"<tr><th>{html.escape(name)}</th>{cell(value)}</tr>"
          for name, value in facts.items()),
        "</table>",
        *summary(rows),
        *pictures(drawn),
        *tables(rows),
        "</body></html>",
    ]
    page = folder / PAGE
    page.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return page
