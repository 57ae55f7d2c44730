"""Sleeps and processor time of a backend's threads, as the kernel counts them."""

import os

# In the order in which they are started.
THREADS = ("backend", "I/O thread")


def of_process(pid):
    """Returns for each thread how often it slept, and its processor time in
    microseconds."""
    counts = {}
    for name, thread in zip(THREADS, sorted(map(int, os.listdir(f"/proc/{pid}/task")))):
        where = f"/proc/{pid}/task/{thread}"
        with open(f"{where}/status", encoding="ascii") as file:
            sleeps = next(int(line.split()[1]) for line in file
                          if line.startswith("voluntary_ctxt_switches"))
        with open(f"{where}/schedstat", encoding="ascii") as file:
            counts[name] = {"sleeps": sleeps, "time": int(file.read().split()[0]) / 1000}
    return counts


def since(before, pid):
    """Returns the difference to an earlier result."""
    now = of_process(pid)
    return {name: {kind: now[name][kind] - before[name][kind] for kind in now[name]}
            for name in before}
