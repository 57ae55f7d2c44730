"""P9: the memory of a backend with an open session, and five hundred of them."""

import os
import time
from statistics import median

from lib.memory import of_process
from lib.sessions import Sessions

BOTH_MODES = True
WITHOUT = "SELECT pg_advisory_lock(%s), pg_advisory_unlock(%s)"
WITH = "SELECT zk_lock(%s::text), zk_unlock(%s::text)"


def backend_costs(bench, sql, number):
    """Returns memory by kind, and threads: medians of some backends that ran a statement."""
    with Sessions([bench.a], number) as sessions:
        sessions.run(sql, lambda i: (i, i))
        pids = [connection.info.backend_pid for connection in sessions.connections]
        costs = [{**of_process(pid), "threads": len(os.listdir(f"/proc/{pid}/task"))}
                 for pid in pids]
    return {kind: median(cost[kind] for cost in costs) for kind in costs[0]}


def measure(bench):
    result = bench.result("P9", "A backend with an open session")
    number = bench.size(20, 2)
    growth = {}
    for _ in range(bench.rounds):
        without = backend_costs(bench, WITHOUT, number)
        with_session = backend_costs(bench, WITH, number)
        for kind, size in with_session.items():
            growth.setdefault(kind, []).append(size - without[kind])
    threads = growth.pop("threads")
    for kind, rounds in growth.items():
        result.add_series(f"more {kind} memory", "MB", rounds)
    result.add_series("more threads", "threads", threads)
    result.check("P9", "more private memory, MB", median(growth["private"]), "at most", 0.6)
    result.check("P9", "more threads", max(threads), "at most", 1)
    crowd(bench, result, bench.size(500, 5))
    return result


def crowd(bench, result, number):
    """All backends hold a lock at the same time."""
    start = time.monotonic()
    with Sessions([bench.a], number) as sessions:
        tokens = sessions.run("SELECT zk_lock(%s)", lambda i: (f"crowd{i}",))
        seconds = time.monotonic() - start
        held = sessions.run("SELECT count(*) FROM zk_held_locks WHERE state = 'held'")
        pids = [connection.info.backend_pid for connection in sessions.connections]
        memory = sum(of_process(pid)["private"] for pid in pids)
    working = sum(token is not None and count == 1
                  for (token,), (count,) in zip(tokens, held))
    result.add_series(f"{number} backends: connect, open a session, lock", "s", [seconds])
    result.add_series(f"{number} backends: private memory of all", "MB", [memory])
    result.check("P9", f"of {number} backends hold their locks at once", working,
                 "at least", number)
