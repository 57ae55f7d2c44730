"""P3: eight and 32 clients of one server, one lock."""

BOTH_MODES = True
SQL = "SELECT zk_lock('one'), zk_unlock('one');"


def measure(bench):
    result = bench.result("P3", "Clients of one server, one lock: lock and unlock")
    script = bench.script("p3", SQL)
    for clients in bench.size([8, 32], [4]):
        numbers = bench.interleave(*contestants(bench, script, clients))
        result.add_all("pairs/s", {
            f"{name}, {clients} clients": rounds for name, rounds in numbers.items()})
        # Times are the inverse of rates.
        result.check_ratio(
            "P3", f"time with {clients} clients, against the same recipe in C without SQL",
            numbers["C client, the same recipe"], numbers["zklock"], "at most", 1)
        result.note_ratio(
            f"With {clients} clients zklock has {{}} times Curator's rate.",
            numbers["zklock"], numbers["Curator"])
    return result


def contestants(bench, script, clients):
    """Returns the contestants, and those for comparison."""
    c, curator, kazoo = bench.peers.c, bench.peers.curator, bench.peers.kazoo
    return {
        "zklock": lambda: bench.a.pgbench(script, clients, bench.seconds),
        "Curator": lambda: curator.rate("mutex", clients, "one", bench.seconds),
        "C client, the same recipe": lambda: c.rate("queue", clients, "one", bench.seconds),
    }, {
        "Curator, one session": lambda: curator.rate(
            "shared", clients, "one", bench.seconds),
        "kazoo": lambda: kazoo.rate("lock", clients, "one", bench.seconds),
    }
