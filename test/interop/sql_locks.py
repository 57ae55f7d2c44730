"""An SQL session with the interface of kazoo's locks, for crowds.

Owns: the SQL statements that acquire and release locks.
"""

import psycopg2

# kind: the timed attempt, and the release
STATEMENTS = {
    "exclusive": ("SELECT zk_try_lock(%(name)s, %(wait)s)",
                  "SELECT zk_unlock(%(name)s)"),
    "shared": ("SELECT zk_try_lock_shared(%(name)s, %(wait)s)",
               "SELECT zk_unlock_shared(%(name)s)"),
    "permit": ("SELECT zk_try_acquire_permit(%(name)s, %(size)s, %(wait)s)",
               "SELECT zk_release_permit(%(name)s)"),
}


class SqlSession:
    """A connection outside of transactions, with zklock.node_names set."""

    def __init__(self, connection, node_names):
        self.connection = psycopg2.connect(connection, options=f"-c zklock.node_names={node_names}")
        self.connection.autocommit = True

    def value(self, sql, **arguments):
        with self.connection.cursor() as cursor:
            cursor.execute(sql, arguments)
            return cursor.fetchone()[0]

    def stop(self):
        self.connection.close()

    def close(self):
        pass


class SqlLock:
    """A lock or a permit of a session, under an SQL name."""

    def __init__(self, session, kind, name, size):
        self.session = session
        self.take, self.give = STATEMENTS[kind]
        self.arguments = {"name": name}
        if kind == "permit":
            self.arguments["size"] = int(size)

    def acquire(self, blocking=True, timeout=3600):
        return self.session.value(
            self.take, wait="%s s" % (timeout if blocking else 0),
            **self.arguments)

    def release(self):
        return self.session.value(self.give, **self.arguments)
