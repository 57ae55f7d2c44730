#!/usr/bin/python3
"""TAP: every part of the benchmark runs, in its short form, and is reported.

Needs the servers of bench/servers.sh. Asserts what a result consists of, never
how fast anything was.
"""

import csv
import glob
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
from report import read_parts                                   # noqa: E402
from run import measure                                         # noqa: E402

HERE = os.path.dirname(os.path.abspath(__file__))
TARGETS = [f"P{number}" for number in range(1, 11)]
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
    except Exception:                       # pylint: disable=broad-except
        print("# " + traceback.format_exc().replace("\n", "\n# "))
        return False
    return True


def rounds_of(part):
    yield from (one["rounds"] for one in part["series"])
    for plot in part["plots"]:
        for curve in plot["curves"]:
            assert len(curve["x"]) == len(curve["rounds"]) > 1
            yield from curve["rounds"]


def check_parts(parts):
    for part in parts:
        every = list(rounds_of(part))
        ok(every and all(rounds for rounds in every),
           f"{part['part']} has numbers, and some for everything")
    checked = {check["target"] for part in parts for check in part["checks"]}
    for target in TARGETS:
        ok(target in checked, f"{target} is compared with what is wanted")


def check_report(where, parts):
    subprocess.run([sys.executable, f"{HERE}/report.py", where], check=True)
    with open(f"{where}/results.md", encoding="utf-8") as file:
        text = file.read()
    for target in TARGETS:
        ok(re.search(rf"^\| {target} \| .* \| (holds|\*\*missed\*\*) \|$", text,
                     re.MULTILINE), f"{target} has a line in the table")
    with open(f"{where}/rounds.csv", encoding="utf-8") as file:
        ok(len(list(csv.reader(file))) - 1
           == sum(len(rounds) for part in parts for rounds in rounds_of(part)),
           "every number is in the file of raw numbers")
    for plot in (plot for part in parts for plot in part["plots"]):
        drawn = xml.parse(f"{where}/{plot['name']}.svg").getroot()
        text = " ".join(drawn.itertext())
        ok(all(curve["name"] in text for curve in plot["curves"]),
           f"the plot {plot['name']} has all its curves")


def main():
    with tempfile.TemporaryDirectory() as where:
        bench = Bench(quick=True, rounds=1, directory=where)
        try:
            for name in part_names():
                ok(runs(name, bench, where), f"{name} runs")
        finally:
            bench.end()
        parts = read_parts(where)
        check_parts(parts)
        check_report(where, parts)
    print(f"1..{COUNT[0]}")


if __name__ == "__main__":
    main()
