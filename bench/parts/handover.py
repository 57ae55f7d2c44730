"""Growth: the time from one holder to the next, by how many wait.

All take turns at one lock without a pause, so that at any moment all but one
wait; the time of a hand-over is the time measured, divided by the turns taken
in it. Backends loop by themselves, and no client has a part in it.
"""

import time

from lib.sessions import Sessions, create_turns

# PostgreSQL's search for deadlocks, which each wait makes when it has become
# that long, is measured apart: see crowd().
PATIENT = "-c deadlock_timeout=5min"
ZKLOCK = ("zk_turns", "zk_lock('turns')", "zk_unlock('turns')")
ADVISORY = ("advisory_turns", "pg_advisory_lock(1)", "pg_advisory_unlock(1)")
HOLD = 3        # seconds


def lead(waiters):
    """Seconds until all stand in the queue."""
    return 1 + waiters / 200


def turns(bench, servers, kind, waiters):
    """Milliseconds for each."""
    for server in servers:
        create_turns(server, *kind)
    with Sessions(servers, waiters + 1, options=PATIENT) as sessions:
        if kind is ZKLOCK:
            sessions.open()
        return 1000 / sessions.turns(kind[0], lead(waiters), bench.seconds)


def one_server(bench, waiters):
    return turns(bench, [bench.a], ZKLOCK, waiters)


def three_servers(bench, waiters):
    return turns(bench, [bench.a, bench.b, bench.c], ZKLOCK, waiters)


def advisory(bench, waiters):
    return turns(bench, [bench.a], ADVISORY, waiters)


def other(peer, kind, waiters, seconds):
    return 1000 / peer.rate(kind, waiters + 1, "turns", seconds, lead(waiters))


def measure(bench):
    result = bench.result("handover", "Growth: hand-over by the number of waiters")
    curves = {}
    for size in bench.size([10, 100, 1000], [3, 10]):
        c, curator = bench.peers.c, bench.peers.curator
        # A turn of the herd takes a second when a thousand wait.
        patience = bench.seconds * max(1, size // 100)
        numbers = bench.interleave({
            "zklock, one server": lambda: one_server(bench, size),
            "zklock, three servers": lambda: three_servers(bench, size),
            "Curator": lambda: other(curator, "mutex", size, bench.seconds),
            "C client, textbook": lambda: other(c, "textbook", size, patience),
            "pg_advisory_lock, one server": lambda: advisory(bench, size),
        }, warm=False)
        for name, rounds in numbers.items():
            curves.setdefault(name, {})[size] = rounds
    result.add_plot("handover", "From one holder to the next",
                    ("waiters", "milliseconds"), WHY)
    for name, curve in curves.items():
        result.add_curve(name, curve)
    add_crowds(bench, result)
    return result


def add_crowds(bench, result):
    """A crowd behind one that holds for long, with deadlock_timeout as it comes."""
    sizes = bench.size([100, 300, 1000], [3, 10])
    result.add_plot("crowd", f"A crowd behind one who holds for {HOLD} s: until all had"
                    " their turn", ("waiters", "seconds"), WHY_CROWD)
    for name, kind in (("zklock", ZKLOCK), ("pg_advisory_lock", ADVISORY)):
        result.add_curve(name, {size: [crowd(bench, kind, size)] for size in sizes})


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


WHY = "To be written."
WHY_CROWD = "To be written."
