#!/usr/bin/python3
"""TAP: the ways through the code take as many instructions as is recorded, and
those that must not allocate do not.

Needs the servers that bench/parts/instructions.sh has started. The record is a
result of scripts/bench, bench/results/instructions.json, and good for the
versions that it names: with others, only what needs no record is tested. After
a change that is meant, `scripts/bench instructions` makes a new one.
"""

import json
import os
import sys
import tempfile

sys.dont_write_bytecode = True

# pylint: disable=wrong-import-position
from instructions import EMPTY, LOCAL, REENTRANT, TITLES, machine, measure    # noqa: E402
from lib.bench import Bench                                     # noqa: E402


RECORD = os.path.join(os.path.dirname(os.path.abspath(__file__)),
                      "results", "instructions.json")
# Of instructions, beyond what the recorded rounds differ by: what waits for the
# ensemble wakes up more often or less. More of that is PostgreSQL's than zklock's.
TOLERANCE, WAITING_TOLERANCE = 0.02, 0.08
VERSIONS = ("vectors", "libc", "compiler", "valgrind", "PostgreSQL", "libzookeeper-mt2")
COUNT = [0]


def ok(passed, what, comment=""):
    COUNT[0] += 1
    print("ok" if passed else "not ok", COUNT[0], "-", what, flush=True)
    if not passed:
        print("#", comment, flush=True)


def check_allocations(counts):
    """PostgreSQL allocates for each row, whatever is called."""
    empty = counts[EMPTY]["allocations"][0]
    ok(empty < 1.5, "an empty call allocates once at most, for its row", empty)
    for name in REENTRANT:
        number = counts[name]["allocations"][0]
        ok(abs(number - empty) < 0.5, f"{name} allocates nothing more",
           f"{number} instead of {empty}")


def check_record(counts, record):
    recorded = {one["name"]: one["rounds"] for one in record["series"]}
    for name, kinds in counts.items():
        for kind in ("all", "ours"):
            waits = kind == "all" and name not in LOCAL
            tolerance = WAITING_TOLERANCE if waits else TOLERANCE
            rounds, number = recorded.get(TITLES[kind].format(name)), kinds[kind][0]
            ok(rounds and min(rounds) * (1 - tolerance) <= number
               <= max(rounds) * (1 + tolerance),
               f"{TITLES[kind].format(name)}: as recorded",
               f"{number} instead of {rounds}")


def different(now, then):
    return [f"{what} {now.get(what)}, not {then.get(what)}" for what in VERSIONS
            if now.get(what) != then.get(what)]


def main():
    with tempfile.TemporaryDirectory() as where:
        bench = Bench(False, 1, where)
        counts = measure(bench)
        versions = machine(bench)
    check_allocations(counts)
    with open(RECORD, encoding="utf-8") as file:
        record = json.load(file)
    others = different(versions, record["machine"])
    if others:
        COUNT[0] += 1
        print(f"ok {COUNT[0]} - as recorded # skip {'; '.join(others)}")
    else:
        check_record(counts, record)
    print(f"1..{COUNT[0]}")


if __name__ == "__main__":
    main()
