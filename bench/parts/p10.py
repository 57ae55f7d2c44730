"""P10: a server with the extension preloaded that does not use it.

Both servers work at the same time and share the machine evenly, so a disturbance
affects both, and the rates show the cost of a query on each.
"""

import subprocess

SCALE = 5


def measure(bench):
    result = bench.result("P10", "pgbench -S with and without the extension preloaded")
    bench.peers.end()               # nothing else runs
    servers = {"preloaded": bench.a, "without": bench.plain}
    for server in servers.values():
        subprocess.run(
            ["pgbench", "-i", "-q", "-s", str(SCALE), "-h", server.directory,
             "-p", str(server.port), "-U", "postgres", "postgres"],
            check=True, stderr=subprocess.DEVNULL)
    script = bench.script(
        "p10", f"\\set aid random(1, {100000 * SCALE})",
        "SELECT abalance FROM pgbench_accounts WHERE aid = :aid;")
    numbers = {name: [] for name in servers}
    for turn in range(bench.rounds * bench.size(5, 1) + 1):
        names = list(servers) if turn % 2 else list(servers)[::-1]
        running = {name: servers[name].start_pgbench(
            script, 2, bench.size(2, 1), mode="prepared") for name in names}
        for name, run in running.items():
            rate = run.finish().rate
            if turn > 0:            # the first run warms caches
                numbers[name].append(rate)
    result.add_all("transactions/s", numbers)
    result.check_ratio("P10", "rate preloaded, against without",
                       numbers["preloaded"], numbers["without"], "at least", 0.99)
    return result
