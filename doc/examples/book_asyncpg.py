# Books the next invoice under the lock "invoices". with_lock is the reusable part: it repeats the
# transaction after the errors of the retry rules (doc/guide.md).
#
#     book_asyncpg.py ADDRESS CUSTOMER
#
# ADDRESS is the address of the server, such as postgresql://app@127.0.0.1:5432/shop;
# the table is invoices (number int PRIMARY KEY, customer text).
#
# The program sends COMMIT itself, because conn.transaction() does not report that it rolled back.
# asyncpg asks the server for the types of the parameters: a number or a list is an error of the driver.

import asyncio
import random
import sys

import asyncpg

RETRY = {"40001", "40P01", "08006"}


class NotCommitted(Exception):
    """The work caught the error of a statement, so COMMIT rolled back."""


async def with_lock(conn, lock, work, attempts=5):
    """Runs work(conn), possibly several times, in a transaction that holds the lock."""
    if conn.is_in_transaction():
        raise ValueError("with_lock begins the transaction itself")
    for attempt in range(1, attempts + 1):
        try:
            await conn.execute("BEGIN")
            await conn.execute("SET LOCAL lock_timeout = '30s'")
            await conn.execute("SELECT zk_xact_lock($1)", lock)
            result = await work(conn)
            if await conn.execute("COMMIT") != "COMMIT":
                raise NotCommitted
            return result
        except asyncpg.PostgresError as error:
            if error.sqlstate not in RETRY or attempt == attempts:
                raise
            print(f"attempt {attempt}: {error.sqlstate}, trying again", flush=True)
        finally:
            if not conn.is_closed() and conn.is_in_transaction():
                await conn.execute("ROLLBACK")
        await asyncio.sleep(random.uniform(0, 0.05 * 2**attempt))


async def book(conn, customer):
    return await conn.fetchval(
        "INSERT INTO invoices SELECT coalesce(max(number), 0) + 1, $1 FROM invoices "
        "RETURNING number", customer)


async def main(url, customer):
    conn = await asyncpg.connect(url)
    try:
        number = await with_lock(conn, "invoices", lambda conn: book(conn, customer))
    finally:
        await conn.close()
    print(f"booked invoice {number}")


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
