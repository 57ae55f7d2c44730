#!/usr/bin/python3
"""Programs that use clients/python/zklock.py, for test/t/programs/clients.pl: the arguments are the
driver, the address of the server, a command and its arguments. Program.java has the same
commands."""

import importlib
import logging
import signal
import sys
import threading
import time

import zklock

driver = importlib.import_module(sys.argv[1])
locks = zklock.Locks(lambda: driver.connect(sys.argv[2]))


def say(text):
    print(text, flush=True)


def insert(conn, by):
    conn.cursor().execute("INSERT INTO work (by) VALUES (%s)", (by,))


def count(name, path, times):
    """Adds 1 to the number in a file, which a second writer at the same time would spoil."""
    def add(conn):
        with open(path, encoding="ascii") as file:
            number = int(file.read())
        conn.cursor().execute("SELECT 1")
        with open(path, "w", encoding="ascii") as file:
            file.write(str(number + 1))

    for _ in range(int(times)):
        locks.with_lock(name, add)
    say("done")


def work(name, by, timeout="30"):
    locks.with_lock(name, lambda conn: insert(conn, by), timeout=float(timeout))
    say("done")


def stumble(name, sqlstate):
    locks.with_lock(name, lambda conn: conn.cursor().execute("SELECT stumble(%s)", (sqlstate,)))
    say("done")


def held_stumble(name, sqlstate):
    with locks.hold(name) as held:
        held.transaction(lambda conn: conn.cursor().execute("SELECT stumble(%s)", (sqlstate,)))
    say("done")


def swallow(name):
    def catch(conn):
        try:
            conn.cursor().execute("SELECT 1 / 0")
        except driver.Error:
            pass

    locks.with_lock(name, catch)


def in_transaction(name):
    conn = driver.connect(sys.argv[2])
    conn.cursor().execute("SELECT 1")
    zklock.Locks(lambda: conn).with_lock(name, lambda conn: insert(conn, "inside"))


def hold(name, by, timeout=None):
    with locks.hold(name, timeout=timeout and float(timeout)) as held:
        for _ in range(2):
            held.transaction(lambda conn: insert(conn, by))
        say(f"token {held.token}")
    say("done")


def lose(name, fifo):
    """Holds the lock, in an idle session, until somebody writes to the fifo."""
    with locks.hold(name) as held:
        say(f"holds {held.name}")
        with open(fifo, encoding="ascii") as file:
            file.read()
    say("done")


def watch(name):
    """Holds the lock, and checks it until it is lost."""
    with locks.hold(name) as held:
        say(f"holds {held.name}")
        while True:
            held.check()
            time.sleep(0.1)


def failing_release(name, by):
    """The commit succeeds, and then the connection breaks."""
    def release(conn):
        conn.close()
        raise driver.OperationalError("the connection broke")

    zklock.Locks(lambda: driver.connect(sys.argv[2]), release).with_lock(
        name, lambda conn: insert(conn, by))
    say("done")


def session_ends(name, by):
    """The session ends right after the commit, and its settings cannot be restored."""
    def connect():
        conn = driver.connect(sys.argv[2])
        conn.set_session(isolation_level="SERIALIZABLE")
        return conn

    def commit(conn):
        real_commit(conn)
        driver.connect(sys.argv[2]).cursor().execute(
            "SELECT pg_terminate_backend(%s, 600000)", (conn.info.backend_pid,))

    real_commit, zklock._commit = zklock._commit, commit
    zklock.Locks(connect).with_lock(name, lambda conn: insert(conn, by))
    say("done")


def nested(name, by):
    def outer(conn):
        insert(conn, by)
        held.transaction(lambda conn: insert(conn, by))

    with locks.hold(name) as held:
        held.transaction(outer)


def aborted(name):
    """Checks the lock in a transaction that has failed."""
    with locks.hold(name) as held:
        try:
            held.conn.cursor().execute("BEGIN; SELECT 1 / 0")
        except driver.Error:
            held.check()


def lead(name, by, every):
    def step(held):
        held.transaction(lambda conn: insert(conn, by))

    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    locks.lead(name, step, stop, every=float(every))
    say("stopped")


def lead_elsewhere(name, every):
    """The steps use no database."""
    locks.lead(name, lambda held: say("step"), threading.Event(), every=float(every))


def lead_one_step(name):
    """The step stops the leader."""
    def step(held):
        say("step")
        stop.set()

    stop = threading.Event()
    locks.lead(name, step, stop, every=0)
    say("stopped")


def lead_stubbornly(name, fifo):
    """The step goes on, after signals whose handler raises an exception, until somebody writes to
    the fifo."""
    def handle(*_):
        say("signal")
        sys.exit("handler")

    def step(held):
        say("step")
        with open(fifo, encoding="ascii") as file:
            file.read()

    signal.signal(signal.SIGTERM, handle)
    locks.lead(name, step, threading.Event())


def lead_in_thread(name, by, kind):
    """The main thread ends; if the leader's thread is a daemon, after the first step."""
    def step(held):
        held.transaction(lambda conn: insert(conn, by))
        stepped.set()

    stepped = threading.Event()
    threading.Thread(target=lambda: locks.lead(name, step, threading.Event(), every=3600),
                     daemon=kind == "daemon").start()
    if kind == "daemon":
        stepped.wait()
    say("main ends")


def lead_handler(name, by, every):
    """Stops with an exception of the signal handler, without the event."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("handler"))
    locks.lead(name, lambda held: held.transaction(lambda conn: insert(conn, by)),
               threading.Event(), every=float(every))


def once(job, tick, by):
    say("ran" if locks.run_once(job, tick, lambda conn: insert(conn, by)) else "has run")


def most(name, at_least):
    ran = locks.run_at_most_once(name, lambda held: say("works"), float(at_least))
    say("ran" if ran else "another")


def most_busy(name, other):
    """The work waits for another lock in vain."""
    locks.run_at_most_once(name, lambda held: locks.with_lock(other, say, timeout=0), 0)


def pooled(name):
    """Two transactions with the connection of a pool, whose rows are dictionaries."""
    extras = importlib.import_module("psycopg2.extras")
    pool = importlib.import_module("psycopg2.pool").SimpleConnectionPool(
        1, 1, sys.argv[2], cursor_factory=extras.RealDictCursor)
    pooled_locks = zklock.Locks(pool.getconn, pool.putconn)
    pids = {pooled_locks.with_lock(name, lambda conn: conn.info.backend_pid) for _ in range(2)}
    say(f"{len(pids)} {pool.getconn().autocommit}")


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    try:
        globals()[sys.argv[3]](*sys.argv[4:])
    except (zklock.Error, ValueError) as error:
        sys.exit(f"failed: {type(error).__name__}")
    except driver.Error as error:
        sys.exit(f"failed: {error.diag.sqlstate}")
