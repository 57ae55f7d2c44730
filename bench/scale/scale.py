#!/usr/bin/python3
"""Sessions without SQL: the cost of many sessions for an ensemble of three servers, and
the time until all their locks work again after the leader is killed.

Owns: the order of the measurements, and the numbers of the servers' processes. sessions.c
has the sessions, ensemble.pl the servers. bench/parts/scale.sh starts this program with the
directory for scale.json, the number of rounds, and "quick" or nothing.
"""

import os
import platform
import re
import subprocess
import sys
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

# pylint: disable=wrong-import-position
from lib.peers import Peer                                      # noqa: E402
from lib.results import Result                                  # noqa: E402

HERE = os.path.dirname(os.path.abspath(__file__))
TICKS = os.sysconf("SC_CLK_TCK")
TIMEOUT_MS = 20000
BUSY = 8            # sessions that lock and unlock


class Ensemble:
    """The three servers."""

    def __init__(self):
        self.process = subprocess.Popen(
            ["perl", f"{HERE}/ensemble.pl"], stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, text=True)
        self.connect_string = self.process.stdout.readline().strip()
        if not self.connect_string:
            raise RuntimeError("the ensemble did not start")

    def ask(self, order):
        self.process.stdin.write(order + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline().strip()
        if not answer:
            raise RuntimeError(f"{order}: the ensemble ended")
        return answer

    def pids(self):
        return [int(pid) for pid in self.ask("pids").split()]

    def processor_time(self):
        """Returns milliseconds of all servers."""
        return sum(processor_time(pid) for pid in self.pids())

    def heap(self):
        """Returns kilobytes in use after a garbage collection, in all servers."""
        return sum(heap(pid) for pid in self.pids())

    def end(self):
        self.process.stdin.close()
        self.process.wait(30)


def processor_time(pid):
    with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
        fields = file.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) * 1000 / TICKS


def heap(pid):
    subprocess.run(["jcmd", str(pid), "GC.run"], check=True, stdout=subprocess.DEVNULL)
    info = subprocess.run(["jcmd", str(pid), "GC.heap_info"], check=True, text=True,
                          stdout=subprocess.PIPE).stdout
    return sum(int(used) for used in re.findall(
        r"(?:generation|heap)\s+total \d+K, used (\d+)K", info))


def memory(pid):
    """Returns kilobytes of private memory."""
    with open(f"/proc/{pid}/smaps_rollup", encoding="utf-8") as file:
        return sum(int(kb) for kb in re.findall(r"^Private_\w+:\s+(\d+)", file.read(),
                                                re.MULTILINE))


class Scale:
    """One measurement."""

    def __init__(self, rounds, quick):
        self.rounds = 1 if quick else rounds
        self.sizes = [5, 10] if quick else [100, 500, 2000]
        self.seconds = 1 if quick else 20
        self.busy_seconds = 1 if quick else 5
        self.ensemble = Ensemble()
        self.peer = Peer([os.environ["BENCH_SESSIONS"], self.ensemble.connect_string,
                          str(TIMEOUT_MS)])
        self.curves = {}

    def note(self, name, size, value):
        self.curves.setdefault(name, {}).setdefault(size, []).append(value)

    def idle(self, size):
        """Measures the cost of each session, with this many sessions that each hold a lock."""
        before = self.ensemble.heap(), memory(self.peer.process.pid)
        self.peer.order("open", size)
        self.peer.order("hold")
        time.sleep(min(self.seconds, 3))        # the watch on each lock is set
        after = self.ensemble.heap(), memory(self.peer.process.pid)
        self.note("heap of all servers", size, (after[0] - before[0]) / size)
        self.note("memory of the client", size, (after[1] - before[1]) / size)
        start, own = self.ensemble.processor_time(), processor_time(self.peer.process.pid)
        time.sleep(self.seconds)
        per_minute = 60 / self.seconds / size
        self.note("all servers", size, (self.ensemble.processor_time() - start) * per_minute)
        self.note("the client", size,
                  (processor_time(self.peer.process.pid) - own) * per_minute)

    def rate(self, size):
        clients = min(BUSY, size)
        count, = self.peer.order("rate", clients, self.busy_seconds)
        self.note("locks", size, count / self.busy_seconds)

    def storm(self, size):
        first, half, last, lost, busiest = self.peer.order("storm", self.ensemble.ask("leader"))
        for name, value in (("the first lock", first), ("half of the locks", half),
                            ("all locks", last)):
            self.note(name, size, value / 1000)
        self.note("lost sessions", size, lost)
        self.note("busiest", size, busiest / size)
        self.ensemble.ask("restart")

    def run(self):
        for _ in range(self.rounds):
            for size in self.sizes:
                self.idle(size)
                self.rate(size)
                self.storm(size)
                print(size, {name: curve[size][-1] for name, curve in self.curves.items()},
                      flush=True)
                self.peer.order("close")
        return self.result()

    def result(self):
        result = Result("scale", "Scale: many sessions, without SQL, on three servers")
        self.plot(result, "Memory of an idle session that holds a lock",
                  "KB for each", WHY_MEMORY, "heap of all servers", "memory of the client")
        self.plot(result, "Processor time of an idle session that holds a lock",
                  "milliseconds for each and minute", WHY_IDLE, "all servers", "the client")
        self.plot(result, f"{BUSY} sessions lock and unlock beside idle ones",
                  "locks a second", WHY_RATE, "locks")
        self.plot(result, "The leader is killed: until locks are confirmed",
                  "seconds", WHY_STORM, "the first lock", "half of the locks", "all locks")
        for size, lost in self.curves["lost sessions"].items():
            result.add_series(f"{size} sessions, the leader is killed: sessions lost",
                              "sessions", lost)
        for size, share in self.curves["busiest"].items():
            result.add_series(f"{size} sessions, the leader is killed: connections tried in the"
                              " busiest tenth of a second", "of the sessions", share)
        largest = max(self.sizes)
        result.check("P17", f"the same, {largest} sessions",
                     max(self.curves["busiest"][largest]), "at most", 0.2)
        result.check("P17", f"sessions lost, {largest} sessions",
                     max(self.curves["lost sessions"][largest]), "at most", 0)
        return result

    def plot(self, result, title, unit, why, *curves):
        result.add_plot(title, ("sessions", unit), why)
        for curve in curves:
            result.add_curve(curve, self.curves[curve])

    def end(self):
        self.peer.end()
        self.ensemble.end()


WHY_MEMORY = (
    "Each server keeps the session, its lock's znode and a watch; one of them also keeps"
    " the connection. The client's part is what one backend pays: a thread, the library's"
    " buffers, and five descriptors.")
WHY_IDLE = "An idle session sends a heartbeat every third of its timeout, here 6.7 seconds."
WHY_RATE = "Idle sessions are hardly noticed by those that work."
WHY_STORM = (
    "The servers choose a new leader first; then all sessions reconnect to two servers,"
    " set their watches again, and each confirms its lock by a quorum write.")


def machine():
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        model = re.search(r"^model name\s*: (.*)$", file.read(), re.MULTILINE)
    version = subprocess.run(["dpkg-query", "-W", "-f", "${Version}", "libzookeeper-java"],
                             check=False, text=True, stdout=subprocess.PIPE).stdout
    return {"processor": model[1] if model else "unknown", "cores": os.cpu_count(),
            "system": platform.release(), "libzookeeper-java": version,
            "load before": os.environ.get("BENCH_LOAD", "unknown"),
            "commit": os.environ.get("BENCH_COMMIT", "")}


def main():
    where, rounds, quick = sys.argv[1], int(sys.argv[2]), sys.argv[3:] == ["quick"]
    start = time.monotonic()
    scale = Scale(rounds, quick)
    try:
        result = scale.run()
    finally:
        scale.end()
    result.write(os.path.join(where, "scale.json"), quick=quick, machine=machine(),
                 seconds=round(time.monotonic() - start, 1))
    print(result.text(), flush=True)


if __name__ == "__main__":
    main()
