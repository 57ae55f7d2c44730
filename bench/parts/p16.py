"""P16: when a lock is free after a crash.

From the first connection that the crashed server accepts until another server, which
waits for the lock, has it.
"""

import os
import signal
import subprocess
import threading
import time

import psycopg2

TIMEOUTS = "10s", "60s"     # the ensemble may grant less
LOCK = "SELECT zk_lock('crash')"


def measure(bench):
    result = bench.result("P16", "When a lock is free after a crash")
    for timeout in TIMEOUTS:
        for what, crash in CRASHES.items():
            seconds = [after_crash(bench, crash, timeout) for _ in range(bench.rounds)]
            result.add_series(f"{what}, session timeout {timeout}", "s", seconds)
            result.check("P16", f"{what}, session timeout {timeout}, s", max(seconds), "at most", 1)
    return result


def kill_backend(pid):
    os.kill(pid, signal.SIGKILL)


def kill_postmaster(pid):
    """Kills all processes of the server, and starts it again with the same arguments."""
    postmaster = parent(pid)
    with open(f"/proc/{postmaster}/cmdline", encoding="utf-8") as file:
        arguments = file.read().rstrip("\0").split("\0")
    directory = os.readlink(f"/proc/{postmaster}/cwd")
    children = [int(name) for name in os.listdir("/proc")
                if name.isdigit() and parent(name) == postmaster]
    for process in [postmaster, *children]:
        os.kill(process, signal.SIGKILL)
    while any(os.path.exists(f"/proc/{process}") for process in children):
        time.sleep(0.01)
    with subprocess.Popen(["pg_ctl", "-D", directory, "-l", f"{directory}.log", "-W", "-s", "-o",
                           " ".join(f"'{argument}'" for argument in arguments[1:]), "start"]):
        pass


CRASHES = {"kill -9 of a backend": kill_backend, "kill -9 of the postmaster": kill_postmaster}


def parent(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
            return int(file.read().rpartition(")")[2].split()[1])
    except FileNotFoundError:
        return None


def after_crash(bench, crash, timeout):
    options = f"-c zklock.session_timeout={timeout}"
    holder = bench.a.connect(options=options)
    with holder.cursor() as cursor:
        cursor.execute(LOCK)
    granted = []

    def wait():
        bench.b.query(LOCK)
        granted.append(time.monotonic())

    waiter = threading.Thread(target=wait)
    waiter.start()
    while bench.b.query("SELECT count(*) FROM zk_locks_of('crash')") != [(2,)]:
        time.sleep(0.05)
    crash(holder.info.backend_pid)
    accepted = first_connection(bench.a)
    waiter.join()
    return max(granted[0] - accepted, 0)


def first_connection(server):
    """Waits until the server has restarted."""
    while True:
        try:
            server.query("SELECT 1")
            return time.monotonic()
        except psycopg2.OperationalError:
            time.sleep(0.01)
