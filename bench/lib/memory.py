"""How much memory processes have, as the kernel counts it."""

import re

KINDS = {"Rss": "resident", "Pss": "proportional", "Private": "private"}


def of_process(pid):
    """Megabytes. Resident counts what is shared in full; proportional divides
    it by the number of those who share it; private is what would be free if the
    process ended."""
    sums = dict.fromkeys(KINDS.values(), 0)
    with open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as file:
        for line in file:
            found = re.match(r"(Rss|Pss|Private)(?:_Clean|_Dirty)?: +(\d+) kB", line)
            if found and not line.startswith("Pss_"):
                sums[KINDS[found[1]]] += int(found[2]) / 1024
    return sums
