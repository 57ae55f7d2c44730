"""The speed of this version against an earlier one (P11, P12, and the loads of other parts).

Both are on servers of their own, at one ensemble, and take turns.
"""

import time
from statistics import median

from lib.threads import of_process, since
from parts.cpu import PAIRS
from parts.p7 import HOLD, thousand

# The load, its clients, and the lines of its script. The rate may be a tenth lower, which is what two
# runs of one version differ.
LOADS = [
    ("P1: one client, own lock", 1, "SELECT zk_lock('own'), zk_unlock('own');"),
    ("P2: 8 clients, own locks", 8,
     "SELECT zk_lock('own' || :client_id), zk_unlock('own' || :client_id);"),
    ("P3: 8 clients, one lock", 8, "SELECT zk_lock('one'), zk_unlock('one');"),
    ("P7: re-entrant lock and unlock, a thousand in a statement", 1,
     *HOLD, thousand(("zk_lock('held')", "zk_unlock('held')"))),
    ("P8: a transaction with a commit check", 1, "SELECT zk_xact_lock('own');"),
]


def measure(bench):
    result = bench.result("earlier", "This version against commit 9ef2377")
    servers = {"zklock": bench.a, "9ef2377": bench.earlier}
    for number, (what, clients, *lines) in enumerate(LOADS):
        script = bench.script(f"earlier{number}", *lines)
        rates = bench.interleave({
            name: lambda server=server: server.pgbench(
                script, clients, bench.seconds, variables=["held=false"])
            for name, server in servers.items()})
        result.add_all("transactions/s", {f"{what}: {name}": rounds
                                          for name, rounds in rates.items()})
        result.check_ratio("earlier", f"rate, {what}", rates["zklock"], rates["9ef2377"],
                           "at least", 0.9)
    times = bench.interleave({name: lambda server=server: processor_time(bench, server)
                              for name, server in servers.items()})
    result.add_all("us", {f"processor time of lock and unlock: {name}": rounds
                          for name, rounds in times.items()})
    result.check_ratio("P11", "processor time of lock and unlock, all threads, against 9ef2377",
                       times["zklock"], times["9ef2377"], "at most", 0.65)
    firsts = bench.interleave({name: lambda server=server: first_lock(bench, server)
                               for name, server in servers.items()})
    result.add_all("ms", {f"first lock in a new backend: {name}": rounds
                          for name, rounds in firsts.items()})
    result.check_ratio("P12", "first lock in a new backend, session included, against 9ef2377",
                       firsts["zklock"], firsts["9ef2377"], "at most", 0.7)
    return result


def processor_time(bench, server):
    """Returns microseconds for each pair."""
    connection = server.connect()
    number = bench.size(2000, 50)
    with connection.cursor() as cursor:
        cursor.execute(PAIRS, (50,))
        before = of_process(connection.info.backend_pid)
        cursor.execute(PAIRS, (number,))
        used = since(before, connection.info.backend_pid)
    connection.close()
    return sum(counts["time"] for counts in used.values()) / number


def first_lock(bench, server):
    """Returns milliseconds."""
    times = []
    for _ in range(bench.size(20, 2)):
        connection = server.connect()
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
            start = time.monotonic()
            cursor.execute("SELECT zk_lock('first')")
            times.append((time.monotonic() - start) * 1000)
        connection.close()
        bench.zk.settle()
    return median(times)
