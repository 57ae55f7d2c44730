"""The faults of a run.

Owns: the schedule of faults, which derives from the seed, and its execution, one
fault after the other: strike, wait, repair. Two instances run in parallel: one
for servers and the connections between them, one for single backends. heal()
repairs everything.
"""

import os
import random
import signal
import threading

from history import now
from servers import Broken

SERVERS = (1, 2, 3)
END_BOUND = 30                  # seconds a terminated backend may take


class Nemesis(threading.Thread):
    """The base class: strikes until it is stopped."""

    def __init__(self, name, seed, history, run):
        super().__init__(name=name, daemon=True)
        self.random = random.Random(f"{seed}/{name}")
        self.history = history
        self.run_state = run
        self.ask = run.servers.ask
        self.error = None

    def run(self):
        try:
            while not self.run_state.calm.wait(self.pause()):
                self.strike()
        except Broken as error:
            self.error = error

    def note(self, what, start, **more):
        self.history.add(process="nemesis", op=what, start=start, end=now(),
                         outcome="ok", **more)

    def wait(self, shortest, longest):
        """Waits for some time, less if the run ends."""
        self.run_state.calm.wait(self.random.uniform(shortest, longest))


class ServerNemesis(Nemesis):
    """Kills, stops and isolates servers."""

    FAULTS = ("zk_crash", "zk_silence", "zk_leader_crash", "zk_leader_silence",
              "quorum_crash", "quorum_silence", "zk_restart", "isolate_host",
              "isolate_follower", "isolate_follower", "isolate_database",
              "cut_database", "pg_silence", "pg_silence", "pg_crash",
              "pg_restart", "everything")

    def pause(self):
        return self.random.uniform(0.5, 3)

    def strike(self):
        fault = self.random.choice(self.FAULTS)
        self.carry_out(fault, self.random.choice(SERVERS))

    def carry_out(self, fault, victim):
        start = now()
        self.note(fault, start, victim=victim, phase="strike")
        getattr(self, fault)(victim)
        self.note(fault, start, victim=victim, phase="repaired")

    def long(self):
        """Waits for less or more than the session timeout."""
        timeout = self.run_state.timeout
        self.wait(0.2 * timeout, 2.5 * timeout)

    def others(self, victim):
        return [server for server in SERVERS if server != victim]

    def leader(self):
        return int(self.ask("leader")) or self.random.choice(SERVERS)

    def follower(self):
        return self.random.choice(self.others(self.leader()))

    def zk_crash(self, victim):
        self.ask("zk_kill", victim)
        self.long()
        self.ask("zk_launch", victim)

    def zk_silence(self, victim):
        self.ask("zk_pause", victim)
        self.long()
        self.ask("zk_resume", victim)

    def zk_leader_crash(self, _):
        self.zk_crash(self.leader())

    def zk_leader_silence(self, _):
        self.zk_silence(self.leader())

    def quorum_crash(self, victim):
        for server in self.others(victim):
            self.ask("zk_kill", server)
        self.long()
        for server in self.others(victim):
            self.ask("zk_launch", server)

    def quorum_silence(self, victim):
        for server in self.others(victim):
            self.ask("zk_pause", server)
        self.long()
        for server in self.others(victim):
            self.ask("zk_resume", server)

    def zk_restart(self, _):
        for server in SERVERS:
            self.ask("zk_kill", server)
        for server in SERVERS:
            self.ask("zk_launch", server)

    def links(self, ways, verb, *options):
        for source, target in ways:
            self.ask("link", source, target, verb, *options)

    def quorum_ways(self, victim):
        return [] if self.run_state.direct else [way for other in self.others(victim)
                for way in ((f"zk{victim}", f"zk{other}"),
                            (f"zk{other}", f"zk{victim}"))]

    def client_ways(self, victim):
        return [(f"pg{victim}", f"zk{server}") for server in SERVERS]

    def silence(self, ways):
        self.links(ways, "freeze")
        self.long()
        self.links(ways, "thaw")

    def isolate_host(self, victim):
        """Cuts off a PostgreSQL and a ZooKeeper server from all others."""
        ways = self.quorum_ways(victim)
        for other in self.others(victim):
            ways += [(f"pg{victim}", f"zk{other}"),
                     (f"pg{other}", f"zk{victim}")]
        self.silence(ways)

    def isolate_follower(self, _):
        """Cuts off a follower from the ensemble, but not from its clients."""
        self.silence(self.quorum_ways(self.follower()))

    def isolate_database(self, victim):
        self.silence(self.client_ways(victim))

    def cut_database(self, victim):
        refuse = self.random.random() < 0.5
        self.links(self.client_ways(victim), "cut",
                   *(("refuse", 1) if refuse else ()))
        if refuse:
            self.long()
        self.links(self.client_ways(victim), "accept")

    def pg_silence(self, victim):
        self.ask("pg_pause", victim)
        self.long()
        self.ask("pg_resume", victim)

    def pg_crash(self, victim):
        self.ask("pg_kill", victim)
        self.wait(0, 1)
        self.ask("pg_start", victim)

    def pg_restart(self, victim):
        """Checks that a shutdown does not wait for an unreachable ensemble."""
        self.links(self.client_ways(victim), "freeze")
        try:
            self.ask("pg_stop", victim, "fast")
        except Broken as error:
            self.history.add(op="hung", value=[str(error)])
        self.links(self.client_ways(victim), "thaw")
        self.ask("pg_start", victim)

    def everything(self, _):
        for server in SERVERS:
            self.ask("zk_kill", server)
            self.ask("pg_kill", server)
        self.wait(0, self.run_state.timeout)
        for server in SERVERS:
            self.ask("zk_launch", server)
        for server in SERVERS:
            self.ask("pg_start", server)

    def heal(self):
        for server in SERVERS:
            self.ask("zk_launch", server)
            self.ask("zk_resume", server)
            self.ask("pg_resume", server)
            self.links(self.quorum_ways(server) + self.client_ways(server),
                       "thaw")
            self.links(self.client_ways(server), "accept")
        for server in SERVERS:
            self.ask("pg_start", server)
        self.ask("zk_ready")


class BackendNemesis(Nemesis):
    """Stops, cancels and ends single backends."""

    FAULTS = {"cancel": 5, "stop": 6, "terminate": 2, "kill": 0.3}

    def pause(self):
        return self.random.uniform(0.1, 1.5)

    def strike(self):
        fault = self.random.choices(list(self.FAULTS),
                                    self.FAULTS.values())[0]
        clients = self.run_state.clients
        self.hit(fault, self.random.choice(
            [c for c in clients if c.holds.names()] or clients))

    def hit(self, fault, client):
        start = now()
        pid = client.pid
        if client.connection is None or not self.is_backend(client, pid):
            return
        if fault == "cancel":
            os.kill(pid, signal.SIGINT)
        elif fault == "terminate":
            os.kill(pid, signal.SIGTERM)
            self.await_end(client, pid)
        elif fault == "kill":
            os.kill(pid, signal.SIGKILL)
        else:
            os.kill(pid, signal.SIGSTOP)
            timeout = self.run_state.timeout
            self.wait(0.1 * timeout, 1.8 * timeout)
            if self.is_backend(client, pid):
                os.kill(pid, signal.SIGCONT)
        self.note(f"backend_{fault}", start, victim=client.name)

    def await_end(self, client, pid):
        """Checks that a terminated backend ends within seconds; the backends of a
        stopped server get more time."""
        limit = now() + END_BOUND
        while self.is_backend(client, pid):
            if self.status(pid)[0] == "T":
                limit = now() + END_BOUND
            if now() > limit:
                self.history.add(op="hung", value=[
                    f"{client.name} (backend {pid}) did not end after SIGTERM"])
                return
            self.run_state.stop.wait(0.05)

    @staticmethod
    def status(pid):
        """Returns state and parent of a process, or two empty strings."""
        try:
            with open(f"/proc/{pid}/stat", encoding="ascii") as file:
                return file.read().rpartition(") ")[2].split()[:2]
        except OSError:
            return "", ""

    def is_backend(self, client, pid):
        """Is the process a child of the server's postmaster that has not ended?"""
        state, parent = self.status(pid)
        return state not in ("", "Z") and \
            int(parent) == self.run_state.servers.postmaster(client.server)
