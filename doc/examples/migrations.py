# Migrates a database. Each replica of an application calls it when it starts, all at the same time:
# one replica migrates, the others wait, and then find nothing to do.
#
#     migrations.py ADDRESS
#
# ADDRESS is the database. Needs zklock.py of clients/python and psycopg. The exit status is 0 if the
# database has all migrations: a replica that starts afterwards finds the tables that it needs.
#
# The replicas wait with CALL zk_lock_wait, which needs no snapshot: CREATE INDEX CONCURRENTLY would
# wait for the replicas' snapshots, and these for the lock. If the replica that migrates dies, the
# next one goes on where it has stopped. If it loses the lock, its transaction does not commit.

import logging
import sys

import psycopg

from zklock import Locks

# Append new ones, and never change one that has been deployed. One that cannot run in a transaction
# is a list of statements, which can be repeated from the beginning.
MIGRATIONS = [
    "CREATE TABLE customers (id bigint PRIMARY KEY, email text)",
    ["DROP INDEX CONCURRENTLY IF EXISTS customers_email",
     "CREATE INDEX CONCURRENTLY customers_email ON customers (email)"],
    "ALTER TABLE customers ADD COLUMN since date NOT NULL DEFAULT current_date",
]


def migrate(held, version, migration):
    def record(conn):
        if isinstance(migration, str):
            conn.execute(migration)
        conn.execute("INSERT INTO schema_version VALUES (%s)", (version,))

    if not isinstance(migration, str):
        for statement in migration:
            held.conn.execute(statement)
    held.transaction(record)


def main(address):
    locks = Locks(lambda: psycopg.connect(address, connect_timeout=5, autocommit=True))
    with locks.hold("shop:migrations", timeout=600) as held:
        held.conn.execute("CREATE TABLE IF NOT EXISTS schema_version (version int PRIMARY KEY)")
        done = held.conn.execute("SELECT coalesce(max(version), 0) FROM schema_version").fetchone()[0]
        for version, migration in enumerate(MIGRATIONS[done:], done + 1):
            migrate(held, version, migration)
            print(f"migration {version}: done", flush=True)
    if done >= len(MIGRATIONS):
        print("nothing to do", flush=True)


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    main(*sys.argv[1:])
