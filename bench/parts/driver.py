"""zklock through a driver: a loop in Python, on one connection that stays open."""

import time

from lib.results import per_second


def measure(bench):
    result = bench.result("driver", "psycopg2, one client, own lock: lock and unlock")
    curator, kazoo = bench.peers.curator, bench.peers.kazoo
    connection, transactions = bench.a.connect(), bench.a.connect()
    transactions.autocommit = False
    try:
        numbers = bench.interleave({
            "zklock, one statement": lambda: rate(
                bench, connection, "SELECT zk_lock('driver'), zk_unlock('driver')"),
            "zklock, two statements": lambda: rate(
                bench, connection, "SELECT zk_lock('driver')", "SELECT zk_unlock('driver')"),
            "zklock, BEGIN, zk_xact_lock, COMMIT": lambda: rate(
                bench, transactions, "SELECT zk_xact_lock('driver')"),
            "Curator": lambda: curator.rate("mutex", 1, "own", bench.seconds),
            "kazoo": lambda: kazoo.rate("lock", 1, "own", bench.seconds),
        })
    finally:
        connection.close()
        transactions.close()
    result.add_all("pairs/s", numbers)
    for name in [name for name in numbers if name.startswith("zklock")]:
        result.note_ratio(f"{name}: {{}} times Curator's rate.",
                          numbers[name], numbers["Curator"])
    return result


def rate(bench, connection, *statements):
    """Returns the number of executions of the statements, with a commit, per second."""
    count = 0
    start = time.monotonic()
    with connection.cursor() as cursor:
        while time.monotonic() < start + bench.seconds:
            for statement in statements:
                cursor.execute(statement)
                cursor.fetchone()
            connection.commit()         # sends nothing in autocommit mode
            count += 1
    return per_second(count, time.monotonic() - start)
