#!/usr/bin/python3
"""Instructions of the code paths, counted by callgrind.

Owns: the code paths. A count is the difference between 2n and n calls, divided by
n, so one-time costs of a statement are not included. Needs the servers that
bench/parts/instructions.sh has started.
"""

import os
import sys
import time

sys.dont_write_bytecode = True

# pylint: disable=wrong-import-position
from lib.bench import Bench                                     # noqa: E402
from lib.callgrind import MARK, of_process                          # noqa: E402
from lib.machine import describe, first, output, read           # noqa: E402

# Calls that fill caches, which are not counted.
WARM = 50


def rows(*calls):
    """Returns a statement with calls for each of n rows."""
    return ("SELECT " + ", ".join(f"count({call})" for call in calls)
            + " FROM generate_series(1, {n})")


def transactions(call):
    return f"DO $$ BEGIN FOR i IN 1..{{n}} LOOP PERFORM {call}; COMMIT; END LOOP; END $$"


class Way:
    """A code path: a statement that executes it n times, and a statement to run before."""

    def __init__(self, statement, setup="SELECT 1", n=500, server="a", watches=0):
        self.statement = statement
        self.setup = setup
        self.n = n
        self.server = server
        self.watches = watches      # which the setup causes, a second or two later

    def prepare(self, bench, cursor):
        """Runs the setup. Reading the nodes, to watch them, is not part of the calls."""
        bench.zk.settle()
        before = bench.zk.watches()
        cursor.execute(self.setup)
        while bench.zk.watches() < before + self.watches:
            time.sleep(0.1)

    def count(self, bench):
        """Returns the counts of the backend's own thread, for one call."""
        connection = getattr(bench, self.server).connect()
        with connection.cursor() as cursor:
            self.prepare(bench, cursor)
            for times in WARM, self.n, 2 * self.n:
                self.repeat(cursor, times)
                cursor.execute(MARK)
        pid = connection.info.backend_pid
        connection.close()
        _, once, twice, *_ = of_process(os.environ["BENCH_CALLGRIND"], pid)
        difference = twice - once
        return {"all": difference.all / self.n, "ours": difference.ours / self.n,
                "allocations": difference.allocations / self.n,
                "sleeps": difference.sleeps / self.n}

    def repeat(self, cursor, times):
        cursor.execute(self.statement.format(n=times))


class Statements(Way):
    """A code path with one statement for each execution."""

    def repeat(self, cursor, times):
        for _ in range(times):
            cursor.execute(self.statement)


HELD = "SELECT zk_lock('held')"
SEVERAL = HELD + "; SELECT zk_lock_many(array_agg('held' || i)) FROM generate_series(1, 300) i"
READY = "SELECT zk_lock('ready'), zk_unlock('ready')"

# These paths must not allocate more than the empty call.
REENTRANT = {
    "re-entrant zk_lock + zk_unlock": Way(rows("zk_lock('held')", "zk_unlock('held')"), HELD),
    "re-entrant zk_lock + zk_unlock beside 300 other locks": Way(
        rows("zk_lock('held')", "zk_unlock('held')"), SEVERAL, watches=301),
    "re-entrant zk_xact_lock": Way(rows("zk_xact_lock('held')"), HELD),
    "re-entrant zk_try_lock + zk_unlock": Way(
        rows("zk_try_lock('held')", "zk_unlock('held')"), HELD),
    "zk_lock_token": Way(rows("zk_lock_token('held')"), HELD),
}
EMPTY = "empty call"
LOCAL = {
    **REENTRANT,
    EMPTY: Way(rows("pg_backend_pid()")),
    "zk_try_lock against a local holder": Way(rows("zk_try_lock('theirs')"), READY),
    "pg_advisory_lock + pg_advisory_unlock": Way(
        rows("pg_advisory_lock(1)", "pg_advisory_unlock(1)")),
    "pg_advisory_xact_lock + COMMIT": Way(transactions("pg_advisory_xact_lock(1)")),
    "SELECT 1 where zklock is preloaded and not used": Statements("SELECT 1"),
    "SELECT 1 without zklock": Statements("SELECT 1", server="plain"),
}
NETWORK = {
    "zk_lock + zk_unlock": Way(rows("zk_lock('free')", "zk_unlock('free')"), READY),
    "zk_xact_lock + COMMIT": Way(transactions("zk_xact_lock('free')"), READY),
}
WAYS = {**LOCAL, **NETWORK}
KINDS = {"all": "instructions", "ours": "instructions", "allocations": "allocations",
         "sleeps": "sleeps"}
TITLES = {"all": "{}", "ours": "{}: of these zklock's own", "allocations": "{}: allocations",
          "sleeps": "{}: sleeps"}


def measure(bench):
    """Returns the counts by path and kind: one number for each round."""
    counts = {name: {kind: [] for kind in KINDS} for name in WAYS}
    holder = bench.a.connect()
    try:
        with holder.cursor() as cursor:
            cursor.execute("SELECT zk_lock('theirs')")
        for _ in range(bench.rounds):
            for name, way in WAYS.items():
                for kind, number in way.count(bench).items():
                    counts[name][kind].append(number)
    finally:
        holder.close()
    return counts


def machine(bench):
    """Returns the versions that the counts depend on, except the code's own."""
    flags = first(r"^flags\s*:(.*)$", read("/proc/cpuinfo")).split()
    return {**describe(bench),
            "vectors": " ".join(sorted({"avx2", "erms", "avx512f"} & set(flags))),
            "libc": output("dpkg-query", "-W", "-f", "${Version}", "libc6"),
            "compiler": output("gcc", "-dumpfullversion").strip(),
            "valgrind": output("valgrind", "--version").strip()}


def make_result(bench):
    result = bench.result("instructions", "Instructions of the backend, counted by callgrind")
    for name, kinds in measure(bench).items():
        for kind, rounds in kinds.items():
            if kind == "sleeps" and name not in NETWORK:
                continue
            result.add_series(TITLES[kind].format(name), KINDS[kind], rounds)
    return result


def main():
    where, rounds = sys.argv[1], int(sys.argv[2])
    bench = Bench(False, rounds, where)
    start = time.monotonic()
    result = make_result(bench)
    result.write(os.path.join(where, "instructions.json"), quick=False,
                 machine=machine(bench), seconds=round(time.monotonic() - start, 1))
    print(result.text(), flush=True)


if __name__ == "__main__":
    main()
