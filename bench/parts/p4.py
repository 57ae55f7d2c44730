"""P4: clients of three servers, one lock."""

from parts.p3 import SQL

BOTH_MODES = True


def measure(bench):
    result = bench.result("P4", "Clients of three servers, one lock: lock and unlock")
    script = bench.script("p4", SQL)
    c, curator = bench.peers.c, bench.peers.curator
    servers = [bench.a, bench.b, bench.c]
    for clients in bench.size([3, 24], [3]):
        def ours(each=clients // len(servers)):
            running = [server.start_pgbench(script, each, bench.seconds)
                       for server in servers]
            return sum(run.finish().rate for run in running)

        numbers = bench.interleave({
            "zklock": ours,
            "Curator": lambda: curator.rate("mutex", clients, "one", bench.seconds),
            "C client, the same recipe": lambda: c.rate(
                "queue", clients, "one", bench.seconds),
        }, {
            "Curator, one session": lambda: curator.rate(
                "shared", clients, "one", bench.seconds),
        })
        result.add_all("pairs/s", {
            f"{name}, {clients} clients": rounds for name, rounds in numbers.items()})
        # Times are the inverse of rates.
        result.check_ratio(
            "P4", f"time with {clients} clients, against the same recipe in C without SQL",
            numbers["C client, the same recipe"], numbers["zklock"], "at most", 1.05)
        result.note_ratio(
            f"With {clients} clients zklock has {{}} times Curator's rate.",
            numbers["zklock"], numbers["Curator"])
    return result
