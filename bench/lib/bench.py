"""The context in which a part measures.

Owns: number and length of the rounds, the servers, the peers, the scripts for
pgbench; and the order: contestants take turns, round by round, and each round
begins with another contestant.
"""

import os

from lib.peers import Peers
from lib.results import Result
from lib.servers import Server, from_environment


class Bench:
    """One run of the benchmark."""

    def __init__(self, quick, rounds, directory, sync="off"):
        self.quick = quick
        self.rounds = 1 if quick else rounds
        self.seconds = 1 if quick else 2
        self.sync = sync        # whether ZooKeeper waits for its disk: on or off
        self.directory = directory
        if quick:
            Server.warm_up = 0
        self.zk, self.servers = from_environment()
        self.server_is_warm = False
        self.warm_contestants = set()
        self.peers = Peers(self.zk.connect_string)

    def __getattr__(self, name):
        """The servers are attributes: a, b, c, plain."""
        try:
            return self.__dict__["servers"][name]
        except KeyError:
            raise AttributeError(name) from None

    def size(self, full, quick):
        return quick if self.quick else full

    def by_sync(self, off, on):
        return on if self.sync == "on" else off

    def result(self, part, title):
        return Result(part, title)

    def script(self, name, *lines):
        """Writes a script for pgbench."""
        path = os.path.join(self.directory, f"{name}.sql")
        with open(path, "w", encoding="utf-8") as file:
            file.write("".join(line + "\n" for line in lines))
        return path

    def interleave(self, contestants, comparisons=None, rounds=None, warm=True):
        """Runs the contestants, functions by name that each measure a number. Returns
        the numbers of all rounds, by name. The first run of each contestant warms
        caches and compilers and does not count. Comparisons are further contestants
        that no target needs; they are left out if ZooKeeper waits for its disk."""
        if self.sync == "off":
            contestants = {**contestants, **(comparisons or {})}
        names = list(contestants)
        numbers = {name: [] for name in names}
        self.warm_server()
        if warm and not self.quick:
            for name in names:
                if name not in self.warm_contestants:
                    self.undisturbed(contestants[name])
                    self.warm_contestants.add(name)
        for turn in range(rounds or self.rounds):
            start = turn % len(names)
            for name in names[start:] + names[:start]:
                numbers[name].append(self.undisturbed(contestants[name]))
        return numbers

    def undisturbed(self, function):
        """Runs the function after the server has closed the previous contestant's sessions."""
        self.zk.settle()
        return function()

    def warm_server(self):
        """Runs until Java has compiled the server's code; once for each server is enough."""
        if not self.quick and not self.server_is_warm:
            for kind in ("textbook", "flight"):
                self.peers.c.rate(kind, 4, "own", 6)
            self.server_is_warm = True

    def end(self):
        self.peers.end()
