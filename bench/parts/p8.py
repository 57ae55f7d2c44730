"""P8: the check at commit, in a short transaction.

One client alternates between the settings, transaction by transaction, so a disturbance
affects all settings.
"""

import re

BOTH_MODES = True
TRANSACTION = ["BEGIN;", "SELECT zk_xact_lock('row');",
               "UPDATE bench_rows SET n = n + 1 WHERE id = 1;", "COMMIT;"]
VALUES = ["lease", "off", "always"]


def measure(bench):
    result = bench.result("P8", "A short transaction with a lock, by zklock.commit_check")
    bench.a.query("CREATE TABLE IF NOT EXISTS bench_rows (id int PRIMARY KEY, n int);"
                  " INSERT INTO bench_rows VALUES (1, 0) ON CONFLICT DO NOTHING")
    first, *others = [bench.script(f"p8_{value}", f"SET zklock.commit_check = {value};",
                                   *TRANSACTION) for value in VALUES]
    options = ["-r"] + [word for script in others for word in ("-f", script)]

    def run():
        return latencies(bench.a.start_pgbench(
            first, 1, bench.size(8, 1), options=options).finish().output)

    rounds = [run() for _ in range(1 if bench.quick else bench.rounds + 1)]
    rounds = rounds[1:] or rounds   # the first one warms caches
    numbers = {value: [times[i] for times in rounds] for i, value in enumerate(VALUES)}
    result.add_all("ms", numbers)
    result.check_ratio("P8", "time with lease, against off",
                       numbers["lease"], numbers["off"], "at most", 1.02)
    return result


def latencies(output):
    """Returns milliseconds of the transaction, without SET, for each script."""
    scripts = output.split("SQL script ")[1:]
    return [sum(float(time) for time, command in re.findall(
        r"^ +([0-9.]+) +\d+ +(\w+)", script, re.MULTILINE) if command != "SET")
        for script in scripts]
