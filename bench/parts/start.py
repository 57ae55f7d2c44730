"""The cost of a backend's first lock, and of its end."""

import os
import time
from statistics import median

from lib.memory import of_process

BOTH_MODES = True
FIRST = "SELECT extract(epoch FROM clock_timestamp()), zk_lock(%s)," \
    " extract(epoch FROM clock_timestamp())"
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
        started, _, got = backend.run("first lock", FIRST, "start")
        backend.cursor.execute(CONNECTED)
        connected = backend.cursor.fetchone()[0]
        backend.note("first lock: until the session is there", float(connected - started))
        backend.note("first lock: from then on", float(got - connected))
        memory.setdefault("first lock", []).append(backend.memory() - before)
        backend.run("second lock, of a name that has no znode yet", FIRST, f"new{number}")
        backend.run("third lock", FIRST, "known")
        backend.cursor.execute("SELECT zk_unlock_all()")


def without_session(bench, times):
    with Backend(bench.plain, times, "zklock not preloaded"):
        pass


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
        for name, numbers in times.items():
            rounds.setdefault(name, []).append(median(numbers))
        for name, numbers in memory.items():
            sizes.setdefault(name, []).append(median(numbers))
    result.add_all("ms", rounds)
    result.add_all("MB private memory", sizes)
    result.check("start", "end of a backend with a session, against one without, ms more",
                 median(with_it - without for with_it, without in zip(
                     rounds["end, with a ZooKeeper session"],
                     rounds["end, zklock not preloaded"])), "at most", 3)
    return result
