#!/usr/bin/python3
"""Adds new results to a directory of results, and writes its tables and plots.

    report.py NEW WHERE

Reads the files NEW/*.json, one for each part, whose form bench/README.md describes. Owns
results.json, results.md and the plots in WHERE. If a series has no number, its file is
named and left out, and the exit status is 1.
"""

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


def read_new(where):
    """Returns the parts of the .json files of a directory, by the names of the files."""
    parts = {}
    for path in glob.glob(os.path.join(where, "*.json")):
        with open(path, encoding="utf-8") as file:
            parts[os.path.basename(path)[:-len(".json")]] = json.load(file)
    return parts


def merge(where, new):
    """Replaces the new parts in results.json, and returns all parts."""
    path = os.path.join(where, "results.json")
    parts = {}
    if os.path.exists(path):
        with open(path, encoding="utf-8") as file:
            parts = json.load(file)
    parts.update(new)
    lines = [f"{json.dumps(name)}: {json.dumps(parts[name])}"
             for name in sorted(parts, key=natural)]
    with open(path, "w", encoding="utf-8") as file:
        file.write("{\n" + ",\n".join(lines) + "\n}\n")
    return parts


def in_order(parts):
    """The targets come first; a part with the disk sync on follows the one without."""
    return sorted(({"sync": "off", "file": name, **part} for name, part in parts.items()),
                  key=lambda part: (not re.match(r"P\d", part["part"]),
                                    natural(part["part"]), part["sync"] == "on"))


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
    if part["plots"]:
        lines += [f"![{part['title']}]({part['file']}.svg)", ""]
    for plot in part["plots"]:
        lines += [f"### {plot['title']}", "", plot["why"], ""]
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


def main():
    new, where = read_new(sys.argv[1]), sys.argv[2]
    empty = {name: part for name, part in new.items() if missing(part)}
    for name, part in empty.items():
        print(f"{name}: no number for {', '.join(missing(part))}", file=sys.stderr)
        del new[name]
    parts = in_order(merge(where, new))
    write_text(where, parts)
    for part in parts:
        if part["plots"]:
            draw(part["plots"], os.path.join(where, part["file"] + ".svg"))
    return 1 if empty else 0


if __name__ == "__main__":
    sys.exit(main())
