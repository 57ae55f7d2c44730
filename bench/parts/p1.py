"""P1: one client, a lock of its own."""

SQL = "SELECT zk_lock('own'), zk_unlock('own');"


def measure(bench):
    result = bench.result("P1", "One client, own lock: lock and unlock")
    script = bench.script("p1", SQL)
    two = bench.script("p1_two", "SELECT zk_lock('own');", "SELECT zk_unlock('own');")
    c, curator, kazoo = bench.peers.c, bench.peers.curator, bench.peers.kazoo
    numbers = bench.interleave({
        "zklock": lambda: bench.a.pgbench(script, 1, bench.seconds),
        "zklock, prepared statement": lambda: bench.a.pgbench(
            script, 1, bench.seconds, mode="prepared"),
        "zklock, two statements": lambda: bench.a.pgbench(two, 1, bench.seconds),
        "C client, create and delete": lambda: c.rate("sync", 1, "own", bench.seconds),
        "C client, textbook": lambda: c.rate("textbook", 1, "own", bench.seconds),
        "C client, in flight": lambda: c.rate("flight", 1, "own", bench.seconds),
        "C client, the least": lambda: c.rate("least", 1, "own", bench.seconds),
        "Curator": lambda: curator.rate("mutex", 1, "own", bench.seconds),
        "kazoo": lambda: kazoo.rate("lock", 1, "own", bench.seconds),
    })
    result.add_all("pairs/s", numbers)
    # Times are the inverse of rates.
    result.check_ratio(
        "P1", "time, against create and delete by the C client",
        numbers["C client, create and delete"], numbers["zklock"], "at most", 0.7)
    result.check_ratio(
        "P1", "rate, against Curator", numbers["zklock"], numbers["Curator"],
        "at least", 1.5)
    result.note_ratio(
        "The floor: a create that is waited for and a delete that is not, by the C client"
        " alone, is {} of the time of its create and delete. zklock sends the same two"
        " requests, and has the way from SQL text to result besides.",
        numbers["C client, create and delete"], numbers["C client, the least"])
    return result
