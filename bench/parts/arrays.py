"""Growth: text[] of 1 to 500 names."""

SQL = """WITH names AS (SELECT array_agg('stock' || i) AS names FROM generate_series(1, {0}) i)
 SELECT zk_lock(names), zk_unlock(names) FROM names;"""


def measure(bench):
    result = bench.result("arrays", "Growth: many names in one call")
    sizes = bench.size([1, 10, 100, 500], [1, 5])
    ours, theirs = {}, {}
    for size in sizes:
        script = bench.script(f"array{size}", SQL.format(size).replace("\n", ""))
        numbers = bench.interleave({
            "zklock": lambda: bench.a.pgbench(script, 1, bench.seconds),
            "Curator": lambda: bench.peers.curator.rate(
                f"multi{size}", 1, "own", bench.seconds),
        })
        ours[size] = [1000 / rate for rate in numbers["zklock"]]
        theirs[size] = [1000 / rate for rate in numbers["Curator"]]
    result.add_plot(
        "arrays", "Locking and unlocking many names at once",
        ("names", "milliseconds"),
        "zklock sends one multi that creates all nodes, all lists behind it in the"
        " same flight, and one multi that deletes them, so that a name costs what the"
        " server works for it and no round trip; InterProcessMultiLock takes and"
        " releases one lock after another.")
    result.add_curve("zklock", ours)
    result.add_curve("Curator InterProcessMultiLock", theirs)
    return result
