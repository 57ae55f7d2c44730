#!/usr/bin/python3
"""Makes tables and plots of what was measured.

Owns: results.md, rounds.csv and the plots in a directory of results; reads the
.json files there, whose form bench/README.md describes.
"""

import csv
import glob
import json
import os
import re
import sys
from statistics import median

sys.dont_write_bytecode = True

# pylint: disable=wrong-import-position
from lib.plots import draw                                      # noqa: E402
from lib.results import number                                  # noqa: E402


def natural(text):
    """Sorts P2 before P10."""
    return [int(part) if part.isdigit() else part
            for part in re.split(r"(\d+)", text)]


def read_parts(where):
    """The targets come first."""
    parts = []
    for path in glob.glob(os.path.join(where, "*.json")):
        with open(path, encoding="utf-8") as file:
            parts.append(json.load(file))
    return sorted(parts, key=lambda part: (
        not re.match(r"P\d", part["part"]), natural(part["part"])))


def row(*cells):
    return "| " + " | ".join(str(cell).replace("|", "\\|") for cell in cells) + " |"


def table(head, rows):
    return [row(*head), row(*["---"] * len(head))] + [row(*cells) for cells in rows] + [""]


def machines(parts):
    """What is the same for all is told once."""
    lines = ["## Machine", ""]
    different = []
    for part in parts:
        if part["machine"] not in different:
            different.append(part["machine"])
    for machine in different:
        if len(different) > 1:
            names = [part["part"] for part in parts if part["machine"] == machine]
            lines += [", ".join(names) + ":", ""]
        lines += table(("what", "version"), machine.items())
    return lines


def targets(parts):
    checks = [check for part in parts for check in part["checks"]]
    return ["## Targets", "",
            "The median of the ratios of all rounds; those of one round were measured"
            " right after each other. What limits those that are missed, what was tried,"
            " and the floor: below, with the numbers, and in"
            " [../README.md](../README.md#where-a-target-is-missed-and-why).", ""] + table(
        ("target", "what", "measured", "wanted", ""),
        [(check["target"], check["what"], number(check["value"]),
          f"{check['sense']} {number(check['limit'])}",
          "holds" if check["passed"] else "**missed**") for check in checks])


def spread(rounds):
    return f"{number(min(rounds))} – {number(max(rounds))}"


def section(part):
    lines = [f"## {part['part']}: {part['title']}", ""]
    if part["series"]:
        lines += table(
            ("what", "median", "from – to", "rounds", "unit"),
            [(one["name"], number(median(one["rounds"])), spread(one["rounds"]),
              len(one["rounds"]), one["unit"]) for one in part["series"]])
    for plot in part["plots"]:
        lines += [f"### {plot['title']}", "", f"![{plot['title']}]({plot['name']}.svg)",
                  "", plot["why"], ""]
        sizes = sorted({x for curve in plot["curves"] for x in curve["x"]})
        lines += table(
            (plot["y"] + ", by " + plot["x"], *sizes),
            [(curve["name"], *cells(curve, sizes)) for curve in plot["curves"]])
    for note in part["notes"]:
        lines += [note, ""]
    return lines


def cells(curve, sizes):
    found = dict(zip(curve["x"], curve["rounds"]))
    return [number(median(found[size])) if size in found else "" for size in sizes]


def write_text(where, parts):
    lines = ["# Results", "", "Written by `scripts/bench`; what is measured, and how,"
             " is in [../README.md](../README.md).", ""]
    if any(part["quick"] for part in parts):
        lines += ["**A quick run: the numbers mean nothing.**", ""]
    lines += targets(parts) + machines(parts)
    for part in parts:
        lines += section(part)
    with open(os.path.join(where, "results.md"), "w", encoding="utf-8") as file:
        file.write("\n".join(lines).rstrip("\n") + "\n")


def write_rounds(where, parts):
    """Every number, one for each line."""
    with open(os.path.join(where, "rounds.csv"), "w", encoding="utf-8",
              newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("part", "what", "unit", "size", "round", "value"))
        for part in parts:
            for what, unit, size, rounds in numbers(part):
                for turn, value in enumerate(rounds, 1):
                    writer.writerow((part["part"], what, unit, size, turn, value))


def numbers(part):
    for one in part["series"]:
        yield one["name"], one["unit"], "", one["rounds"]
    for plot in part["plots"]:
        for curve in plot["curves"]:
            for size, rounds in zip(curve["x"], curve["rounds"]):
                yield f"{plot['title']}: {curve['name']}", plot["y"], size, rounds


def main():
    where = sys.argv[1]
    parts = read_parts(where)
    write_text(where, parts)
    write_rounds(where, parts)
    for part in parts:
        for plot in part["plots"]:
            draw(plot, os.path.join(where, plot["name"] + ".svg"))


if __name__ == "__main__":
    main()
