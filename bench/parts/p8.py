"""P8: the check at commit, in a short transaction."""

SCRIPT = ["BEGIN;", "SELECT zk_xact_lock('row');",
          "UPDATE bench_rows SET n = n + 1 WHERE id = 1;", "COMMIT;"]


def measure(bench):
    result = bench.result("P8", "A short transaction with a lock, by zklock.commit_check")
    bench.a.query("CREATE TABLE bench_rows (id int PRIMARY KEY, n int);"
                  " INSERT INTO bench_rows VALUES (1, 0)")
    script = bench.script("p8", *SCRIPT)
    numbers = bench.interleave({
        value: lambda value=value: bench.a.pgbench(
            script, 1, bench.size(2, 1), f"-c zklock.commit_check={value}")
        for value in ("lease", "off", "always")}, bench.rounds * bench.size(4, 1), warm=False)
    result.add_all("transactions/s", numbers)
    result.check_ratio("P8", "time with lease, against off",
                       numbers["off"], numbers["lease"], "at most", 1.05)
    return result
