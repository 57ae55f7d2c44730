#!/usr/bin/python3
"""Runs the scene, checks and draws it, and tests the contents of the chart. Prints
TAP. The history, the logs and the chart are kept in TESTLOGDIR.
"""

import os
import re
import subprocess
import sys
from itertools import combinations
from xml.etree import ElementTree

sys.dont_write_bytecode = True
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)

# pylint: disable=wrong-import-position
import scene                                                    # noqa: E402

SVG = "{http://www.w3.org/2000/svg}"
LOGS = os.path.join(os.environ.get("TESTLOGDIR", "."), "scene")
PICTURE = os.path.join(LOGS, "picture.svg")
WORDS = ("terminated", "leader killed", "broken", "cut off")


def script(name, *arguments):
    return subprocess.run([os.path.join(HERE, name), *arguments],
                          stdout=sys.stderr, check=False).returncode


def bars(groups):
    """Returns (client, lock, mode, from, to) of each solid bar, in the chart's
    coordinates."""
    found = []
    for group in groups:
        kind, *what = group.get("id", "").split(" ")
        if kind == "hold":
            path = group.find(f"{SVG}path").get("d")
            edges = [float(x) for x in re.findall(r"[ML] (\S+) \S+", path)]
            found.append((*what[:3], min(edges), max(edges)))
    return found


def overlapping(found):
    """Returns overlapping bars of one lock of which one is exclusive, apart from the
    edge's width."""
    return [f"{one} and {other}" for one, other in combinations(found, 2)
            if one[1] == other[1] and one[0] != other[0] and
            "x" in (one[2], other[2]) and
            one[3] + 0.1 < other[4] and other[3] + 0.1 < one[4]]


def results():
    os.makedirs(LOGS, exist_ok=True)
    yield "the scene breaks no promise", script(
        "run", "--scene", "--seed", "1", "--keep", LOGS, "--chart", PICTURE)
    groups = list(ElementTree.parse(PICTURE).iter(f"{SVG}g"))
    found = bars(groups)
    yield ("every client held something",
           set(scene.PARTS) ^ {bar[0] for bar in found})
    yield "no exclusive bar overlaps another one", overlapping(found)
    yield "a commit was refused", not any(
        group.get("id", "").startswith("refused") for group in groups)
    texts = " ".join(text.text or "" for text in
                     ElementTree.parse(PICTURE).iter(f"{SVG}text"))
    yield "every fault has a label", [w for w in WORDS if w not in texts]
    yield "the chart says its session timeout", f"T is {scene.TIMEOUT} s" not in texts
    again = os.path.join(LOGS, "again.svg")
    script("chart.py", os.path.join(LOGS, "history.jsonl"), again)
    with open(PICTURE, "rb") as one, open(again, "rb") as other:
        yield ("the same history gives the same chart",
               one.read() != other.read())


def main():
    number = failed = 0
    for number, (name, wrong) in enumerate(results(), 1):
        print(f"{'not ok' if wrong else 'ok'} {number} - {name}", flush=True)
        if wrong:
            print(f"# {wrong}")
            failed += 1
    print(f"1..{number}")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
