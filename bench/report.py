#!/usr/bin/python3
"""Writes tables and plots of the results.

Owns: results.md, rounds.csv and the plots in a directory of results; reads the
.json files there, whose form bench/README.md describes. If a series has no number,
its file is named and left out, and the exit status is 1.
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
from lib.results import missing, number                         # noqa: E402


def natural(text):
    """Sorts P2 before P10."""
    return [int(part) if part.isdigit() else part
            for part in re.split(r"(\d+)", text)]


def read_parts(where):
    """The targets come first; a part with the disk sync on follows the one without."""
    parts = []
    for path in glob.glob(os.path.join(where, "*.json")):
        with open(path, encoding="utf-8") as file:
            parts.append({"sync": "off", "file": os.path.basename(path), **json.load(file)})
    return sorted(parts, key=lambda part: (
        not re.match(r"P\d", part["part"]), natural(part["part"]), part["sync"] == "on"))


def title(part):
    return part["part"] + (", disk sync on" if part["sync"] == "on" else "")


def row(*cells):
    return "| " + " | ".join(str(cell).replace("|", "\\|") for cell in cells) + " |"


def table(head, rows):
    return [row(*head), row(*["---"] * len(head))] + [row(*cells) for cells in rows] + [""]


def machines(parts):
    """Parts of the same machine and versions share a table."""
    lines = ["## Machine", ""]
    different = []
    for part in parts:
        if part["machine"] not in different:
            different.append(part["machine"])
    for machine in different:
        if len(different) > 1:
            names = [title(part) for part in parts if part["machine"] == machine]
            lines += [", ".join(names) + ":", ""]
        lines += table(("what", "version"), machine.items())
    syncs = [part["disk_sync"] for part in parts if part.get("disk_sync")]
    if syncs:
        lines += ["ZooKeeper's disk: a write of 200 bytes and its sync take"
                  f" {min(syncs):.2f} to {max(syncs):.2f} ms, the medians beside each part"
                  " that was measured with the sync on.", ""]
    return lines


def targets(parts):
    """A line for each check, with the disk sync off and on."""
    lines = {}
    for part in parts:
        for check in part["checks"]:
            line = lines.setdefault((check["target"], check["what"]), {})
            line[part["sync"]] = outcome(check)
    return ["## Targets", "",
            "The median of the ratios of all rounds; the two numbers of a ratio were measured"
            " right after each other. Disk sync: whether ZooKeeper waits for its disk before"
            " it answers, as it does by default. Parts in which ZooKeeper writes little are"
            " measured with the sync off alone. Why targets are missed:"
            " [../README.md](../README.md#where-a-target-is-missed-and-why).", ""] + table(
        ("target", "what", "sync off", "wanted", "", "sync on", "wanted", ""),
        [(target, what, *line.get("off", NOTHING), *line.get("on", NOTHING))
         for (target, what), line in sorted(lines.items(), key=lambda item: (
             not re.match(r"P\d", item[0][0]), natural(item[0][0])))])


NOTHING = "", "", ""


def outcome(check):
    return (number(check["value"]), f"{check['sense']} {number(check['limit'])}",
            "holds" if check["passed"] else "**missed**")


def spread(rounds):
    return f"{number(min(rounds))} – {number(max(rounds))}"


def section(part):
    lines = [f"## {title(part)}: {part['title']}", ""]
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
    """Writes every number, one in each line."""
    with open(os.path.join(where, "rounds.csv"), "w", encoding="utf-8",
              newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("part", "sync", "what", "unit", "size", "round", "value"))
        for part in parts:
            for what, unit, size, rounds in numbers(part):
                for turn, value in enumerate(rounds, 1):
                    writer.writerow((part["part"], part["sync"], what, unit, size,
                                     turn, value))


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
    empty = [part for part in parts if missing(part)]
    for part in empty:
        print(f"{part['file']}: no number for {', '.join(missing(part))}", file=sys.stderr)
    parts = [part for part in parts if part not in empty]
    write_text(where, parts)
    write_rounds(where, parts)
    for part in parts:
        for plot in part["plots"]:
            draw(plot, os.path.join(where, plot["name"] + ".svg"))
    return 1 if empty else 0


if __name__ == "__main__":
    sys.exit(main())
