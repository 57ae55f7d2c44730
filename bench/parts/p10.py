"""P10: a server that has the extension preloaded and uses no zk lock."""

import subprocess

SCALE = 5


def measure(bench):
    result = bench.result("P10", "pgbench -S with and without the extension preloaded")
    servers = {"preloaded": bench.a, "without": bench.plain}
    for server in servers.values():
        subprocess.run(
            ["pgbench", "-i", "-q", "-s", str(SCALE), "-h", server.directory,
             "-p", str(server.port), "-U", "postgres", "postgres"],
            check=True, stderr=subprocess.DEVNULL)
    script = bench.script(
        "p10", f"\\set aid random(1, {100000 * SCALE})",
        "SELECT abalance FROM pgbench_accounts WHERE aid = :aid;")
    numbers = bench.interleave({
        name: lambda server=server: server.pgbench(
            script, 4, bench.size(2, 1), mode="prepared")
        for name, server in servers.items()}, bench.rounds * bench.size(4, 1), warm=False)
    result.add_all("transactions/s", numbers)
    result.check_ratio("P10", "rate preloaded, against without",
                       numbers["preloaded"], numbers["without"], "at least", 0.98)
    return result
