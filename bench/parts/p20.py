"""P20: a fence in a short transaction.

One client alternates between the transactions, so a disturbance affects both. That a fence sends
no request is a test (test/t/resources/round_trips.pl).
"""

from parts.p8 import TRANSACTION, latencies

BOTH_MODES = True
FENCED = [*TRANSACTION[:2], "SELECT zk_fence('row');", *TRANSACTION[2:]]


def measure(bench):
    result = bench.result("P20", "A short transaction with a lock, without and with a fence")
    bench.a.query("CREATE TABLE IF NOT EXISTS bench_rows (id int PRIMARY KEY, n int);"
                  " INSERT INTO bench_rows VALUES (1, 0) ON CONFLICT DO NOTHING")
    plain, fenced = bench.script("p20", *TRANSACTION), bench.script("p20_fenced", *FENCED)
    rounds = [latencies(bench.a.start_pgbench(
        plain, 1, bench.size(8, 1), options=["-r", "-f", fenced]).finish().output)
        for _ in range(1 if bench.quick else bench.rounds + 1)]
    rounds = rounds[1:] or rounds   # the first one warms caches
    without, with_it = (list(times) for times in zip(*rounds))
    result.add_all("ms", {"without a fence": without, "with a fence": with_it})
    result.check_ratio("P20", "time with a fence, against without", with_it, without, "at most", 1.1)
    return result
