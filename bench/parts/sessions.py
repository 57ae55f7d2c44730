"""Growth: the cost of 10, 100 and 500 sessions."""

import time
from statistics import mean

from lib.memory import of_process
from lib.sessions import Sessions


def measure(bench):
    result = bench.result("sessions", "Growth: the cost of sessions")
    sizes = bench.size([10, 100, 500], [3, 6])
    script = bench.script("busy", "SELECT zk_lock('busy'), zk_unlock('busy');")
    opening, memory, busy = {}, {}, {}
    for _ in range(bench.rounds):
        for size in sizes:
            bench.zk.settle()
            with Sessions([bench.a], size) as sessions:
                start = time.monotonic()
                sessions.open()
                opening.setdefault(size, []).append(
                    (time.monotonic() - start) * 1000 / size)
                memory.setdefault(size, []).append(mean(
                    of_process(connection.info.backend_pid)["private"]
                    for connection in sessions.connections))
                busy.setdefault(size, []).append(
                    1000 / bench.a.pgbench(script, 1, bench.seconds))
    for title, unit, why, curve in (
            ("Opening sessions, all at once", "milliseconds for each",
             WHY_OPEN, opening),
            ("Private memory of a backend with a session", "MB",
             WHY_MEMORY, memory),
            ("Lock and unlock of one client beside idle sessions",
             "milliseconds", WHY_BUSY, busy)):
        result.add_plot(title, ("sessions", unit), why)
        result.add_curve("zklock", curve)
    return result


WHY_OPEN = (
    "Each backend opens a session of its own, fifty at a time here: what a session"
    " costs is the processor's work for two processes, a thread and a connection,"
    " so the time for each does not grow with their number.")
WHY_MEMORY = (
    "Sessions share nothing; each has the client"
    " library's buffers and the stack of its I/O thread.")
WHY_BUSY = (
    "An idle session sends a ping every few seconds and watches nothing, so it is"
    " hardly noticed by one that works.")
