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
from lib.plots import draw, draw_bars                         # noqa: E402
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


def row(*cells):
    return "| " + " | ".join(str(cell).replace("|", "\\|") for cell in cells) + " |"


def table(head, rows):
    return [row(*head), row(*["---"] * len(head))] + [row(*cells) for cells in rows] + [""]


def machines(parts):
    """A line for each machine and its versions, with the parts that were measured there."""
    lines = ["## Machine", ""]
    different = []
    for part in parts:
        if part["machine"] not in different:
            different.append(part["machine"])
    for machine in different:
        names = [part["file"] for part in parts if part["machine"] == machine]
        which = f"**{', '.join(names)}**: " if len(different) > 1 else ""
        lines += ["- " + which + "; ".join(f"{what} {version}" for what, version in machine.items()) + "."]
    lines += [""]
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
        for check in worst_of(part["checks"]):
            line = lines.setdefault((check["target"], check["what"]), {})
            line[part["sync"]] = outcome(check)
    return ["## Targets", "",
            "The median of the ratios of all rounds; the two numbers of a ratio were measured"
            " right after each other. Why targets are missed:"
            " [../README.md](../README.md#where-a-target-is-missed-and-why).", ""] + table(
        ("target", "what", "sync off", "wanted", "", "sync on", "wanted", ""),
        [(target, what, *line.get("off", NOTHING), *line.get("on", NOTHING))
         for (target, what), line in sorted(lines.items(), key=lambda item: (
             not re.match(r"P\d", item[0][0]), natural(item[0][0])))])


def worst_of(checks):
    """Of the checks of a part that is not a target, only the worst one of each limit."""
    found = {}
    for check in checks:
        key = (check["target"], check["sense"], check["limit"])
        if re.match(r"P\d", check["target"]):
            key += (check["what"],)
        worst = max if check["sense"] == "at most" else min
        found[key] = worst(found.get(key, check), check, key=lambda one: one["value"])
    return found.values()


NOTHING = "", "", ""


def outcome(check):
    return (number(check["value"]), f"{check['sense']} {number(check['limit'])}",
            "holds" if check["passed"] else "**missed**")


def spread(rounds):
    return f"{number(min(rounds))} – {number(max(rounds))}" if len(rounds) > 1 else ""


def growth(parts):
    """The pictures, the reasons for their form, and one table of all curves."""
    drawn = [part for part in parts if part["plots"]]
    if not drawn:
        return []
    pictures = [f"![{part['title']}]({part['file']}.svg)" for part in drawn]
    reasons = [f"- **{part['part']}**: {' '.join(plot['why'] for plot in part['plots'])}" for part in drawn]
    return ["## Growth", "", *pictures, "", *reasons, ""] + table(
        ("part", "what", "unit", "medians", "at"),
        [(part["part"], f"{plot['title']}: {curve['name']}", plot["y"],
          ", ".join(number(median(rounds)) for rounds in curve["rounds"]),
          ", ".join(f"{x:,}" for x in curve["x"]) + " " + plot["x"])
         for part in drawn for plot in part["plots"] for curve in plot["curves"]])


def section(modes):
    """One table for a part, with the disk sync off and on."""
    part = next(iter(modes.values()))
    head = ["what", "unit"]
    rows = {}
    for sync, measured in modes.items():
        head += [f"sync {sync}", "from – to"]
        for what, unit, *values in series_rows(measured):
            rows.setdefault((what, unit), {})[sync] = values
    return [f"## {part['part']}: {part['title']}", ""] + table(head, [
        (*key, *(cell for sync in modes for cell in found.get(sync, ("", ""))))
        for key, found in rows.items()])


def series_rows(part):
    """Series that follow each other share a row: "A: B" behind "A", and behind "A: C" of the same unit."""
    rows = []
    whole, unit = None, None
    for one in part["series"]:
        value, between = number(median(one["rounds"])), spread(one["rounds"])
        first, _, rest = one["name"].partition(": ")
        if rest and first == whole and unit in (None, one["unit"]):
            rows[-1][0] += f"; {rest}" if unit else ""
            rows[-1][2] += f"; {value}" if unit else f"; {rest} {value}"
            rows[-1][3] += f"; {between}" if unit else ""
            continue
        whole, unit = first, one["unit"] if rest else None
        rows.append([one["name"], one["unit"], value, between])
    return rows


def write_text(where, parts):
    lines = ["# Results", "", "For readers who ask how fast zklock is. Written by `scripts/bench` from the raw"
             " numbers in `results.json`; what is measured, and how, is in [../README.md](../README.md). Numbers"
             " are medians of the rounds, with the least and the greatest round. Sync: whether ZooKeeper waits"
             " for its disk before it answers, as it does by default; parts in which ZooKeeper writes little"
             " are measured with the sync off alone.", ""]
    if any(part["quick"] for part in parts):
        lines += ["**A quick run: the numbers mean nothing.**", ""]
    lines += targets(parts) + machines(parts) + growth(parts)
    by_part = {}
    for part in (part for part in parts if part["series"]):
        by_part.setdefault(part["part"], {})[part["sync"]] = part
    for modes in by_part.values():
        lines += section(modes)
    with open(os.path.join(where, "results.md"), "w", encoding="utf-8") as file:
        file.write("\n".join(lines).rstrip("\n") + "\n")


# The README's picture: what one client can do, by part and series.
RATES = {
    "kazoo": ("p1", "kazoo"),
    "Curator": ("p1", "Curator"),
    "C client, create and delete": ("p1", "C client, create and delete"),
    "zklock": ("p1", "zklock"),
    "zklock, with zklock.keep_time": ("p14", "zklock, exclusive, 1 client"),
    "pg_advisory_xact_lock, one server": ("p14", "PostgreSQL, exclusive, 1 client"),
}


def draw_rates(parts, path):
    """Only numbers of one commit and machine are in one picture."""
    by_file = {part["file"]: part for part in parts}
    needed = [by_file.get(file) for file, _ in RATES.values()]
    if None in needed or any(part["machine"] != needed[0]["machine"] for part in needed):
        return
    bars = {name: next(one["rounds"] for one in by_file[file]["series"] if one["name"] == series)
            for name, (file, series) in RATES.items()}
    draw_bars("One client: locks acquired and released in a second", bars, path)


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
    draw_rates(parts, os.path.join(where, "rates.svg"))
    return 1 if empty else 0


if __name__ == "__main__":
    sys.exit(main())
