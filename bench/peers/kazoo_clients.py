#!/usr/bin/python3
"""Acquires and releases kazoo's Lock as fast as possible.

Owns: a process with a session for each client, because the threads of one Python
process run one at a time. Reads commands from standard input, each a line of
words, and answers "ok" and numbers. "run lock CLIENTS WHERE LEAD SECONDS": the
number of locks acquired. LEAD seconds pass before the count begins.
WHERE is "own", a lock for each client, or "one" for all of them.
"times lock SECONDS": the microseconds of each turn of one client with a lock of its own.
bench/lib/peers.py is the only caller.
"""

import multiprocessing
import sys
import time

from kazoo.client import KazooClient


def work(hosts, number, orders):
    """Runs a client's process."""
    client = KazooClient(hosts, timeout=60)  # seconds
    client.start(timeout=60)
    orders.send("ready")
    while True:
        try:
            what, where, start, end = orders.recv()
        except EOFError:
            break
        name = f"own{number}" if where == "own" else where
        orders.send(what(client.Lock(f"/bench_kazoo/{name}"), start, end))
    client.stop()


def take(lock, start, end):
    count = 0
    now = time.monotonic()
    while now < end:
        with lock:
            now = time.monotonic()
            count += start <= now < end
    return count


def measure(lock, start, end):
    """Returns the microseconds of each turn."""
    taken = []
    while start < end:
        with lock:
            pass
        now = time.monotonic()
        taken.append(1e6 * (now - start))
        start = now
    return taken


class Clients:
    """The processes of all clients, which run until the end."""

    def __init__(self, hosts):
        self.hosts = hosts
        self.pipes = []

    def open(self, number):
        while len(self.pipes) < number:
            mine, theirs = multiprocessing.Pipe()
            multiprocessing.Process(
                target=work, args=(self.hosts, len(self.pipes), theirs),
                daemon=True).start()
            mine.recv()
            self.pipes.append(mine)

    def run(self, what, number, where, lead, seconds):
        """Returns what each of the clients found."""
        self.open(number)
        start = time.monotonic() + lead
        for pipe in self.pipes[:number]:
            pipe.send((what, where, start, start + seconds))
        return [pipe.recv() for pipe in self.pipes[:number]]


def main():
    clients = Clients(sys.argv[1])
    for line in sys.stdin:
        order, _, *words = line.split()
        if order == "times":
            numbers, = clients.run(measure, 1, "own", 0, float(words[0]))
        else:
            number, where, lead, seconds = words
            numbers = [sum(clients.run(take, int(number), where, float(lead), float(seconds)))]
        print("ok", *numbers, flush=True)


if __name__ == "__main__":
    multiprocessing.set_start_method("spawn")
    main()
