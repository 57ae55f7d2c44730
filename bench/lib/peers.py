"""The programs that zklock is measured against.

Owns: their processes, and the protocol with them. A peer starts when it is first
needed and keeps its sessions open, so no round includes a start. A command is a
line of words, answered by "ok" and numbers.
"""

import contextlib
import os
import subprocess

from lib.results import per_second

HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


class Peer:
    """One program."""

    def __init__(self, command):
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def order(self, *words):
        self.process.stdin.write(" ".join(str(word) for word in words) + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline().split()
        if not answer or answer[0] != "ok":
            raise RuntimeError(f"{words}: {' '.join(answer) or 'the peer ended'}")
        return [float(number) for number in answer[1:]]

    def rate(self, kind, clients, where, seconds, lead=0):
        """Pairs per second; see count()."""
        return per_second(self.count(kind, clients, where, seconds, lead), seconds)

    def count(self, kind, clients, where, seconds, lead=0):
        """Returns how often this many clients lock and unlock. The first seconds, the
        lead, do not count. Where: "own", a lock for each client; "one", the same lock
        for all."""
        return self.order("run", kind, clients, where, lead, seconds)[0]

    def times(self, kind, seconds):
        """Returns the microseconds of each turn of one client with a lock of its own."""
        return self.order("times", kind, seconds)

    def first_locks(self, number):
        """Returns the microseconds that each of so many new sessions of the C client takes
        until it has a lock."""
        return self.order("first", number)

    def fresh_locks(self, number):
        """Returns the same of sessions that are the first of their process."""
        return self.order("fresh", number)

    def processor_time(self, kind, clients, where, seconds):
        """Returns microseconds for each pair, of all threads, as the C client reports."""
        count, micros = self.order("run", kind, clients, where, 0, seconds)
        return micros / max(count, 1)

    def end(self):
        with contextlib.suppress(BrokenPipeError):     # the peer has ended by itself
            self.process.stdin.close()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


class Peers:
    """All peers, by name: c, curator, kazoo; and c_fresh, which opens no sessions by itself."""

    def __init__(self, connect_string):
        built = os.environ["BENCH_PEERS"]
        class_path = f"{built}:{os.environ['BENCH_CLASS_PATH']}"
        self.commands = {
            "c": [f"{built}/c_client", connect_string],
            "c_fresh": [f"{built}/c_client", connect_string],
            "curator": ["java", "-Xmx1g", "-Xss256k",
                        "-Djava.net.preferIPv4Stack=true",
                        "-Dorg.slf4j.simpleLogger.defaultLogLevel=error",
                        "-cp", class_path, "CuratorClients", connect_string],
            "kazoo": ["/usr/bin/python3", f"{HERE}/peers/kazoo_clients.py",
                      connect_string],
        }
        self.running = {}

    def __getattr__(self, name):
        if name not in self.commands:
            raise AttributeError(name)
        if name not in self.running:
            self.running[name] = Peer(self.commands[name])
        return self.running[name]

    def end(self):
        while self.running:
            self.running.popitem()[1].end()
