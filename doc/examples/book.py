# Books the next invoice under the lock "invoices". with_lock is the reusable part: it repeats the
# transaction after the errors of the retry rules (doc/cookbook.md).
#
#     book.py ADDRESS CUSTOMER
#
# ADDRESS is the address of the server, such as postgresql://127.0.0.1:5432/shop?user=app;
# the table is invoices (number int PRIMARY KEY, customer text).
#
# The program sends BEGIN, COMMIT and ROLLBACK itself, because conn.commit() does not report that
# COMMIT rolled back. Errors of the server have a pgcode; a broken connection has none.

import random
import sys
import time

import psycopg2
from psycopg2.extensions import TRANSACTION_STATUS_IDLE

RETRY = {"40001", "40P01", "08006"}


class NotCommitted(Exception):
    """The work caught the error of a statement, so COMMIT rolled back."""


def with_lock(conn, lock, work, attempts=5):
    """Runs work(cursor), possibly several times, in a transaction that holds the lock."""
    if conn.info.transaction_status != TRANSACTION_STATUS_IDLE:
        raise ValueError("with_lock begins the transaction itself")
    conn.autocommit = True              # BEGIN and COMMIT are sent below
    for attempt in range(1, attempts + 1):
        try:
            with conn.cursor() as cursor:
                cursor.execute("BEGIN")
                cursor.execute("SET LOCAL lock_timeout = '30s'")
                cursor.execute("SELECT zk_xact_lock(%s)", (lock,))
                result = work(cursor)
                cursor.execute("COMMIT")
                if cursor.statusmessage != "COMMIT":
                    raise NotCommitted
                return result
        except psycopg2.Error as error:
            if error.pgcode not in RETRY or attempt == attempts:
                raise
            print(f"attempt {attempt}: {error.pgcode}, trying again", flush=True)
        finally:
            if not conn.closed and conn.info.transaction_status != TRANSACTION_STATUS_IDLE:
                conn.cursor().execute("ROLLBACK")
        time.sleep(random.uniform(0, 0.05 * 2**attempt))


def book(cursor, customer):
    cursor.execute(
        "INSERT INTO invoices SELECT coalesce(max(number), 0) + 1, %s FROM invoices "
        "RETURNING number", (customer,))
    return cursor.fetchone()[0]


if __name__ == "__main__":
    conn = psycopg2.connect(sys.argv[1])
    number = with_lock(conn, "invoices", lambda cursor: book(cursor, sys.argv[2]))
    print(f"booked invoice {number}")
