"""Cluster-wide locks of zklock for programs with psycopg 2 or psycopg 3.

Copy this file into your program. It needs Python 3.8 and one of the two drivers.

    locks = Locks(lambda: psycopg.connect(DSN))
    locks.with_lock("shop:invoices", book)                  # book(conn) in one transaction
    with locks.hold("shop:nightly") as held: ...            # several transactions
    locks.lead("shop:leader", step, stop)                   # a leader
    locks.run_once("shop:report", "2030-01-01", report)     # a job, once for each tick

A transaction commits once or not at all: it is repeated only after an attempt that certainly
did not commit. If the connection breaks during COMMIT, the program cannot know whether the
server has committed: CommitUnknown. If you must go on then, give the work an ID and pass it to
run_once() as the tick, again after CommitUnknown: the ID is committed together with the work.
Effects outside the database, such as a mail, can happen several times: the manual has a recipe
for a job that must not repeat them. Or pass the fencing token (zk_fence, Held.token) with them.

Behind a pooler in transaction mode only with_lock() and run_once() work (psycopg 3:
prepare_threshold=None; 0 does not work anywhere). hold(), lead() and run_at_most_once() need a
session of their own.
"""

from __future__ import annotations

import _thread
import importlib
import logging
import os
import random
import socket
import threading
import time
import weakref
from contextlib import ExitStack, contextmanager, suppress
from operator import methodcaller
from typing import Any, Callable, Iterator, List, Optional, Tuple, Type, TypeVar

T = TypeVar("T")
Connection = Any                        # of psycopg2 or psycopg

_log = logging.getLogger("zklock")


def _of_drivers(name: str) -> Tuple[Type[Exception], ...]:
    found = []
    for driver in "psycopg", "psycopg2":
        with suppress(ImportError):
            found.append(getattr(importlib.import_module(driver), name))
    return tuple(found)


_ERRORS = _of_drivers("Error")
_CONNECTION_ERRORS = _of_drivers("OperationalError") + _of_drivers("InterfaceError")

# SQLSTATEs after which a transaction is repeated: with the same session, or with another one
# because the ensemble did not answer, or the server stops, starts, is full, is a standby, or has
# ended a session that was idle.
_AGAIN = {"40001", "40P01"}
_AGAIN_ELSEWHERE = _AGAIN | {"08001", "08006", "57P01", "57P02", "57P03", "57P05", "53300", "25006"}

# PQTRANS_IDLE, PQTRANS_INTRANS and PQTRANS_INERROR of libpq. A closed connection has none of them.
_IDLE, _IN_TRANSACTION, _FAILED = 0, 2, 3

# The server notices the death of the program within 2 seconds, and that of its machine within 25.
# The program notices that of the server's machine within 15: before the lock can go to another one.
_WATCH_CLIENT = """
SET {0} client_connection_check_interval = '2s'; SET {0} tcp_keepalives_idle = 10;
SET {0} tcp_keepalives_interval = 5; SET {0} tcp_user_timeout = '25s';
"""

_WATCH_SERVER = (("SOL_SOCKET", "SO_KEEPALIVE", 1), ("IPPROTO_TCP", "TCP_KEEPIDLE", 5),
                 ("IPPROTO_TCP", "TCP_KEEPINTVL", 5), ("IPPROTO_TCP", "TCP_KEEPCNT", 2),
                 ("IPPROTO_TCP", "TCP_USER_TIMEOUT", 15000))

# In REPEATABLE READ the data can be older than the lock.
_BEGIN = "BEGIN ISOLATION LEVEL READ COMMITTED;" + _WATCH_CLIENT.format("LOCAL")

# No timeout ends a session that waits for a lock.
_LONG_SESSION = _WATCH_CLIENT.format("SESSION") + (
    "SET statement_timeout = 0; SET lock_timeout = 0")


class Error(Exception):
    """The base of the errors below. All other errors are those of the driver."""


class LockTimeout(Error):
    """Another session held the lock until the timeout. The work did not run."""


class LockLost(Error):
    """The session no longer holds the lock, or its connection is broken."""


class NotCommitted(Error):
    """The work caught the error of a statement, or ended the transaction itself."""


class CommitUnknown(Error):
    """The connection broke during COMMIT: the transaction may have been committed."""


class Stopped(Error):
    """The event `stop` ended the wait for the lock, or a check of it was cancelled."""


_STEP_DOWN: Tuple[Type[Exception], ...] = (Stopped, LockLost, CommitUnknown) + _ERRORS


class Locks:
    """Locks, through connections that `connect` opens, one for each call.

    `release` receives a connection after use; the default closes it. With a pool:
    Locks(pool.getconn, pool.putconn). After a restart of the server each attempt may get one of
    the broken connections of the pool: let the pool check them, or set `attempts` to more than
    their number. Threads can share a Locks object; hold() and lead() call `connect` in a second
    thread. Set connect_timeout in the connection string, and target_session_attrs=read-write if it
    lists several servers.
    """

    def __init__(self, connect: Callable[[], Connection],
                 release: Callable[[Connection], Any] = methodcaller("close")) -> None:
        self._connect = connect
        self._release = release

    def with_lock(self, name: str, work: Callable[[Connection], T], *,
                  timeout: Optional[float] = 30.0, attempts: int = 5) -> T:
        """Runs work(conn) in a transaction that holds the lock, and commits; returns the result.

        Waits at most `timeout` seconds for the lock (None: no limit), then raises LockTimeout, as
        after lock_timeout. Repeats the transaction, up to `attempts`, if the lock was lost
        (40001), after a serialization failure or a deadlock, and with a new connection if the
        connection or the ensemble failed before COMMIT was sent. The pauses grow to 1.6 s at
        most, so the restart of a server can outlast them. Raises CommitUnknown if it failed
        during COMMIT. 57014 is raised: it may be your cancel or statement_timeout; if it is not, call
        with_lock again. A signal handler runs after the wait for the lock. The work must not catch
        errors of statements, and must not end the transaction. A call inside the work uses
        another session, which waits for its caller if the name is the same.
        """
        def lock(conn: Connection) -> None:
            with _lock_timeout(name):
                if timeout is None:
                    _value(conn, "SELECT zk_xact_lock(%s)", name)
                elif not _value(conn, "SELECT zk_try_xact_lock(%s, %s::interval)",
                                name, f"{timeout:f} s"):
                    raise LockTimeout(f"another session holds the lock {name!r}")

        def attempt() -> T:
            with self._connection() as conn:
                return _transaction(conn, _BEGIN, lock, work)

        return _repeat(attempt, attempts, _can_reconnect)

    @contextmanager
    def hold(self, name: str, *, timeout: Optional[float] = None,
             stop: Optional[threading.Event] = None, attempts: int = 5) -> Iterator[Held]:
        """Holds the lock during a `with` block at session level, with a connection of its own.

        The wait needs no snapshot and no transaction, and keeps its place in the queue. It ends
        after `timeout` seconds (LockTimeout), when `stop` is set (Stopped), and when a signal
        handler raises an exception, but not two at one moment. The end of the block raises LockLost if the lock was lost
        and the block has not noticed it. In this session statement_timeout and lock_timeout are
        off; idle_session_timeout counts also while the lock is held.
        """
        conns: List[Connection] = []

        def acquire(task: _Task) -> None:
            conns.append(self._acquire(task, name, timeout))
            if task.is_abandoned():
                self._close(conns.pop())

        try:
            _repeat(lambda: _Task(stop).run(acquire), attempts, _can_reconnect)
            held = Held(conns[0], name)
            yield held
            held._unlock()
        finally:
            for conn in conns:
                self._close(conn)

    def lead(self, name: str, step: Callable[[Held], Any], stop: threading.Event, *,
             every: float = 1.0) -> None:
        """Calls step(held) while this process is the leader, until `stop`; pauses `every` seconds
        between the end of a step and the next one.

        A step reads in the database what to do, because the step before may have been that of
        another process, and writes in held.transaction(), which is safe from former leaders.
        If the lock is lost, the server cancels the running statement of the step; between the
        steps the session checks the lock each second. A step that works elsewhere for long
        calls held.check(). After a loss, a broken connection or CommitUnknown, and when a release
        was requested (zk_revoke) and the step has ended, the process is a candidate again, behind
        the others. Other errors of a step are raised. A server that cannot be reached, or
        refuses the connection, is tried again for ever; each attempt is logged.

        To stop at SIGTERM: signal.signal(signal.SIGTERM, lambda *_: stop.set()). That ends the
        wait for the lock, and cancels the running statement of the step on held.conn, which
        therefore runs in a second thread: a step that has changed something elsewhere records it
        through a connection of its own. Returns when the step has ended and the lock is released,
        or, after a cancel, will be at once.

        A program that hangs stays the leader, or becomes it: let a watchdog kill it, such as
        systemd's, or let `connect` set idle_session_timeout, to some seconds at least.
        """
        def session(task: _Task) -> None:
            conn = self._acquire(task, name, None)
            try:
                held = Held(conn, name)
                while not (task.must_end() or held.revoked()):
                    step(held)
                    held._pause(every, task.must_end, held.revoked)
                is_revoked = held.revoked()
                held._unlock()
                if is_revoked:
                    _log.warning("not the leader of %s: a release was requested", name)
            except CommitUnknown as error:      # a signal handler's exception could replace it
                _log.warning("not the leader of %s: %s", name, error)
                raise
            finally:
                self._close(conn)       # in this thread: the step has ended

        while not stop.is_set():
            try:
                _Task(stop).run(session)
            except _STEP_DOWN as error:
                cancelled = stop.is_set() and _sqlstate(error) == "57014"
                if isinstance(error, _ERRORS) and not cancelled and not _can_reconnect(error):
                    raise
                if not (stop.is_set() or isinstance(error, CommitUnknown)):
                    _log.warning("not the leader of %s: %s", name, str(error).strip())
            _sleep(random.uniform(0, 2), stop.is_set)

    def run_once(self, job: str, tick: str, work: Callable[[Connection], Any], *,
                 timeout: Optional[float] = None, attempts: int = 5) -> bool:
        """Runs work(conn) if it has not run for this tick; returns whether this call ran it.

        All workers connect to one database, which has a table of the runs:

            CREATE TABLE job_runs (job text, tick text, run_at timestamptz DEFAULT now(),
                                   PRIMARY KEY (job, tick));

        Work and record are one transaction, as in with_lock(). The other workers wait for it; if
        the worker dies, the next one runs the work. Call it again after CommitUnknown: it returns
        False if the first call has committed. A job of hours uses hold(), and records its tick in
        its last transaction.
        """
        def record_and_work(conn: Connection) -> bool:
            with conn.cursor() as cursor:
                cursor.execute("INSERT INTO job_runs (job, tick) VALUES (%s, %s) "
                               "ON CONFLICT DO NOTHING", (job, tick))
                if cursor.rowcount == 0:
                    return False
            work(conn)
            return True

        return self.with_lock(job, record_and_work, timeout=timeout, attempts=attempts)

    def run_at_most_once(self, name: str, work: Callable[[Held], Any], at_least: float) -> bool:
        """Runs work(held) unless another worker holds the lock; returns whether it ran.

        For workers whose databases have no table in common. The lock is held for `at_least`
        seconds: longer than the starts of one tick differ between the machines, and shorter
        than the time between two ticks. If the worker dies, the work may remain undone.
        """
        with ExitStack() as block:
            try:
                held = block.enter_context(self.hold(name, timeout=0))
            except LockTimeout:
                return False
            end = time.monotonic() + at_least
            work(held)
            held.pause(end - time.monotonic())
        return True

    def _open(self) -> Connection:
        conn = self._connect()
        with suppress(OSError, *_ERRORS):       # if it is broken, the first statement fails
            _watch_server(conn)
        return conn

    @contextmanager
    def _connection(self) -> Iterator[Connection]:
        conn = self._open()
        try:
            _require_idle(conn)
            autocommit, conn.autocommit = conn.autocommit, True
            try:
                yield conn
            finally:
                # An error from here on must not hide what has become of the transaction.
                with suppress(*_ERRORS):
                    if conn.info.transaction_status == _IDLE:
                        conn.autocommit = autocommit
                    else:
                        conn.close()
        finally:
            with suppress(*_ERRORS):
                self._release(conn)

    def _acquire(self, task: _Task, name: str, timeout: Optional[float]) -> Connection:
        conn = self._open()
        try:
            task.use(conn)
            conn.autocommit = True
            with _lock_timeout(name), conn.cursor() as cursor:
                cursor.execute(_LONG_SESSION)
                cursor.execute("CALL zk_lock_wait(%s, %s::interval)",
                               (name, None if timeout is None else f"{timeout:f} s"))
            return conn
        except BaseException as error:
            self._close(conn)
            if isinstance(error, _ERRORS) and task.must_end():
                raise Stopped(f"stopped waiting for the lock {name!r}") from error
            raise

    def _close(self, conn: Connection) -> None:
        conn.close()                    # releases the lock
        with suppress(*_ERRORS):        # as in _connection()
            self._release(conn)         # a pool discards a closed connection


class Held:
    """A lock that a session holds; its connection, in autocommit mode; its fencing token.

    For one thread at a time.
    """

    def __init__(self, conn: Connection, name: str) -> None:
        self.conn = conn
        self.name = name
        self.token: int = self._query("SELECT zk_lock_token(%s)")

    def transaction(self, work: Callable[[Connection], T], *, attempts: int = 5) -> T:
        """Runs work(conn) in a transaction, and commits; returns the result.

        The transaction is fenced: it cannot commit after one of a later holder. It is repeated
        after 40001 and 40P01 while the lock is held. Raises LockLost, or what with_lock() does.
        """
        def can_repeat(error: BaseException) -> bool:
            self.check()
            return _sqlstate(error) in _AGAIN

        def fence(conn: Connection) -> None:
            _value(conn, "SELECT zk_fence(%s)", self.name)

        return _repeat(lambda: _transaction(self.conn, "BEGIN", fence, work), attempts, can_repeat)

    def check(self) -> None:
        """Raises LockLost if the lock was lost, or the server's machine was cut off 15 seconds ago;
        Stopped if the check was cancelled. Costs one statement, and no request to the ensemble:
        the server itself watches the lock."""
        if self._query("SELECT zk_lock_token(%s)") != self.token:
            raise LockLost(f"the lock {self.name!r} was lost")

    def revoked(self) -> bool:
        """Returns whether another session has requested the release of the lock (zk_revoke). A
        leader gives up the leadership between two steps then; a long step or a job of hold() asks."""
        return self._query("SELECT zk_revoked(%s)")

    def pause(self, seconds: float, stop: Optional[threading.Event] = None) -> None:
        """Waits until the time has passed or `stop` is set, and checks the lock each second, and
        at the end of the time."""
        self._pause(seconds, (stop or threading.Event()).is_set)

    def _pause(self, seconds: float, must_end: Callable[[], bool],
               ends: Callable[[], bool] = lambda: False) -> None:
        end = time.monotonic() + seconds
        while not _sleep(min(end - time.monotonic(), 1), must_end):
            self.check()
            if time.monotonic() >= end or ends():
                return

    def _unlock(self) -> None:
        if not self._query("SELECT zk_unlock(%s)"):
            raise LockLost(f"the lock {self.name!r} was lost")

    def _query(self, sql: str) -> Any:
        try:
            return _value(self.conn, sql, self.name)
        except _ERRORS as error:
            if _sqlstate(error) == "57014":
                raise Stopped(f"a check of the lock {self.name!r} was cancelled") from error
            if not _can_reconnect(error) and not self.conn.closed:
                raise
            raise LockLost(f"the lock {self.name!r} was lost: {str(error).strip()}") from error


def _value(conn: Connection, sql: str, *args: Any) -> Any:
    with conn.cursor() as cursor:
        cursor.execute(sql, args)
        row = cursor.fetchone()
        return next(iter(row.values())) if isinstance(row, dict) else row[0]


def _sqlstate(error: Any) -> Optional[str]:
    """Returns the SQLSTATE that the server has reported; a broken connection has none."""
    return error.diag.sqlstate if isinstance(error, _ERRORS) else None


def _can_reconnect(error: BaseException) -> bool:
    state = _sqlstate(error)
    return state in _AGAIN_ELSEWHERE or state is None and isinstance(error, _CONNECTION_ERRORS)


@contextmanager
def _lock_timeout(name: str) -> Iterator[None]:
    try:
        yield
    except _ERRORS as error:
        if _sqlstate(error) == "55P03":
            raise LockTimeout(f"another session holds the lock {name!r}") from error
        raise


def _repeat(function: Callable[[], T], attempts: int,
            can_repeat: Callable[[BaseException], bool]) -> T:
    attempt = 1
    while True:
        try:
            return function()
        except _ERRORS as error:
            if not can_repeat(error) or attempt >= attempts:
                raise
            _log.info("attempt %d: %s, trying again", attempt,
                      _sqlstate(error) or str(error).strip())
        time.sleep(random.uniform(0, min(0.1 * 2**attempt, 1.6)))
        attempt += 1


def _sleep(seconds: float, must_end: Callable[[], bool]) -> bool:
    """Returns whether it must end. A thread that waits for an Event has a lock of it for moments,
    and a signal handler in this thread would wait for that lock for ever."""
    end = time.monotonic() + seconds
    while not must_end() and time.monotonic() < end:
        time.sleep(min(max(end - time.monotonic(), 0), 0.1))
    return must_end()


def _require_idle(conn: Connection) -> None:
    if conn.info.transaction_status in (_IN_TRANSACTION, _FAILED):
        raise ValueError("the connection is in a transaction already")


def _transaction(conn: Connection, begin: str, lock: Callable[[Connection], None],
                 work: Callable[[Connection], T]) -> T:
    """Sends BEGIN and COMMIT itself: conn.commit() does not report that COMMIT rolled back."""
    _require_idle(conn)
    try:
        conn.cursor().execute(begin)
        lock(conn)
        result = work(conn)
        if conn.info.transaction_status != _IN_TRANSACTION:
            raise NotCommitted("the work caught an error or ended the transaction")
        _commit(conn)
        return result
    finally:
        with suppress(*_ERRORS):
            if conn.info.transaction_status != _IDLE:
                conn.cursor().execute("ROLLBACK")


def _commit(conn: Connection) -> None:
    try:
        conn.cursor().execute("COMMIT")
    except _ERRORS as error:
        # If the connection is in order after an error of COMMIT, the server has rolled back.
        if conn.info.transaction_status != _IDLE:
            raise CommitUnknown("the connection broke during COMMIT") from error
        raise


def _socket_of(conn: Connection) -> socket.socket:
    return socket.socket(fileno=os.dup(conn.fileno()))


def _watch_server(conn: Connection) -> None:
    with _socket_of(conn) as connection:
        if connection.family != socket.AF_UNIX:
            for level, option, value in _WATCH_SERVER:
                if hasattr(socket, option):         # not all systems have all of them
                    connection.setsockopt(getattr(socket, level), getattr(socket, option), value)


class _Flag:
    """As threading.Event, set once, for one waiting thread. A signal handler that raises an
    exception can leave an Event locked; the only lock here is not one that protects something."""

    def __init__(self) -> None:
        self._is_set = False
        self._lock = _thread.allocate_lock()
        self._lock.acquire()

    def set(self) -> None:
        self._is_set = True
        self._lock.release()

    def is_set(self) -> bool:
        return self._is_set

    def wait(self, timeout: float) -> None:
        self._lock.acquire(timeout=timeout)


class _Task:
    """A function in a second thread, whose statements are cancelled when `stop` is set, or when a
    signal handler raises an exception in the first thread.

    psycopg2 waits for the server in libpq, where a thread runs no signal handlers. Several
    exceptions at one moment can end run() before the function has ended. So the function itself
    closes its connection, and also ends when the frame of run() is gone. Nothing here depends on
    the locks of threading.Thread, which an exception can leave locked. The start of a
    thread waits until the thread runs: CPython crashes if the program exits in between.
    """

    class _Waiter:
        """The first thread, while it is in run()."""

    def __init__(self, stop: Optional[threading.Event]) -> None:
        self._stop = stop or threading.Event()
        self._waiter: Callable[[], Optional[_Task._Waiter]] = lambda: None
        self._is_left = False           # by the first thread
        self._started: List[int] = []   # the second thread
        self._runs = False
        self._ended = _Flag()
        self._watch_runs = _Flag()
        self._watched = _Flag()
        self._failures: List[BaseException] = []
        self._interrupts: List[BaseException] = []
        self._conn: Connection = None
        self._server: Any = None        # family and address, unless it is this machine
        self._is_cancelled = False

    def is_abandoned(self) -> bool:
        return self._waiter() is None

    def must_end(self) -> bool:
        return self._is_left or self._stop.is_set() or self._waiter() is None

    def use(self, conn: Connection) -> None:
        """From now on statements of this connection are cancelled, in a third thread, because
        a request to a host that is cut off blocks."""
        with suppress(OSError), _socket_of(conn) as connection:     # the connection is broken
            if connection.family != socket.AF_UNIX:
                self._server = connection.family, connection.getpeername()
        self._conn = conn
        if self.must_end():
            raise Stopped("stopped while connecting")
        _thread.start_new_thread(self._watch, ())
        while not self._watch_runs.is_set():
            self._watch_runs.wait(0.2)

    def _watch(self) -> None:
        self._watch_runs.set()
        while not self._ended.is_set():
            if self.must_end():
                self._is_cancelled = True       # before the next line: see _run()
                if not self._ended.is_set():
                    self._request_cancel()
            self._watched.wait(0.2)

    def run(self, function: Callable[[_Task], None]) -> None:
        """Calls function(task); raises what it has raised, or Stopped if it was cancelled."""
        # Not in a variable: a traceback would keep it.
        (self._new_waiter(), self._run(function))

    def _new_waiter(self) -> _Task._Waiter:
        waiter = self._Waiter()
        self._waiter = weakref.ref(waiter)
        return waiter

    def _run(self, function: Callable[[_Task], None]) -> None:
        try:
            # One call in C: no signal handler's exception comes between the start and its record.
            self._started.extend(map(_thread.start_new_thread, (self._call,), ((function,),)))
            while not (self._stop.is_set() or self._ended.is_set()):
                self._ended.wait(0.2)
        finally:
            self._is_left = True
            self._end()
            # These lists also avoid that an exception refers to itself, and so to the connection.
            if self._interrupts:
                raise self._interrupts.pop()
        if self._failures:
            raise self._failures.pop()
        if self._is_cancelled or not self._ended.is_set():
            raise Stopped("stopped")    # a late cancel could hit what follows

    def _call(self, function: Callable[[_Task], None]) -> None:
        self._runs = True
        try:
            function(self)
        except BaseException as error:
            self._failures.append(error)
        self._ended.set()
        self._watched.set()

    def _end(self) -> None:
        """Waits until the function has ended, also if signal handlers raise more exceptions. A
        cancel between two statements has no effect; therefore it is repeated."""
        is_waiting = True
        while is_waiting:
            try:
                while not self._ended.is_set() and (
                        self._conn is not None or (self._started and not self._runs)):
                    self._ended.wait(0.2)
                is_waiting = False
            except BaseException as error:
                self._interrupts.append(error)

    def _request_cancel(self) -> None:
        """That of psycopg2 blocks all threads, so this first tries to connect to the host."""
        with suppress(Exception):       # it is repeated
            if self._server:
                family, address = self._server
                with socket.socket(family, socket.SOCK_STREAM) as probe:
                    probe.settimeout(2)
                    probe.connect(address)      # with the scope of a link-local address
            self._conn.cancel()
