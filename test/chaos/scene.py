"""A run with a script, made for a chart: chart.py draws it.

Owns: which clients contend for which locks, and the order of the faults. The rest
is as in any run: the clients' statements become records, and the checker checks
them.
"""

import itertools
import threading

from nemesis import ServerNemesis
from servers import Broken
from workload import Client

NAMES = ["invoices", "stock"]
SEMAPHORES = {"api": 2}
SECONDS = 21
TIMEOUT = 3                     # of a session

# The locks and semaphores that each client uses, with their modes.
PARTS = {
    "a1": [("invoices", "x")],
    "a2": [("invoices", "x"), ("stock", "x")],
    "a3": [("stock", "s"), ("api", "p")],
    "b1": [("invoices", "x"), ("api", "p")],
    "b2": [("stock", "s")],
    "b3": [("stock", "s"), ("api", "p")],
    "c1": [("invoices", "x"), ("stock", "x")],
    "c2": [("api", "p")],
}


class Actor(Client):
    """Acquires the locks of its part forever, one in each transaction."""

    def __init__(self, name, server, seed, history, run):
        super().__init__(name, server, seed, history, run)
        self.part = itertools.cycle(PARTS[name])
        self.lock = threading.Lock()
        self.works = False          # in a transaction that holds a lock, before COMMIT
        self.kept_busy = False

    def limit(self):
        return 0

    def step(self):
        name, mode = next(self.part)
        for action in (
                self.begin,
                lambda: self.request([name], mode, "transaction", None),
                self.work, self.commit):
            outcome = action()
            if outcome != "ok":
                break
        if outcome == "fail":
            self.recover()
        self.pause(0.1, 0.9)

    def work(self):
        self.works = True
        outcome = self.write()
        self.pause(0.3, 1.5)
        while not self.stops_working():
            self.pause(0.05, 0.05)
        return outcome

    def stops_working(self):
        with self.lock:
            self.works = self.kept_busy and not self.run_state.stop.is_set()
            return not self.works

    def keep_busy(self):
        """Keeps the client from committing until kept_busy is reset; returns whether it works."""
        with self.lock:
            self.kept_busy = self.works
            return self.works

    def pause(self, shortest, longest):
        self.run_state.stop.wait(self.random.uniform(shortest, longest))


class Plot(ServerNemesis):
    """A few faults, each of which strikes the holder of the first lock."""

    FAULTS = ((3, "backend_terminate"), (2, "zk_leader_crash"),
              (2, "reset_database"), (2, "isolate_database"))

    def __init__(self, backends, seed, history, run):
        super().__init__("plot", seed, history, run)
        self.backends = backends

    def run(self):
        try:
            for pause, fault in self.FAULTS:
                self.run_state.calm.wait(pause)
                self.strike_holder(fault)
        except Broken as error:
            self.error = error

    def strike_holder(self, fault):
        victim = None
        while not victim and not self.run_state.calm.wait(0.05):
            victim = next((client for client in self.run_state.clients
                           if client.holds.held(NAMES[0]) and
                           (fault != "isolate_database" or client.keep_busy())), None)
        if victim and fault == "backend_terminate":
            self.backends.hit("terminate", victim)
        elif victim:
            self.carry_out(fault, victim.server)
            victim.kept_busy = False

    def reset_database(self, victim):
        """Breaks the connections of a PostgreSQL server, which may reconnect."""
        self.links(self.client_ways(victim), "cut")

    def long(self):
        """Waits for more than the session timeout."""
        self.wait(1.4 * self.run_state.timeout, 1.4 * self.run_state.timeout)
