# Waits until it is the leader, and then works in one transaction after another. After an error it
# closes the connection, which releases the lock, and waits again as one of the others. zk_fence
# refuses the transaction of a former leader after one of its successor.
#
#     leader.py ADDRESS NAME
#
# The table is decisions (n serial, by text). In psycopg2, errors of the classes 08, 40, 53, 55 and 57,
# and broken connections, are an OperationalError. Other errors, such as a missing table, end the program.

import random
import select
import signal
import sys
import time

import psycopg2
from psycopg2.errors import ReadOnlySqlTransaction
from psycopg2.extensions import POLL_OK, POLL_READ

LOCK = "billing:leader"


def wait_for_server(conn):
    """Waits in Python and not in libpq, so that a signal or Ctrl-C ends the wait."""
    while (state := conn.poll()) != POLL_OK:
        reads = [conn] if state == POLL_READ else []
        select.select(reads, [] if reads else [conn], [])


psycopg2.extensions.set_wait_callback(wait_for_server)


def lead(conn, step):
    """Waits until this session is the leader, then calls step(cursor) until it returns False."""
    conn.autocommit = True              # BEGIN and COMMIT are sent below
    with conn.cursor() as cursor:
        # The wait ends on the server, too, when this program has ended.
        cursor.execute("SET client_connection_check_interval = '5s'")
        cursor.execute("CALL zk_lock_wait(%s)", (LOCK,))
        print("leader", flush=True)
        go_on = True
        while go_on:
            cursor.execute("BEGIN")
            cursor.execute("SELECT zk_fence(%s)", (LOCK,))
            go_on = step(cursor)
            cursor.execute("COMMIT")
            if cursor.statusmessage != "COMMIT":
                raise RuntimeError("the step caught the error of a statement: COMMIT rolled back")


def run(dsn, step):
    """Leads in one connection after another, until a step returns False."""
    while True:
        try:
            conn = psycopg2.connect(dsn)
            try:
                return lead(conn, step)
            finally:
                conn.close()            # releases the lock
        except (psycopg2.OperationalError, ReadOnlySqlTransaction) as error:
            print(f"not the leader: {error.pgcode or 'no connection'}", flush=True)
        time.sleep(random.uniform(0, 2))


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))

    def decide(cursor):
        cursor.execute("INSERT INTO decisions (by) VALUES (%s) RETURNING n", (sys.argv[2],))
        return cursor.fetchone()[0] < 3

    run(sys.argv[1], decide)
