"""P13: deadlock detection with very many waiters.

Shows how long a cancel takes while all of them wait longer than deadlock_timeout. A
search does nothing with the session's mutex held.
"""

import time

from lib.sessions import Sessions

ACQUIRE = "SELECT zk_acquire_permit('many', 1)"
LOOKING = 3     # seconds; deadlock_timeout is one
CANCELLED = 5


def measure(bench):
    result = bench.result("P13", "Deadlock detection with very many waiters")
    cancel(bench, result, bench.size(800, 8))
    return result


def cancel(bench, result, waiters):
    """Cancels some of the waiters, one after the other."""
    with Sessions([bench.a], 1) as holder, Sessions([bench.a], waiters) as sessions:
        holder.run(ACQUIRE)
        sessions.open()
        cursors = sessions.start(ACQUIRE)
        time.sleep(bench.size(LOOKING, 1))
        seconds = [cancelled(bench, cursor) for cursor in cursors[-CANCELLED:]]
    result.add_series(f"{waiters} waiters for a permit: until a cancel ends one", "s", seconds)
    result.check("P13", "a cancel ends a wait, seconds", max(seconds), "at most", 1)


def cancelled(bench, cursor):
    start = time.monotonic()
    bench.a.query("SELECT pg_cancel_backend(%s)", cursor.connection.info.backend_pid)
    try:
        Sessions.wait([cursor.connection])
    except Exception as error:          # pylint: disable=broad-except
        if getattr(error, "pgcode", None) != "57014":
            raise
    else:
        raise RuntimeError("the wait ended before it was cancelled")
    return time.monotonic() - start
