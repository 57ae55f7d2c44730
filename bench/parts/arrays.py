"""Growth: text[] of 1 to 500 names."""

SQL = "SELECT zk_lock_many(names), zk_unlock_many(names) FROM {};"


def pair_rates(bench, size, warm=True):
    """Returns the rates of calls that lock and unlock this many names, of all rounds."""
    table = f"bench_names{size}"
    bench.a.query(
        f"CREATE TABLE IF NOT EXISTS {table} AS SELECT array_agg('stock' || i) AS names"
        f" FROM generate_series(1, {size}) i")
    script = bench.script(table, SQL.format(table))
    return bench.interleave({
        "zklock": lambda: bench.a.pgbench(script, 1, bench.seconds),
        # Enough calls, even if one takes half a second.
        "Curator InterProcessMultiLock": lambda: bench.peers.curator.rate(
            f"multi{size}", 1, "own", bench.seconds * bench.by_sync(off=max(1, size // 100), on=4)),
    }, warm=warm)


def measure(bench):
    result = bench.result("arrays", "Growth: many names in one call")
    curves = {}
    for size in bench.size([1, 10, 100, 500], [1, 5]):
        for name, rates in pair_rates(bench, size, warm=size == 1).items():
            curves.setdefault(name, {})[size] = [1000 / rate for rate in rates]
    result.add_plot(
        "Locking and unlocking many names at once",
        ("names", "milliseconds"),
        "zklock sends one multi that creates all nodes, a read for their token, and one"
        " multi that deletes them (and lists where others came between), so that a name"
        " costs what the server works for it and no round trip; InterProcessMultiLock"
        " takes and releases one lock after another.")
    for name, curve in curves.items():
        result.add_curve(name, curve)
    return result
