"""P6, and growth: the time from one holder to the next, by the number of waiters.

All sessions acquire one lock in turn without a pause, so at any moment all except one
wait. The time of a hand-over is the measured time, divided by the number of
acquisitions. Backends loop by themselves, without a client.
"""

from lib.results import ratio
from lib.sessions import Sessions, create_turns

# crowd.py measures the deadlock search of long waits, so there is none here.
NO_SEARCH = "-c deadlock_timeout=5min"
ZKLOCK = ("zk_turns", "zk_lock('turns')", "zk_unlock('turns')")
ADVISORY = ("advisory_turns", "pg_advisory_lock(1)", "pg_advisory_unlock(1)")


def lead(waiters):
    """Returns the seconds until all sessions are in the queue."""
    return 1 + waiters / 200


def turns(bench, servers, kind, waiters):
    """Returns milliseconds for each acquisition."""
    for server in servers:
        create_turns(server, *kind)
    with Sessions(servers, waiters + 1, options=NO_SEARCH) as sessions:
        if kind is ZKLOCK:
            sessions.open()
        return 1000 / sessions.turns(kind[0], lead(waiters), bench.seconds)


def other(peer, kind, waiters, seconds):
    return 1000 / peer.rate(kind, waiters + 1, "turns", seconds, lead(waiters))


def contestants(bench, size):
    """Returns the contestants by name and size."""
    all_servers = [bench.a, bench.b, bench.c]
    c, curator = bench.peers.c, bench.peers.curator
    found = {
        ("zklock, one server", size): lambda: turns(bench, [bench.a], ZKLOCK, size),
        ("zklock, three servers", size): lambda: turns(
            bench, all_servers, ZKLOCK, size),
        ("pg_advisory_lock, one server", size): lambda: turns(
            bench, [bench.a], ADVISORY, size),
    }
    # A thousand clients that list the whole queue for each acquisition: Curator's take
    # minutes for a round, and the textbook's do not complete the first turn.
    if size <= 100:
        found["Curator", size] = lambda: other(curator, "mutex", size, bench.seconds)
        found["C client, textbook", size] = lambda: other(
            c, "textbook", size, bench.seconds)
    return found


def measure(bench):
    result = bench.result("P6", "Hand-over, by the number of waiters")
    sizes = bench.size([10, 100, 1000], [3, 10])
    everybody = {}
    for size in sizes:
        everybody.update(contestants(bench, size))
    numbers = bench.interleave(everybody, warm=False)
    result.add_plot("From one holder to the next",
                    ("waiters", "milliseconds"), WHY)
    for name in dict.fromkeys(name for name, _ in numbers):
        result.add_curve(name, {size: numbers[name, size] for size in sizes
                                if (name, size) in numbers})
    ours = "zklock, one server"
    own = "pg_advisory_lock, one server"
    result.check_ratio(
        "P6", f"time with {sizes[-1]:,} waiters, against {sizes[0]}; pg_advisory_lock's own"
        " ratio is the limit", numbers[ours, sizes[-1]], numbers[ours, sizes[0]],
        "at most", ratio(numbers[own, sizes[-1]], numbers[own, sizes[0]]))
    return result


WHY = (
    "On one server one backend is in the ensemble's queue and the others in"
    " PostgreSQL's, so the ensemble does the same work for each turn however many wait;"
    " what grows is that each backend comes to its turn with cold caches. On three"
    " servers the ensemble's queue has three entries. Curator has every waiter in the"
    " ensemble and lists all of them in each turn; with the textbook's recipe all waiters"
    " wake in each turn, and each lists all of them. pg_advisory_lock needs no ensemble.")
