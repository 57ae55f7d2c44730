"""Many sessions of a PostgreSQL server that run one statement each, at once.

Owns: the connections, and waiting for all of them in one place, so the servers' work
is measured and not a client's. In "turns", a function created here acquires and
releases a lock in a loop inside each backend.
"""

import selectors
import time

from psycopg2.extensions import POLL_OK, POLL_READ, POLL_WRITE

from lib.results import per_second

TURNS = """CREATE OR REPLACE FUNCTION {0}(start timestamptz, ending timestamptz)
RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
  turns bigint := 0;
  now timestamptz := clock_timestamp();
BEGIN
  WHILE now < ending LOOP
    PERFORM {1};
    now := clock_timestamp();
    IF now >= start AND now < ending THEN
      turns := turns + 1;
    END IF;
    PERFORM {2};
  END LOOP;
  RETURN turns;
END $$"""


def create_turns(server, name, lock, unlock):
    server.query(TURNS.format(name, lock, unlock))


EVENTS = {POLL_READ: selectors.EVENT_READ, POLL_WRITE: selectors.EVENT_WRITE}


class Sessions:
    """The given number of sessions, spread over the servers; a context, which closes them."""

    def __init__(self, servers, number, **options):
        self.connections = []
        for i in range(number):
            self.connections.append(
                servers[i % len(servers)].connect(async_=True, **options))
            if i % 50 == 49:            # a server's queue for new ones is short
                self.wait(self.connections[-50:])
        self.wait(self.connections)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for connection in self.connections:
            connection.close()

    @staticmethod
    def wait(connections):
        """Waits until each connection has finished its last statement."""
        with selectors.DefaultSelector() as selector:
            for connection in connections:
                state = connection.poll()
                if state != POLL_OK:
                    selector.register(connection.fileno(), EVENTS[state], connection)
            while selector.get_map():
                for key, _ in selector.select():
                    state = key.data.poll()
                    if state == POLL_OK:
                        selector.unregister(key.fileobj)
                    else:
                        selector.modify(key.fileobj, EVENTS[state], key.data)

    def start(self, sql, arguments=lambda number: None, first=0, last=None):
        """Sends a statement in each session, or some of them, with arguments
        by its number. The cursors must be kept until they are finished."""
        cursors = []
        for number, connection in enumerate(self.connections[first:last], first):
            cursors.append(connection.cursor())
            cursors[-1].execute(sql, arguments(number))
        return cursors

    def finish(self, cursors):
        """Returns the first row of each statement."""
        self.wait([cursor.connection for cursor in cursors])
        return [cursor.fetchone() for cursor in cursors]

    def run(self, sql, arguments=lambda number: None):
        return self.finish(self.start(sql, arguments))

    def open(self):
        """Opens a ZooKeeper session in each, a few at a time."""
        for first in range(0, len(self.connections), 50):
            self.finish(self.start(
                "SELECT zk_lock(%s), zk_unlock(%s)",
                lambda number: (f"warm{number}",) * 2, first, first + 50))

    def turns(self, function, lead, seconds):
        """Returns the acquisitions per second of all sessions together, in the given
        seconds after the lead."""
        sql = f"SELECT {function}(to_timestamp(%s), to_timestamp(%s))"
        self.run(sql, lambda _: (0, 0))         # compiled
        start = time.time() + lead
        counts = self.run(sql, lambda _: (start, start + seconds))
        return per_second(sum(count for count, in counts), seconds)
