"""P12: the cost of a backend's first lock, and of its end."""

import os
import time
from statistics import median

from lib.memory import of_process

BOTH_MODES = True
LOCK = "SELECT zk_lock(%s)"
CONNECTED = "SELECT extract(epoch FROM connected_at) FROM zk_session()"


class Backend:
    """A new backend; a context, which measures the time of the backend's end."""

    def __init__(self, server, times, kind, **options):
        start = time.monotonic()
        self.connection = server.connect(**options)
        self.cursor = self.connection.cursor()
        self.cursor.execute("SELECT 1")
        self.times = times
        self.kind = kind
        self.note("connect", time.monotonic() - start)

    def note(self, what, seconds):
        self.times.setdefault(f"{what}, {self.kind}", []).append(seconds * 1000)

    def run(self, what, sql, *arguments):
        start = time.monotonic()
        self.cursor.execute(sql, arguments or None)
        self.note(what, time.monotonic() - start)
        return self.cursor.fetchone() if self.cursor.description else None

    def memory(self):
        return of_process(self.connection.info.backend_pid)["private"]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pid = self.connection.info.backend_pid
        start = time.monotonic()
        self.connection.close()
        while os.path.exists(f"/proc/{pid}"):
            time.sleep(0.0002)
        self.note("end", time.monotonic() - start)


def with_session(bench, times, memory, number):
    with Backend(bench.a, times, "zklock preloaded") as backend:
        before = backend.memory()
        backend.kind = "with a ZooKeeper session"
        started = time.time()
        backend.run("first lock", LOCK, "start")
        ended = time.time()
        backend.cursor.execute(CONNECTED)
        connected = float(backend.cursor.fetchone()[0])
        backend.note("first lock: until the session is there", connected - started)
        backend.note("first lock: from then on", ended - connected)
        memory.setdefault("first lock", []).append(backend.memory() - before)
        backend.run("second lock, of a name that has no znode yet", LOCK, f"new{number}")
        backend.run("third lock", LOCK, "known")
        backend.cursor.execute("SELECT zk_unlock_all()")


def without_session(bench, times):
    with Backend(bench.plain, times, "zklock not preloaded") as backend:
        backend.run("first pg_advisory_lock", "SELECT pg_advisory_lock(1)")


def measure(bench):
    result = bench.result("start", "A backend's first lock, and its end")
    for name in "start", "known":
        bench.a.query("SELECT zk_lock(%s), zk_unlock(%s)", name, name)
    rounds, sizes = {}, {}
    for turn in range(bench.rounds):
        times, memory = {}, {}
        for i in range(bench.size(20, 2)):
            with_session(bench, times, memory, f"{turn}.{i}")
            without_session(bench, times)
        peers, number = bench.peers, bench.size(20, 2)
        times["first lock of the C client, in a new process"] = [
            micros / 1000 for micros in peers.c_fresh.fresh_locks(number)]
        times["first lock of the C client, in a process that has opened sessions before"] = [
            micros / 1000 for micros in peers.c.first_locks(number)]
        for name, numbers in times.items():
            rounds.setdefault(name, []).append(median(numbers))
        for name, numbers in memory.items():
            sizes.setdefault(name, []).append(median(numbers))
    result.add_all("ms", rounds)
    result.add_all("MB private memory", sizes)
    result.check_ratio(
        "P12", "first lock of a backend, against a session and a create in C without SQL",
        rounds["first lock, with a ZooKeeper session"],
        rounds["first lock of the C client, in a new process"],
        "at most", 1.2)
    result.check("start", "end of a backend with a session, against one without, ms more",
                 median(with_it - without for with_it, without in zip(
                     rounds["end, with a ZooKeeper session"],
                     rounds["end, zklock not preloaded"])), "at most", 3)
    return result
