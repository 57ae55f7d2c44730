"""P15: a writer beside sessions that keep a shared lock."""

import threading
import time

import psycopg2

SETTING = "-c zklock.keep_time=10min"
IDLE, BUSY = 100, 10
PAUSE = 0.005       # seconds that a transaction takes, and that pass until the next one


def measure(bench):
    result = bench.result("P15", "A writer beside kept readers on three servers")
    writer = bench.a.connect()
    idle, free = [], []
    for turn in range(bench.rounds * 3):
        readers = [connect(bench, i) for i in range(bench.size(IDLE, 10))]
        for reader in readers:
            share(reader, f"idle{turn}")
        bench.zk.settle()
        free.append(milliseconds(writer, f"free{turn}"))
        idle.append(milliseconds(writer, f"idle{turn}"))
        for reader in readers:
            reader.close()
    busy, failed = beside_busy(bench, writer)
    writer.close()
    result.add_all("ms", {"without readers": free, f"{IDLE} readers that only keep it": idle,
                          f"{BUSY} readers in a transaction half of the time": busy})
    result.check_ratio("P15", f"time of a writer beside {IDLE} kept readers, against a free lock",
                       idle, free, "at most", 20)
    result.check("P15", "transactions of readers that failed", failed, "at most", 0)
    return result


def connect(bench, i):
    return [bench.a, bench.b, bench.c][i % 3].connect(options=SETTING)


def share(connection, name):
    with connection.cursor() as cursor:
        cursor.execute("SELECT zk_xact_lock_shared(%s)", (name,))


def milliseconds(writer, name):
    with writer.cursor() as cursor:
        start = time.monotonic()
        cursor.execute("SELECT zk_lock(%s)", (name,))
        took = time.monotonic() - start
        cursor.execute("SELECT zk_unlock(%s)", (name,))
    return took * 1000


def beside_busy(bench, writer):
    """Returns the writer's times, and how many transactions of the readers failed."""
    times, failures = [], []
    for turn in range(bench.rounds * 3):
        stop = threading.Event()
        readers = [threading.Thread(target=read, args=(connect(bench, i), f"busy{turn}", stop,
                                                       failures)) for i in range(BUSY)]
        for reader in readers:
            reader.start()
        time.sleep(20 * PAUSE)
        times.append(milliseconds(writer, f"busy{turn}"))
        stop.set()
        for reader in readers:
            reader.join()
    return times, len(failures)


def read(connection, name, stop, failures):
    connection.autocommit = False
    while not stop.is_set():
        try:
            share(connection, name)
            time.sleep(PAUSE)
            connection.commit()
            time.sleep(PAUSE)
        except psycopg2.Error as error:
            failures.append(error)
            connection.rollback()
    connection.close()
