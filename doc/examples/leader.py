# Dispatches orders to couriers. Start as many of these as you like, on several machines: one is the
# leader and works, the others wait, and the next one goes on when the leader ends, loses the lock,
# or is asked to release it (SELECT zk_revoke('shop:dispatcher')).
#
#     leader.py ADDRESS NAME
#
# ADDRESS is the database, as all candidates reach it, before and after a failover:
# postgresql://app@db1,db2/shop?target_session_attrs=read-write. NAME is written into the rows.
# (psycopg 3.1.7, of Debian 12, gives connect_timeout to all hosts together, so a first host that
# accepts and does not answer keeps it from the second one. psycopg2 does not have this fault.)
# Needs zklock.py of clients/python and psycopg. The tables:
#
#     CREATE TABLE orders (id bigint PRIMARY KEY);
#     CREATE TABLE couriers (name text PRIMARY KEY);
#     CREATE TABLE deliveries (order_id bigint, courier text, leader text, token bigint);
#
# Nothing but the lock keeps two processes from dispatching one order twice. A step is one
# transaction, which calls zk_fence: a former leader that was stopped in the middle of a step, and
# goes on when another one leads, cannot commit. The token is for other systems: they refuse a
# message with a smaller one after one with a greater one.

import logging
import signal
import sys
import threading

import psycopg

from zklock import Locks

# The session of a program that hangs ends after this time, and another candidate leads. This is set
# before the wait for the lock: a program can hang then, and become the leader. Between two steps
# the library asks for the lock each second; a step that works elsewhere for long must do that
# itself: held.check().
HANGS = "SET idle_session_timeout = '10s'; SET idle_in_transaction_session_timeout = '10s'"

DISPATCH = """
INSERT INTO deliveries (order_id, courier, leader, token)
SELECT o.id, idlest.name, %s, %s
FROM orders o, (SELECT c.name FROM couriers c LEFT JOIN deliveries d ON d.courier = c.name
                GROUP BY c.name ORDER BY count(d.order_id), c.name LIMIT 1) AS idlest
WHERE NOT EXISTS (SELECT FROM deliveries WHERE order_id = o.id)
ORDER BY o.id LIMIT 1"""


def connect(address):
    conn = psycopg.connect(address, connect_timeout=5, autocommit=True)
    conn.execute(HANGS)
    return conn


def main(address, name):
    def step(held):
        """Reads what is to be done: the step before may have been that of another process."""
        while held.transaction(lambda conn: conn.execute(DISPATCH, (name, held.token)).rowcount):
            if held.revoked() or stop.is_set():
                break

    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    locks = Locks(lambda: connect(address))
    locks.lead("shop:dispatcher", step, stop, every=1)


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    main(*sys.argv[1:])
