"""P1: one client, a lock of its own."""

BOTH_MODES = True
SQL = "SELECT zk_lock('own'), zk_unlock('own');"


def measure(bench):
    result = bench.result("P1", "One client, own lock: lock and unlock")
    script = bench.script("p1", SQL)
    c, curator, kazoo = bench.peers.c, bench.peers.curator, bench.peers.kazoo
    numbers = bench.interleave({
        "zklock": lambda: bench.a.pgbench(script, 1, bench.seconds),
        "C client, create and delete": lambda: c.rate("sync", 1, "own", bench.seconds),
        "C client, the least": lambda: c.rate("least", 1, "own", bench.seconds),
        "Curator": lambda: curator.rate("mutex", 1, "own", bench.seconds),
    }, {
        "zklock, prepared statement": lambda: bench.a.pgbench(
            script, 1, bench.seconds, mode="prepared"),
        "C client, textbook": lambda: c.rate("textbook", 1, "own", bench.seconds),
        "C client, in flight": lambda: c.rate("flight", 1, "own", bench.seconds),
        "kazoo": lambda: kazoo.rate("lock", 1, "own", bench.seconds),
    })
    result.add_all("pairs/s", numbers)
    # Times are the inverse of rates.
    result.check_ratio(
        "P1", "time, against the C client's own two requests",
        numbers["C client, the least"], numbers["zklock"], "at most", 1.05)
    result.note_ratio(
        "zklock has {} times Curator's rate.", numbers["zklock"], numbers["Curator"])
    result.note_ratio(
        "For comparison: zklock takes {} of the time of the C client's synchronous create"
        " and delete.", numbers["C client, create and delete"], numbers["zklock"])
    return result
