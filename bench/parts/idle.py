"""The cost of an idle session, and of a library that is not used."""

import os
import time

from lib.sessions import Sessions
from lib.threads import THREADS, of_process, since

SESSIONS = 10


def measure(bench):
    result = bench.result("idle", "What does nothing")
    seconds = bench.size(15, 4)
    for what, sql in (("an idle session", "SELECT zk_lock(%s), zk_unlock(%s)"),
                      ("one that holds a lock", "SELECT zk_lock(%s), %s")):
        idle(bench, result, what, sql, seconds)
    unused(bench, result)
    return result


def idle(bench, result, what, sql, seconds):
    """Measures per session and minute. The first two seconds, in which the watch of a
    held lock is set, do not count."""
    packets, sleeps = [], {thread: [] for thread in THREADS}
    with Sessions([bench.a], SESSIONS) as sessions:
        sessions.run(sql, lambda number: (f"idle{number}",) * 2)
        pids = [connection.info.backend_pid for connection in sessions.connections]
        time.sleep(2)
        for _ in range(bench.rounds):
            before = {pid: of_process(pid) for pid in pids}
            received = bench.zk.packets()
            time.sleep(seconds)
            scale = 60 / seconds / SESSIONS
            packets.append((bench.zk.packets() - received) * scale)
            more = [since(before[pid], pid) for pid in pids]
            for thread in THREADS:
                sleeps[thread].append(sum(one[thread]["sleeps"] for one in more) * scale)
    result.add_series(f"{what}: packets to the ensemble", "a minute", packets)
    for thread in THREADS:
        result.add_series(f"{what}: {thread} woken", "a minute", sleeps[thread])


def unused(bench, result):
    """Compares a backend with the library preloaded with a backend without it."""
    with Sessions([bench.a], 1) as ours, Sessions([bench.plain], 1) as plain:
        pids = [sessions.connections[0].info.backend_pid for sessions in (ours, plain)]
        for what, where in ("threads", "task"), ("open files and sockets", "fd"):
            mine, others = [len(os.listdir(f"/proc/{pid}/{where}")) for pid in pids]
            result.check("P10", f"{what} of a backend that uses no zk lock, more than"
                         " without the extension", mine - others, "at most", 0)
    (size,), = bench.a.query("SELECT coalesce(sum(allocated_size), 0)::bigint"
                             " FROM pg_shmem_allocations WHERE name = 'zklock'")
    result.check("P10", "shared memory of the extension, bytes", size, "at most", 4096)
