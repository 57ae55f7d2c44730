#!/usr/bin/python3
"""kazoo's locks, driven over standard input and output.

Owns: the protocol and its threads, as in CuratorDriver.java, and the verbs for
kazoo. The driver uses kazoo as a Python program would. ZkLock::Opponent is the only caller.
"""

import queue
import sys
import threading
from datetime import timedelta

import curator_names
from crowd import Crowd
from kazoo.client import KazooClient
from kazoo.exceptions import LockTimeout
from kazoo.recipe.lock import Lock, ReadLock, WriteLock
from sql_locks import SqlLock, SqlSession

class Lease:
    """A NonBlockingLease of an hour with the interface of a lock."""

    def __init__(self, client, path, identifier):
        self.arguments = path, timedelta(hours=1), identifier
        self.client = client

    def acquire(self, **_):
        return bool(self.client.NonBlockingLease(*self.arguments))


KINDS = {
    "lock": Lock,
    "write": WriteLock,
    "read": ReadLock,
    "lease": Lease,
    "curator_mutex": curator_names.Mutex,
    "curator_write": curator_names.Write,
}


class Driver:
    """One method per verb; sessions and locks have names."""

    def __init__(self, hosts):
        self.hosts = hosts
        self.sessions = {}
        self.locks = {}

    def client(self, timeout, client_id=None):
        client = KazooClient(hosts=self.hosts, timeout=timeout, client_id=client_id)
        client.start(timeout=60)
        return client

    def open(self, name, timeout):
        self.sessions[name] = self.client(int(timeout) / 1000)

    def open_sql(self, name, connection, settings):
        self.sessions[name] = SqlSession(connection, settings)

    def close(self, name):
        session = self.sessions.pop(name)
        session.stop()
        session.close()

    def expire(self, name):
        """Moves the session to another connection, and closes it there."""
        session = self.sessions[name]
        thief = self.client(10, client_id=session.client_id)
        thief.stop()
        thief.close()

    def lock(self, name, kind, session, path, leases):
        client = self.sessions[session]
        if isinstance(client, SqlSession):
            self.locks[name] = SqlLock(client, kind, path, leases)
        else:
            self.locks[name] = KINDS[kind](client, path, session)

    def acquire(self, name, timeout):
        return int(self.acquire_lock(self.locks[name], int(timeout)))

    @staticmethod
    def acquire_lock(lock, timeout):
        """Timeout in milliseconds; negative: none; 0: does not wait."""
        if timeout < 0:
            return lock.acquire()
        if timeout == 0:
            return lock.acquire(blocking=False)
        try:
            return lock.acquire(timeout=timeout / 1000)
        except LockTimeout:
            return False

    def release(self, name):
        return int(self.locks[name].release())

    def contenders(self, name):
        return self.locks[name].contenders()

    def crowd(self, name, timeout, *rest):
        lock = self.locks[name]
        with Crowd(*rest) as crowd:
            while crowd.goes_on():
                if self.acquire_lock(lock, int(timeout)):
                    crowd.turn()
                    lock.release()
                    crowd.rest()
                else:
                    crowd.missed()
            return crowd.result()


class Answers:
    """Writes whole lines; thread-safe."""

    def __init__(self):
        self.mutex = threading.Lock()

    def write(self, *fields):
        line = "\t".join(str(field).replace("\n", " ") for field in fields)
        with self.mutex:
            print(line, flush=True)


def serve(driver, answers, commands):
    """A party's thread: executes its commands one after another."""
    while True:
        number, verb, arguments = commands.get()
        try:
            result = getattr(driver, verb)(*arguments)
        except Exception as error:  # pylint: disable=broad-except
            answers.write(number, "error", type(error).__name__, error)
            continue
        if result is None:
            result = []
        elif not isinstance(result, list):
            result = [result]
        answers.write(number, "ok", *result)


def main():
    driver, answers, parties = Driver(sys.argv[1]), Answers(), {}
    answers.write(0, "ok")
    for line in sys.stdin:
        number, party, verb, *arguments = line.rstrip("\n").split("\t")
        if party not in parties:
            parties[party] = queue.Queue()
            threading.Thread(
                target=serve, args=(driver, answers, parties[party]),
                daemon=True).start()
        parties[party].put((number, verb, arguments))


if __name__ == "__main__":
    main()
