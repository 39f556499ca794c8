#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Tests the table, the pictures and the page that scripts/bench makes.

usage: check_report.py CLASS ROOT BUILD_DIRECTORY
"""

import html.parser
import json
import re
import struct
import sys
import xml.etree.ElementTree

from bench_case import BenchCase, main

STORED = [
    "uct,gaudi_copy/put_zcopy_registered,single,H-D,4096,0.5,8.192,memcpy/whole,"
    "2,,",
    "uct,gaudi_copy/put_zcopy_registered,single,H-D,1048576,100,10.49,"
    "memcpy/whole,1.25,1.11,MISSED",
    "uct,memcpy/whole,single,H-H,4096,0.25,16.38,,,,",
    "uct,memcpy/whole,single,H-H,1048576,80,13.11,,,,",
    "ipc,gaudi_ipc/tag_over_host,latency,D-D,8,1.5,,sm/tag,3,,",
    "ipc,sm/tag,latency,H-H,8,0.5,,,,,",
    "mpi,mpich/sm,bandwidth,H-H,64,,0.5,,,,",
    "md,gaudi_copy/<registration>,time,,,0.1,,ucs/rcache,1.2,1.30,ok",
]


class Page(html.parser.HTMLParser):
    """What a page refers to, its rows, and whether its elements are closed."""

    def __init__(self, text):
        super().__init__()
        self.links, self.rows, self.open = [], [], []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        if tag not in ("img", "meta"):
            self.open.append(tag)
        if tag == "tr":
            self.rows.append("")
        self.links += [value for name, value in attrs if name in ("src", "href")]

    def handle_endtag(self, tag):
        assert self.open and self.open.pop() == tag, tag

    def handle_data(self, data):
        self.text += data
        if "tr" in self.open:
            self.rows[-1] += data + " "


class shows_a_table(BenchCase):
    def setUp(self):
        super().setUp()
        self.write_results(STORED)

    def report(self):
        status, _, err = self.bench("--report-only")
        self.assertEqual(0, status, err)
        return Page((self.results / "report.html").read_text(encoding="utf-8"))

    def test_pictures_are_png_and_svg(self):
        self.report()
        for name in ("uct-bandwidth", "uct-latency", "ipc-latency"):
            png = (self.results / f"{name}.png").read_bytes()
            self.assertEqual(b"\x89PNG\r\n\x1a\n", png[:8], name)
            width, height = struct.unpack(">II", png[16:24])
            self.assertGreaterEqual(min(width, height), 400, name)
            self.assertGreater(len(png), 10000, name)
            svg = self.results / f"{name}.svg"
            self.assertGreater(svg.stat().st_size, 5000, name)
            tree = xml.etree.ElementTree.parse(svg)
            self.assertTrue(tree.getroot().tag.endswith("}svg"), name)

    def test_only_what_was_measured_is_drawn(self):
        (self.results / "mpi-bandwidth.png").write_text("of an older run")
        page = self.report()
        drawn = {path.stem for path in self.results.glob("*.png")}
        self.assertEqual({"uct-bandwidth", "uct-latency", "ipc-latency"}, drawn)
        self.assertNotIn("mpi-bandwidth.svg", page.links)

    def test_page_has_all_rows_and_refers_to_files_beside_it(self):
        page = self.report()
        self.assertEqual([], page.open)
        for link in page.links:
            self.assertTrue((self.results / link).is_file(), link)
            self.assertNotIn("/", link)
        self.assertIn("uct-bandwidth.svg", page.links)
        self.assertIn("results.csv", page.links)
        self.assertIn("8 results, of which 2 have a bar: 1 meet it, 1 miss it",
                      page.text)
        self.assertIn("today & <now>", page.text)
        of_registration = [row for row in page.rows if "<registration>" in row]
        self.assertEqual(1, len(of_registration))
        self.assertIn("1.2", of_registration[0])
        missed = [row for row in page.rows if "MISSED" in row]
        self.assertEqual(2, len(missed))  # among all, and by itself
        self.assertIn("1M", missed[0])


class refuses_bad_tables(BenchCase):
    def expect_told(self, *texts):
        self.expect_refused(self.bench("--report-only"), *texts)
        self.assertFalse((self.results / "report.html").exists())

    def test_that_are_none(self):
        self.expect_told("results.csv", "No such file")
        self.write_results([])
        self.expect_told("results.csv has no results")
        for text in ("", "set,time\nuct,1\n"):
            (self.results / "results.csv").write_text(text)
            self.expect_told("is no table of results")

    def test_with_bad_rows(self):
        for bad, reason in (
                (STORED[0].replace("4096", "big"), "'big' for size_bytes"),
                (STORED[0].replace("0.5", "nan"), "'nan' for latency_us"),
                (STORED[0].replace("single", "double"), "measure 'double'"),
                (STORED[0] + ",more", "another number of columns"),
                ("uct,put", "another number of columns")):
            self.write_results([STORED[1], bad])
            self.expect_told("results.csv: line 3 has", reason)

    def test_without_facts(self):
        self.write_results(STORED, facts="{")
        self.expect_told("facts.json")
        (self.results / "facts.json").unlink()
        self.expect_told("facts.json", "No such file")


def google_rows(**times):
    """As Google Benchmark has them in its JSON."""
    return {"benchmarks": [
        {"name": name, "run_name": name, "run_type": "iteration",
         "real_time": time, "time_unit": "ns"} for name, time in times.items()]}


CASES = ["put_zcopy_registered/4096", "put_zcopy_registered/1048576",
         "reference_memcpy/4096", "reference_memcpy/1048576"]


def answer(*times):
    return google_rows(**dict(zip(CASES, times)))


class measures_what_programs_write(BenchCase):
    def bench_stand_in(self, *answers, repetitions=1, names=tuple(CASES)):
        return self.bench("uct", f"--repetitions={repetitions}",
                          build=self.google_program(names, answers))

    def test_table_has_medians_and_ratios(self):
        status, out, err = self.bench_stand_in(
            answer(400, 262144, 100, 131072), answer(500, 262144, 100, 131072),
            answer(9999, 262144, 100, 131072), repetitions=3)
        self.assertEqual(0, status, err)
        self.assertEqual([
            {"set": "uct", "series": "gaudi_copy/put_zcopy_registered",
             "measure": "single", "direction": "H-D", "size_bytes": "4096",
             "latency_us": "0.5", "bandwidth_gbs": "8.192",
             "reference": "memcpy/whole", "ratio": "5", "bar": "", "verdict": ""},
            {"set": "uct", "series": "gaudi_copy/put_zcopy_registered",
             "measure": "single", "direction": "H-D", "size_bytes": "1048576",
             "latency_us": "262.1", "bandwidth_gbs": "4",
             "reference": "memcpy/whole", "ratio": "2", "bar": "1.11",
             "verdict": "MISSED"}], self.rows()[:2])
        self.assertEqual(["memcpy/whole"] * 2,
                         [row["series"] for row in self.rows()[2:]])
        self.assertEqual(1, out.count("MISSED"))
        facts = json.loads((self.results / "facts.json").read_text())
        self.assertIn("software Gaudi", facts["Cards"])

    def test_sizes_are_chosen(self):
        build = self.google_program(CASES, [answer(400, 1, 100, 1)])
        status, _, err = self.bench("uct", "--sizes=4K", "--repetitions=1",
                                    build=build)
        self.assertEqual(0, status, err)
        self.assertEqual({"4096"}, {row["size_bytes"] for row in self.rows()})
        self.expect_refused(self.bench("uct", "--sizes=3K", build=build),
                            "no set has a case of the sizes")

    def test_what_is_no_result_is_told(self):
        failed = answer(1, 1, 1, 1)
        failed["benchmarks"][1].update(error_occurred=True,
                                       error_message="no memory left")
        for bad, told in (("", "wrote no results"), ("{}", "wrote no results"),
                          ({"benchmarks": []}, "did not measure put_zcopy"),
                          (answer(1, 1, 1), "reference_memcpy/1048576"),
                          (failed, "put_zcopy_registered/1048576: no memory")):
            (self.place / "turn").unlink(missing_ok=True)
            self.expect_refused(self.bench_stand_in(bad), told)
            self.assertFalse((self.results / "report.html").exists())
            self.assertFalse((self.results / "results.csv").exists())

    def test_one_bad_set_costs_no_other_its_results(self):
        outcome = self.bench(
            "uct", "ucp", "--repetitions=1", "--sizes=4K,1M",
            build=self.google_program(CASES + ["ucp_eager_send/8"],
                                      [answer(1, 1, 1, 1), "{}"]))
        self.expect_refused(outcome, "ucp: gaudi_bench wrote no results",
                            "without all results of ucp")
        self.assertEqual({"uct"}, {row["set"] for row in self.rows()})
        self.assertTrue((self.results / "report.html").exists())

    def test_a_bad_folder_is_told_before_anything_is_measured(self):
        file = self.place / "file"
        file.write_text("mine", encoding="utf-8")
        build = self.write_program("gaudi_bench",
                                   f"#!/bin/sh\ntouch {self.place}/ran\n")
        self.expect_refused(
            self.bench("uct", f"--output={file}", build=build),
            f"{file} cannot take the results")
        self.assertFalse((self.place / "ran").exists())
        self.assertEqual("mine", file.read_text(encoding="utf-8"))

    def test_the_results_of_an_earlier_run_are_kept(self):
        self.results.mkdir(parents=True, exist_ok=True)
        (self.results / "results.csv").write_text("old", encoding="utf-8")
        build = self.google_program(CASES, [answer(1, 1, 1, 1)])
        status, _, err = self.bench("uct", "--repetitions=1", "--sizes=4K,1M",
                                    build=build)
        self.assertEqual(0, status, err)
        before = self.results / "results.before.csv"
        self.assertIn(f"the results that were there are in {before}", err)
        self.assertEqual("old", before.read_text(encoding="utf-8"))

    def test_an_interrupt_costs_no_other_set_its_results(self):
        # The second set interrupts the first process: scripts/bench itself.
        build = self.google_program(CASES + ["ucp_eager_send/8"],
                                    [answer(1, 1, 1, 1), ""])
        program = build / "bin/gaudi_bench"
        program.write_text(program.read_text(encoding="utf-8").replace(
            "exec cat", '[ "$turn" = 0 ] || kill -INT "$PPID"\nexec cat'))
        self.expect_refused(
            self.bench("uct", "ucp", "md", "--sizes=4K,1M", "--repetitions=1",
                       build=build), "without all results of ucp, md")
        self.assertEqual({"uct"}, {row["set"] for row in self.rows()})
        self.assertTrue((self.results / "report.html").exists())

    def test_bad_arguments_are_told(self):
        for bad in ("nothing", "--sizes=3X", "--sizes=", "--sizes=0",
                    "--pairs=0", "--repetitions=-1", "--min-time=nan"):
            status, _, err = self.bench(bad)
            self.assertEqual(2, status, err)
            self.assertIn("bench: error: ", err)


class measures_this_build(BenchCase):
    """For a moment each: these are no figures."""

    def test_every_kind_of_set_gives_rows(self):
        status, out, err = self.bench(
            "--quick", "--sizes=8,4K", "--repetitions=1", "--min-time=0.0001",
            "uct", "ucp", "ipc", "mpi", "init")
        self.assertEqual(0, status, out + err)
        rows = self.rows()
        self.assertEqual(["uct", "ucp", "ipc", "mpi", "init"],
                         list(dict.fromkeys(row["set"] for row in rows)))
        found = {(row["series"], row["measure"], row["direction"],
                  row["size_bytes"]) for row in rows}
        for expected in (
                ("gaudi_copy/put_short", "single", "H-D", "8"),
                ("gaudi_copy/get_zcopy_staged", "single", "D-H", "4096"),
                ("gaudi_ipc/put_zcopy", "single", "D-D", "4096"),
                ("memcpy/whole", "single", "H-H", "4096"),
                ("ucp/eager_send", "time", "D-H", "8"),
                ("gaudi_ipc/tag_over_host", "latency", "D-D", "8"),
                ("gaudi_ipc/post_over_ports", "time", "D-D", "8"),
                ("mpich/gaudi", "latency", "D-D", "8"),
                ("mpich/sm", "bandwidth", "H-H", "4096"),
                ("openmpi/gaudi", "both-ways", "D-D", "1024"),
                ("openmpi/sm", "latency", "H-H", "4096"),
                ("ucp/ucp_init with cards=all", "time", "", "")):
            self.assertIn(expected, found)
        for row in rows:
            self.assertTrue(row["latency_us"] or row["bandwidth_gbs"], row)
            self.assertEqual(bool(row["reference"]), bool(row["ratio"]), row)
        drawn = {path.name for path in self.results.glob("*.png")}
        self.assertLessEqual({"uct-latency.png", "mpi-bandwidth.png",
                              "mpi-both-ways-bandwidth.png"}, drawn)
        # Which of how many, in lines that stay where nobody watches.
        self.assertRegex(err, re.compile(
            r"^\[ +\d+ s\] set 4 of 5, mpi: 1 of 12, mpich latency, gaudi$",
            re.MULTILINE))
        self.assertNotIn("\r", err)


if __name__ == "__main__":
    main(sys.modules[__name__])
