"""Growth: the time from one holder to the next, by how many wait.

All take turns at one lock without a pause, so that at any moment all but one
wait; the time of a hand-over is the time measured, divided by the turns taken
in it. Backends loop by themselves and no client has a part in it.
"""

from lib.sessions import TURNS, Sessions


def lead(waiters):
    """Seconds until all stand in the queue."""
    return 1 + waiters / 200


def milliseconds(rate):
    return 1000 / rate


def zklock(bench, servers, waiters):
    for server in servers:
        server.query(TURNS)
    with Sessions(servers, waiters + 1) as sessions:
        sessions.open()
        return milliseconds(sessions.turns("turns", lead(waiters), bench.seconds))


def one_server(bench, waiters):
    return zklock(bench, [bench.a], waiters)


def three_servers(bench, waiters):
    return zklock(bench, [bench.a, bench.b, bench.c], waiters)


def other(bench, peer, kind, waiters):
    rate = getattr(bench.peers, peer).rate(
        kind, waiters + 1, "turns", bench.seconds, lead(waiters))
    return milliseconds(rate)


def measure(bench):
    result = bench.result("handover", "Growth: hand-over by the number of waiters")
    curves = {}
    for size in bench.size([10, 100, 1000], [3, 10]):
        numbers = bench.interleave({
            "zklock, one server": lambda: one_server(bench, size),
            "zklock, three servers": lambda: three_servers(bench, size),
            "Curator": lambda: other(bench, "curator", "mutex", size),
            "C client, textbook": lambda: other(bench, "c", "textbook", size),
        }, warm=False)
        for name, rounds in numbers.items():
            curves.setdefault(name, {})[size] = rounds
    result.add_plot("handover", "From one holder to the next", ("waiters", "milliseconds"), WHY)
    for name, curve in curves.items():
        result.add_curve(name, curve)
    return result


WHY = "To be written."
