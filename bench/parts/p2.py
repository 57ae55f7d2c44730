"""P2: eight clients, each with a lock of its own."""

from statistics import median

from lib.results import per_second

BOTH_MODES = True
CLIENTS = 8
SQL = "SELECT zk_lock('own' || :client_id), zk_unlock('own' || :client_id);"


def measure(bench):
    result = bench.result("P2", "Eight clients, own locks: lock and unlock")
    script = bench.script("p2", SQL)
    curator, kazoo = bench.peers.curator, bench.peers.kazoo
    requests = {"zklock": [], "Curator": []}

    def count(name, run):
        """Records the number of requests at the ZooKeeper server for each lock."""
        before = bench.zk.packets()
        rate, locks = run()
        requests[name].append((bench.zk.packets() - before) / max(locks, 1))
        return rate

    def run_ours():
        run = bench.a.start_pgbench(script, CLIENTS, bench.seconds).finish()
        return run.rate, run.count

    def run_curator():
        locks = curator.count("mutex", CLIENTS, "own", bench.seconds)
        return per_second(locks, bench.seconds), locks

    numbers = bench.interleave({
        "zklock": lambda: count("zklock", run_ours),
        "Curator": lambda: count("Curator", run_curator),
        "C client, the least": lambda: bench.peers.c.rate(
            "least", CLIENTS, "own", bench.seconds),
    }, {
        "Curator, one session": lambda: curator.rate(
            "shared", CLIENTS, "own", bench.seconds),
        "kazoo": lambda: kazoo.rate("lock", CLIENTS, "own", bench.seconds),
    })
    result.add_all("pairs/s", numbers)
    for name, rounds in requests.items():
        result.add_series(f"{name}, requests", "per lock", rounds[-len(numbers[name]):])
    # Times are the inverse of rates.
    result.check_ratio("P2", "time, against the C client's own two requests",
                       numbers["C client, the least"], numbers["zklock"], "at most", 1)
    # The target is two; the start of eight sessions and their pings are counted as well.
    result.check("P2", "requests per lock", median(result.rounds("zklock, requests")),
                 "at most", 2.1)
    result.note_ratio(
        "zklock has {} times Curator's rate.", numbers["zklock"], numbers["Curator"])
    return result
