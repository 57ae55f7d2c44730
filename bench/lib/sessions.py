"""Many sessions of a PostgreSQL server that run one statement each, at once.

Owns: the connections, and waiting for all of them in one place, so that what is
measured is the servers' work and not a client's. Turns: a lock is taken and
released in a loop inside of each backend, by a function made here.
"""

import selectors
import time

from psycopg2.extensions import POLL_OK, POLL_READ, POLL_WRITE

TURNS = """CREATE OR REPLACE FUNCTION bench_turns(
  name text, start timestamptz, ending timestamptz) RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE
  turns bigint := 0;
  token bigint;
  now timestamptz := clock_timestamp();
BEGIN
  WHILE now < ending LOOP
    token := zk_lock(name);
    now := clock_timestamp();
    IF now >= start AND now < ending THEN
      turns := turns + 1;
    END IF;
    PERFORM zk_unlock(name);
  END LOOP;
  RETURN turns;
END $$"""

EVENTS = {POLL_READ: selectors.EVENT_READ, POLL_WRITE: selectors.EVENT_WRITE}


class Sessions:
    """So many on each of the servers; a context, which closes them."""

    def __init__(self, servers, number):
        self.connections = [servers[i % len(servers)].connect(async_=True)
                            for i in range(number)]
        self.wait(self.connections)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for connection in self.connections:
            connection.close()

    @staticmethod
    def wait(connections):
        """Until each has done what was last asked of it."""
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

    def start(self, sql, arguments=lambda number: None):
        """Sends a statement in each session, with arguments by its number."""
        cursors = []
        for number, connection in enumerate(self.connections):
            cursors.append(connection.cursor())
            cursors[-1].execute(sql, arguments(number))
        return cursors

    def finish(self, cursors):
        """The first row of each."""
        self.wait(self.connections)
        return [cursor.fetchone() for cursor in cursors]

    def run(self, sql, arguments=lambda number: None):
        return self.finish(self.start(sql, arguments))

    def open(self):
        """Each has its ZooKeeper session then."""
        self.run("SELECT zk_lock(%s), zk_unlock(%s)",
                 lambda number: (f"warm{number}",) * 2)

    def turns(self, name, lead, seconds):
        """Turns that all of them together take at a lock, for each second."""
        start = time.time() + lead
        counts = self.run(
            "SELECT bench_turns(%s, to_timestamp(%s), to_timestamp(%s))",
            lambda number: (name, start, start + seconds))
        return sum(count for count, in counts) / seconds
