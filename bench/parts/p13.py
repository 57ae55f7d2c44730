"""P13: deadlock detection with very many waiters.

The longest time with the session's mutex held is measured by a unit test, which runs
the recipe layer against a ZooKeeper in memory: test/unit/test_deadlock_cost.c. Real
backends show how long a cancel takes while all of them search for a deadlock.
"""

import os
import re
import subprocess
import time
from statistics import median

from lib.sessions import Sessions

STEP = re.compile(r"# (.*): one answer up to ([0-9.]+) ms, one call up to ([0-9.]+) ms")
CHECKED = "behind 1000 sharers", "behind 800 waiters for a permit"
ACQUIRE = "SELECT zk_acquire('many', 1)"
LOOKING = 3     # seconds; deadlock_timeout is one
CANCELLED = 5


def measure(bench):
    result = bench.result("P13", "Deadlock detection with very many waiters")
    answers, calls = {}, {}
    for _ in range(bench.rounds):
        for name, answer, call in steps():
            answers.setdefault(name, []).append(answer)
            calls.setdefault(name, []).append(call)
    for name, rounds in answers.items():
        result.add_series(f"{name}: the longest step with the mutex held", "ms", rounds)
        result.add_series(f"{name}: the longest step of the backend", "ms", calls[name])
    for name in CHECKED:
        result.check("P13", f"{name}: the longest step with the mutex held, ms",
                     median(answers[name]), "at most", 10)
    cancel(bench, result, bench.size(800, 8))
    return result


def steps():
    """Returns the longest steps by name, in milliseconds of processor time."""
    output = subprocess.run(
        [os.path.join(os.environ["BENCH_PEERS"], "plain", "test_deadlock_cost")],
        check=True, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT).stdout
    return [(name, float(answer), float(call))
            for name, answer, call in STEP.findall(output)]


def cancel(bench, result, waiters):
    """Cancels some of the waiters, one after the other."""
    with Sessions([bench.a], 1) as holder, Sessions([bench.a], waiters) as sessions:
        holder.run(ACQUIRE)
        sessions.open()
        cursors = sessions.start(ACQUIRE)
        time.sleep(bench.size(LOOKING, 1))
        seconds = [cancelled(bench, cursor) for cursor in cursors[-CANCELLED:]]
    result.add_series(f"{waiters} waiters for a permit: until a cancel ends one", "s", seconds)
    result.check("P13", "a cancel ends a wait, seconds", max(seconds), "at most", 1)


def cancelled(bench, cursor):
    start = time.monotonic()
    bench.a.query("SELECT pg_cancel_backend(%s)", cursor.connection.info.backend_pid)
    try:
        Sessions.wait([cursor.connection])
    except Exception as error:          # pylint: disable=broad-except
        if getattr(error, "pgcode", None) != "57014":
            raise
    else:
        raise RuntimeError("the wait ended before it was cancelled")
    return time.monotonic() - start
