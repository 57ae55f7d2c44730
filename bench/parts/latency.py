"""The time of lock and unlock of one client with a lock of its own: p50 and p99."""

import glob
import statistics
import tempfile

BOTH_MODES = True
SECONDS = 8
SQL = "SELECT zk_lock('latency'), zk_unlock('latency');"


def measure(bench):
    result = bench.result("latency", "One client, own lock: time of lock and unlock")
    script = bench.script("latency", SQL)
    c, curator, kazoo = bench.peers.c, bench.peers.curator, bench.peers.kazoo
    seconds = bench.size(SECONDS, 1)
    numbers = bench.interleave({
        "zklock": lambda: quantiles(times(bench, script, seconds)),
        "C client, the least": lambda: quantiles(c.times("least", seconds)),
        "Curator": lambda: quantiles(curator.times("mutex", seconds)),
        "kazoo": lambda: quantiles(kazoo.times("lock", seconds)),
    })
    for name, rounds in numbers.items():
        middle, slow = zip(*rounds)
        result.add_series(f"{name}: p50", "ms", middle)
        result.add_series(f"{name}: p99", "ms", slow)
    for name in "C client, the least", "Curator", "kazoo":
        for quantile in "p50", "p99":
            result.note_ratio(
                f"{quantile}: zklock takes {{}} of the time of {name}.",
                result.rounds(f"zklock: {quantile}"), result.rounds(f"{name}: {quantile}"))
    return result


def quantiles(micros):
    """Returns the milliseconds of the 50th and the 99th of a hundred."""
    hundredths = statistics.quantiles(micros, n=100)
    return hundredths[49] / 1000, hundredths[98] / 1000


def times(bench, script, seconds):
    """Returns microseconds, from pgbench's log: see its manual for the columns."""
    with tempfile.TemporaryDirectory(dir=bench.directory) as where:
        bench.a.pgbench(script, 1, seconds, options=("--log", f"--log-prefix={where}/log"))
        path, = glob.glob(f"{where}/log.*")
        with open(path, encoding="ascii") as file:
            rows = [[int(cell) for cell in line.split()[:6]] for line in file]
    start = rows[0][4] + bench.a.warm_up
    return [row[2] for row in rows if row[4] > start or not bench.a.warm_up]
