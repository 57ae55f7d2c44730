# Runs each slot of time, such as each minute, exactly once, over databases that have no table in
# common. Start one beside each server, on each of your machines: one of them is the leader.
#
#     scheduler.py SECONDS ADDRESS OTHER_ADDRESS...
#
# SECONDS is the length of a slot. The slots run in the database at ADDRESS; at the others,
# other schedulers run, whose slots are read. Needs zklock.py of clients/python and psycopg. In each
# of the databases:
#
#     CREATE TABLE slots (slot bigint PRIMARY KEY, run_at timestamptz DEFAULT now());
#
# The lock is one for all servers. Its holder reads the last slot of all databases, and runs the next
# one in its own, in one transaction with the record. A scheduler that was stopped and has lost the
# lock cannot commit. So no slot runs twice, and none is left out: slots that nobody ran in time, as
# nobody led, run one after the other. If one of the databases cannot be reached, no slot runs until
# it can be: it may have run slots of which the others have no record.
#
# Limits: a database that loses commits, by a failover to a standby behind it, runs their slots
# again. So can a server whose process stops for longer than the session timeout in the moment
# between the check of the lock and the end of its commit. If that must not happen, keep one table
# of slots that all schedulers use: its primary key excludes it. Effects outside the database can
# happen several times.

import logging
import signal
import sys
import threading

import psycopg

from zklock import Locks

# The session of a program that hangs ends after this time, and another scheduler leads. This is set
# before the wait for the lock: a program can hang then, and become the leader.
HANGS = "SET idle_session_timeout = '10s'; SET idle_in_transaction_session_timeout = '10s'"

LAST = "SELECT coalesce(max(slot), 0) FROM slots"
NOW = "SELECT floor(extract(epoch FROM clock_timestamp()) / %s)::bigint"


def run(conn, slot):
    """The work of a slot, in the transaction that records it."""
    conn.execute("INSERT INTO slots (slot) VALUES (%s)", (slot,))


def connect(address):
    """Refuses a standby, which may lag behind: it does not show the last slots."""
    conn = psycopg.connect(address, connect_timeout=5, autocommit=True,
                           target_session_attrs="read-write")
    conn.execute(HANGS)
    return conn


def last_slot(address):
    with connect(address) as conn:
        return conn.execute(LAST).fetchone()[0]


def main(seconds, address, *others):
    def step(held):
        now = held.conn.execute(NOW, (seconds,)).fetchone()[0]
        # Under the lock, after it was acquired: nobody else has run a slot since.
        last = max([held.conn.execute(LAST).fetchone()[0], *map(last_slot, others)])
        for slot in range(last + 1 if last else now, now + 1):
            held.transaction(lambda conn, slot=slot: run(conn, slot))
            if held.revoked() or stop.is_set():
                break

    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    locks = Locks(lambda: connect(address))
    locks.lead("shop:slots", step, stop, every=min(float(seconds) / 10, 1))


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    main(*sys.argv[1:])
