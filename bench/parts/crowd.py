"""Growth: a crowd of waiters behind a lock that is held for long, on one server.

deadlock_timeout has its default, so all waiters search for a deadlock.
"""

import time

from lib.sessions import Sessions
from parts.p6 import ADVISORY, ZKLOCK

HOLD = 3        # seconds


def measure(bench):
    result = bench.result("crowd", "Growth: a crowd behind one who holds for long")
    result.add_plot(
        f"Until all had their turn, after one had held for {HOLD} s",
        ("waiters", "seconds"), WHY)
    sizes = bench.size([100, 300, 1000], [3, 10])
    for name, kind in (("zklock", ZKLOCK), ("pg_advisory_lock", ADVISORY)):
        result.add_curve(name, {size: [crowd(bench, kind, size)] for size in sizes})
    return result


def crowd(bench, kind, waiters):
    _, lock, unlock = kind
    with Sessions([bench.a], waiters) as sessions, Sessions([bench.a], 1) as holder:
        if kind is ZKLOCK:
            sessions.open()
        holder.run(f"SELECT {lock}")
        cursors = sessions.start(f"SELECT {lock}, {unlock}")
        holder.run(f"SELECT {unlock} FROM pg_sleep({bench.size(HOLD, 0)})")
        start = time.monotonic()
        sessions.finish(cursors)
        return time.monotonic() - start


WHY = (
    "A backend that has waited for deadlock_timeout, a second, searches for a deadlock, and"
    " PostgreSQL's search steps from each waiter to all before him and keeps everybody"
    " else out of the lock table meanwhile: its cost grows with the cube of the queue,"
    " for each waiter, with pg_advisory_lock and with zklock alike. With hundreds of"
    " sessions at one lock, set deadlock_timeout to more than their longest wait.")
