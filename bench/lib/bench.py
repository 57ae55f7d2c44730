"""What a part is given to measure with.

Owns: how long and how often is measured, the servers, the peers, the scripts
for pgbench; and the order of things: contestants take turns, round by round,
and none always comes first.
"""

import os

from lib.peers import Peers
from lib.results import Result
from lib.servers import Server, from_environment


class Bench:
    """One run of the benchmark."""

    def __init__(self, quick, rounds, directory):
        self.quick = quick
        self.rounds = 1 if quick else rounds
        self.seconds = 1 if quick else 3
        self.directory = directory
        if quick:
            Server.warm_up = 0
        self.zk, self.servers = from_environment()
        self.server_is_warm = False
        self.peers = Peers(self.zk.connect_string)

    def __getattr__(self, name):
        """The servers are attributes: a, b, c, plain."""
        try:
            return self.__dict__["servers"][name]
        except KeyError:
            raise AttributeError(name) from None

    def size(self, full, quick):
        return quick if self.quick else full

    def result(self, part, title):
        return Result(part, title)

    def script(self, name, *lines):
        """A file for pgbench."""
        path = os.path.join(self.directory, f"{name}.sql")
        with open(path, "w", encoding="utf-8") as file:
            file.write("".join(line + "\n" for line in lines))
        return path

    def interleave(self, contestants, rounds=None, warm=True):
        """Contestants: functions that measure a number, by name. Returns
        the numbers of all rounds, by name. The first run of each, which warms
        caches and compilers, does not count."""
        names = list(contestants)
        numbers = {name: [] for name in names}
        self.warm_server()
        if warm and not self.quick:
            for name in names:
                self.undisturbed(contestants[name])
        for turn in range(rounds or self.rounds):
            start = turn % len(names)
            for name in names[start:] + names[:start]:
                numbers[name].append(self.undisturbed(contestants[name]))
        return numbers

    def undisturbed(self, function):
        """Not by the leavings of who came before."""
        self.zk.settle()
        return function()

    def warm_server(self):
        """A virtual machine compiles what it does often; once is enough."""
        if not self.quick and not self.server_is_warm:
            for kind in ("textbook", "flight"):
                self.peers.c.rate(kind, 4, "own", 10)
            self.server_is_warm = True

    def end(self):
        self.peers.end()
