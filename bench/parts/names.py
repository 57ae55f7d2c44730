"""Growth: lock time by the number of lock names below the root."""

LOCKS = "/zklock/locks"
USED = 10       # of them, far from each other


def measure(bench):
    result = bench.result("names", "Growth: lock time by the number of names")
    bench.a.query("SELECT zk_lock('name0'), zk_unlock('name0')")
    curves = {}
    there = 0
    for size in bench.size([10, 1000, 100000], [10, 100]):
        bench.peers.c.order("fill", LOCKS, there, size)
        there = size
        script = bench.script(
            f"names{size}", f"\\set i random(0, {USED - 1}) * {size // USED}",
            "SELECT zk_lock('name' || :i), zk_unlock('name' || :i);")
        numbers = bench.interleave({
            "zklock, ten of the names": lambda: bench.a.pgbench(script, 1, bench.seconds),
            "C client, textbook, one name": lambda: bench.peers.c.rate(
                "textbook", 1, "own", bench.seconds),
        }, warm=False)
        for name, rates in numbers.items():
            curves.setdefault(name, {})[size] = [1000 / rate for rate in rates]
    result.add_plot("names", "One client's lock and unlock", ("names", "milliseconds"), WHY)
    for name, curve in curves.items():
        result.add_curve(name, curve)
    return result


WHY = (
    "A lock is looked for by its path, which the server has in a hash table, and only"
    " its own znode's children are listed: other names play no part.")
