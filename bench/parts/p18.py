"""P18: the slowest of many calls with an array."""

import statistics
import time

SQL = "SELECT zk_lock_many(%s), zk_unlock_many(%s)"


def measure(bench):
    result = bench.result("P18", "The slowest of many calls with an array")
    connection = bench.a.connect()
    for size in bench.size([150, 300, 1000], [15]):
        names = [f"row{size}/{i}" for i in range(size)]
        first = milliseconds(connection, names)     # creates the znodes of the names
        times = [milliseconds(connection, names) for _ in range(bench.size(50, 3))]
        result.add_series(f"{size} new names", "ms", [first])
        result.add_series(f"{size} names, each call", "ms", times)
        result.check("P18", f"{size} names: the slowest of {len(times)} calls, against the median",
                     max(times) / statistics.median(times), "at most", 5)
    connection.close()
    return result


def milliseconds(connection, names):
    start = time.monotonic()
    with connection.cursor() as cursor:
        cursor.execute(SQL, (names, names))
    return 1000 * (time.monotonic() - start)
