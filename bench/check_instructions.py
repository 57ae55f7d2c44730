#!/usr/bin/python3
"""Compares the instructions of the code paths with the recorded counts, and checks that
some paths do not allocate. Prints TAP.

Needs the servers that bench/parts/instructions.sh has started. The record is the
part "instructions" of bench/results/results.json, and valid for the versions in it:
with other versions, of which the compiler is the same, zklock's own instructions are
compared. After an intended change, run `scripts/bench instructions` to record again.
"""

import json
import os
import sys
import tempfile

sys.dont_write_bytecode = True

# pylint: disable=wrong-import-position
from instructions import EMPTY, NETWORK, REENTRANT, TITLES, machine, measure    # noqa: E402
from lib.bench import Bench                                     # noqa: E402


RECORD = os.path.join(os.path.dirname(os.path.abspath(__file__)),
                      "results", "results.json")
# A backend that waits for the ensemble drives the client library. How often it sleeps,
# and how many answers its I/O thread reads, depends on the machine's load, so these
# numbers may grow by half.
TOLERANCE, WAITING_TOLERANCE = 0.02, 0.5
VERSIONS = ("vectors", "libc", "compiler", "valgrind", "PostgreSQL", "libzookeeper-st2")
COUNT = [0]


def ok(passed, what, comment=""):
    COUNT[0] += 1
    print("ok" if passed else "not ok", COUNT[0], "-", what, flush=True)
    if not passed:
        print("#", comment, flush=True)


def check_allocations(counts):
    """Compares with an empty call, because PostgreSQL allocates for each row."""
    empty = counts[EMPTY]["allocations"][0]
    ok(empty < 1.5, "an empty call allocates at most once, for its row", empty)
    for name in REENTRANT:
        number = counts[name]["allocations"][0]
        ok(abs(number - empty) < 0.5, f"{name} allocates nothing more",
           f"{number} instead of {empty}")


def check_record(counts, record, which):
    recorded = {one["name"]: one["rounds"] for one in record["series"]}
    for name, kinds in counts.items():
        for kind in which:
            title, number = TITLES[kind].format(name), kinds[kind][0]
            tolerance = WAITING_TOLERANCE if name in NETWORK else TOLERANCE
            least, most = min(recorded[title]), max(recorded[title])
            ok(least * (1 - tolerance) <= number <= most * (1 + tolerance),
               f"{title}: as recorded", f"{number} instead of {least} to {most}")


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
        record = json.load(file)["instructions"]
    others = different(versions, record["machine"])
    if versions.get("compiler") != record["machine"].get("compiler"):
        COUNT[0] += 1
        print(f"ok {COUNT[0]} - as recorded # skip {'; '.join(others)}")
    elif others:
        print(f"# zklock's own instructions are compared: {'; '.join(others)}")
        check_record(counts, record, ("ours",))
    else:
        check_record(counts, record, ("all", "ours"))
    print(f"1..{COUNT[0]}")


if __name__ == "__main__":
    main()
