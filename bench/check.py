#!/usr/bin/python3
"""Checks that every part of the benchmark runs in its short form, and is reported. Prints TAP.

Needs the servers of bench/servers.sh. Asserts the form of the results, never a
speed. One part is measured a second time on the same server, under its name with
the disk sync on, so the report has both columns.
"""

import glob
import json
import os
import re
import subprocess
import sys
import tempfile
import traceback
import xml.etree.ElementTree as xml

sys.dont_write_bytecode = True

# pylint: disable=wrong-import-position
from lib.bench import Bench                                     # noqa: E402
from lib.results import NoNumbers, missing                      # noqa: E402
from report import in_order, read_new                                   # noqa: E402
from run import measure                                         # noqa: E402

HERE = os.path.dirname(os.path.abspath(__file__))
TARGETS = [f"P{number}" for number in (*range(1, 11), *range(12, 17), 20)]
TWICE = "p1"
OUTCOME = r"[^|]+ \| at (least|most) [^|]+ \| (holds|\*\*missed\*\*)"
COUNT = [0]


def ok(passed, what):
    COUNT[0] += 1
    print("ok" if passed else "not ok", COUNT[0], "-", what, flush=True)


def part_names():
    return sorted(os.path.basename(path)[:-3] for path
                  in glob.glob(f"{HERE}/parts/[!_]*.py"))


def runs(name, bench, where):
    try:
        print("# " + measure(name, bench, where).text().replace("\n", "\n# "))
    except NoNumbers as failure:
        print(f"# {failure}")
        return False
    except Exception:                       # pylint: disable=broad-except
        print("# " + traceback.format_exc().replace("\n", "\n# "))
        return False
    return True


def check_parts(parts):
    for part in parts:
        nothing = missing(part)
        ok(not nothing, f"{part['file']} has numbers for all series and curves")
        for name in nothing:
            print(f"# no number for {name}")
        ok(all(len(curve["x"]) == len(curve["rounds"]) > 1
               for plot in part["plots"] for curve in plot["curves"]),
           f"{part['file']} has all sizes of its curves")
    checked = {check["target"] for part in parts for check in part["checks"]}
    for target in TARGETS:
        ok(target in checked, f"{target} is compared with its limit")


def check_report(new, where, parts):
    ok(report(new, where).returncode == 0, "the report is written")
    with open(f"{where}/results.md", encoding="utf-8") as file:
        text = file.read()
    for target in TARGETS:
        ok(re.search(rf"^\| {target} \| [^|]+ \| {OUTCOME} \|", text, re.MULTILINE),
           f"{target} has a line in the table")
    ok(re.search(rf"^\| P1 \| [^|]+ \| {OUTCOME} \| {OUTCOME} \|$", text, re.MULTILINE),
       "P1 has both columns, with the disk sync off and on")
    with open(f"{where}/results.json", encoding="utf-8") as file:
        ok(in_order(json.load(file)) == parts, "the file of raw numbers has every number")
    for part in (part for part in parts if part["plots"]):
        drawn = xml.parse(f"{where}/{part['file']}.svg").getroot()
        text = " ".join(drawn.itertext())
        ok(all(curve["name"] in text for plot in part["plots"] for curve in plot["curves"]),
           f"the picture of {part['part']} has all curves")


def check_empty(new):
    """A series without a number gives one line of output, not a traceback."""
    path = f"{new}/{TWICE}.json"
    with open(path, encoding="utf-8") as file:
        part = json.load(file)
    part["series"][0]["rounds"] = []
    with open(path, "w", encoding="utf-8") as file:
        json.dump(part, file)
    where = f"{new}/empty"
    os.mkdir(where)
    done = report(new, where)
    # matplotlib may print a warning.
    ok(done.returncode == 1 and "Traceback" not in done.stderr and
       f"{TWICE}: no number for {part['series'][0]['name']}"
       in done.stderr.splitlines(),
       "the report names a series without a number")
    with open(f"{where}/results.md", encoding="utf-8") as file:
        ok("P2: " in file.read(), "the report has the other parts")


def report(new, where):
    return subprocess.run([sys.executable, f"{HERE}/report.py", new, where], text=True,
                          stderr=subprocess.PIPE, check=False)


def main():
    with tempfile.TemporaryDirectory() as where:
        bench = Bench(quick=True, rounds=1, directory=where)
        try:
            for name in part_names():
                ok(runs(name, bench, where), f"{name} runs")
            bench.sync = "on"
            ok(runs(TWICE, bench, where), f"{TWICE} runs as with the disk sync on")
        finally:
            bench.end()
        parts = in_order(read_new(where))
        check_parts(parts)
        os.mkdir(f"{where}/report")
        check_report(where, f"{where}/report", parts)
        check_empty(where)
    print(f"1..{COUNT[0]}")


if __name__ == "__main__":
    main()
