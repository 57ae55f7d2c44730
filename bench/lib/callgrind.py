"""Reads callgrind's counts of one process.

Owns: the mark at which a process writes its counts, and reading these files,
PID.PART-THREAD; see bench/parts/instructions.sh.
"""

import glob
import os
import re
import time
from collections import Counter

MARK = "SELECT pg_my_temp_schema()"
ALLOCATORS = re.compile(
    r"(palloc|palloc0|palloc_extended|repalloc|MemoryContextAlloc(Zero|ZeroAligned|Extended)?"
    r"|malloc|calloc|realloc|posix_memalign|aligned_alloc)$")


class Counts:
    """Counts of one thread: instructions by object file, calls of allocators, sleeps."""

    def __init__(self):
        self.by_object = Counter()
        self.allocations = 0
        self.sleeps = 0

    def __sub__(self, other):
        difference = Counts()
        difference.by_object.update(self.by_object)
        difference.by_object.subtract(other.by_object)
        difference.allocations = self.allocations - other.allocations
        difference.sleeps = self.sleeps - other.sleeps
        return difference

    @property
    def all(self):
        return sum(self.by_object.values())

    @property
    def ours(self):
        return self.by_object["zklock.so"]


class Names:
    """Names, which a file has in full at first and then as a number."""

    def __init__(self):
        self.known = {}

    def read(self, text):
        number, _, name = text.partition(" ")
        if name:
            self.known[number] = name
        return self.known.get(number, text)


def read(path):
    counts, objects, functions = Counts(), Names(), Names()
    where, called, is_call = "", "", False
    with open(path, encoding="utf-8", errors="replace") as file:
        for line in file:
            key, equals, value = line.rstrip("\n").partition("=")
            if key in ("ob", "cob"):
                name = os.path.basename(objects.read(value))
                where = name if key == "ob" else where
            elif key in ("fn", "cfn"):
                called = functions.read(value)
            elif key == "calls":
                is_call = True
                if ALLOCATORS.match(called):
                    counts.allocations += int(value.split()[0])
                elif called == "WaitEventSetWait":
                    counts.sleeps += int(value.split()[0])
            elif not equals and line[:1] in "0123456789+-*":
                if not is_call:     # the callee's costs are counted at the callee
                    counts.by_object[where] += int(line.split()[1])
                is_call = False
    return counts


def of_process(directory, pid):
    """Returns the counts of the backend's own thread between marks. Waits for its end."""
    while os.path.exists(f"/proc/{pid}"):
        time.sleep(0.05)
    paths = glob.glob(f"{directory}/{pid}.*-01")
    parts = [read(path) for path in sorted(paths, key=part_of)]
    for path in glob.glob(f"{directory}/{pid}*"):
        os.remove(path)
    return parts


def part_of(path):
    return int(re.search(r"\.(\d+)-01$", path)[1])
