"""The memory of processes, as the kernel counts it."""

import re

KINDS = {"Rss": "resident", "Pss": "proportional", "Private": "private"}


def of_process(pid):
    """Returns megabytes. Resident memory counts shared pages in full; proportional
    memory divides a shared page by the number of processes that use it; private
    memory would be free if the process ended."""
    sums = dict.fromkeys(KINDS.values(), 0)
    with open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as file:
        for line in file:
            found = re.match(r"(Rss|Pss|Private)(?:_Clean|_Dirty)?: +(\d+) kB", line)
            if found and not line.startswith("Pss_"):
                sums[KINDS[found[1]]] += int(found[2]) / 1024
    return sums
