# Books the next invoice under the lock "invoices". with_lock is the reusable part: it repeats the
# transaction after the errors of the retry rules (doc/cookbook.md).
#
#     book_psycopg3.py ADDRESS CUSTOMER
#
# ADDRESS is the address of the server, such as postgresql://127.0.0.1:5432/shop?user=app;
# the table is invoices (number int PRIMARY KEY, customer text).
#
# The program sends COMMIT itself, because conn.commit() does not report that it rolled back.

import random
import sys
import time

import psycopg
from psycopg.pq import TransactionStatus

RETRY = {"40001", "40P01", "08006"}


class NotCommitted(Exception):
    """The work caught the error of a statement, so COMMIT rolled back."""


def with_lock(conn, lock, work, attempts=5):
    """Runs work(conn), possibly several times, in a transaction that holds the lock."""
    if conn.info.transaction_status != TransactionStatus.IDLE:
        raise ValueError("with_lock begins the transaction itself")
    conn.autocommit = True              # BEGIN and COMMIT are sent below
    for attempt in range(1, attempts + 1):
        try:
            conn.execute("BEGIN")
            conn.execute("SET LOCAL lock_timeout = '30s'")
            conn.execute("SELECT zk_xact_lock(%s)", (lock,))
            result = work(conn)
            if conn.execute("COMMIT").statusmessage != "COMMIT":
                raise NotCommitted
            return result
        except psycopg.Error as error:
            # The server's errors have a SQLSTATE in diag; a broken connection has none.
            if error.diag.sqlstate not in RETRY or attempt == attempts:
                raise
            print(f"attempt {attempt}: {error.diag.sqlstate}, trying again", flush=True)
        finally:
            if not conn.closed and conn.info.transaction_status != TransactionStatus.IDLE:
                conn.execute("ROLLBACK")
        time.sleep(random.uniform(0, 0.05 * 2**attempt))


def book(conn, customer):
    return conn.execute(
        "INSERT INTO invoices SELECT coalesce(max(number), 0) + 1, %s FROM invoices "
        "RETURNING number", (customer,)).fetchone()[0]


if __name__ == "__main__":
    with psycopg.connect(sys.argv[1]) as conn:
        number = with_lock(conn, "invoices", lambda conn: book(conn, sys.argv[2]))
    print(f"booked invoice {number}")
