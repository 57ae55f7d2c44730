#!/usr/bin/python3
"""Acquires and releases kazoo's Lock as fast as possible.

Owns: a process with a session for each client, because the threads of one Python
process run one at a time. Reads commands from standard input, each a line of
words, and answers "ok" and a number: "run lock CLIENTS WHERE LEAD SECONDS", the
number of locks acquired. LEAD seconds pass before the count begins.
WHERE is "own", a lock for each client, or "one" for all of them.
bench/lib/peers.py is the only caller.
"""

import multiprocessing
import sys
import time

from kazoo.client import KazooClient


def work(hosts, number, orders):
    """Runs a client's process."""
    client = KazooClient(hosts)
    client.start(timeout=60)
    orders.send("ready")
    while True:
        try:
            where, start, end = orders.recv()
        except EOFError:
            break
        name = f"own{number}" if where == "own" else where
        orders.send(take(client.Lock(f"/bench_kazoo/{name}"), start, end))
    client.stop()


def take(lock, start, end):
    count = 0
    now = time.monotonic()
    while now < end:
        with lock:
            now = time.monotonic()
            count += start <= now < end
    return count


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

    def run(self, number, where, lead, seconds):
        self.open(number)
        start = time.monotonic() + lead
        for pipe in self.pipes[:number]:
            pipe.send((where, start, start + seconds))
        return sum(pipe.recv() for pipe in self.pipes[:number])


def main():
    clients = Clients(sys.argv[1])
    for line in sys.stdin:
        _, _, number, where, lead, seconds = line.split()
        count = clients.run(int(number), where, float(lead), float(seconds))
        print("ok", count, flush=True)


if __name__ == "__main__":
    multiprocessing.set_start_method("spawn")
    main()
