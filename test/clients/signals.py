#!/usr/bin/python3
"""What lead() and hold() of the Python library do when signal handlers raise exceptions, with a
connection of its own in place of a driver's. A lock is held while a step runs, and released
afterwards. Prints how many checks fail."""

import contextlib
import gc
import os
import signal
import socket
import sys
import threading
import time
import types
import weakref


class DriverError(Exception):
    def __init__(self, text="", sqlstate=None):
        super().__init__(text)
        self.diag = types.SimpleNamespace(sqlstate=sqlstate)


driver = types.ModuleType("psycopg")
driver.Error = driver.OperationalError = driver.InterfaceError = DriverError
sys.modules["psycopg"], sys.modules["psycopg2"] = driver, None
sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "..", "clients", "python"))
import zklock                                                           # noqa: E402


class Signal(Exception):
    pass


class Second(Exception):
    """Of a signal handler, while lead() waits for the end of the step."""


class Problems(Exception):
    """An exception that is false, like an empty list."""

    def __len__(self):
        return 0


class Cursor:
    def __init__(self, conn):
        self._conn = conn

    def __enter__(self):
        return self

    def __exit__(self, *_):
        return None

    def execute(self, sql, _=None):
        if self._conn.closed:
            raise DriverError("the connection is closed")
        self._sql = sql
        if "zk_lock_wait" in sql:
            self._conn.is_locked = True

    def fetchone(self):
        return ["zk_revoked" not in self._sql]


class Connection:
    def __init__(self, run):
        self._run = run
        self._sockets = socket.socketpair()
        self.is_locked = self.closed = self.autocommit = False
        self.cancelled = threading.Event()
        run.conns.append(self)

    def fileno(self):
        return self._sockets[0].fileno()

    def cursor(self):
        return Cursor(self)

    def cancel(self):
        self.cancelled.set()

    def close(self):
        if self._run.in_step and not self.closed:
            self._run.problems.append("the lock is released while the step runs")
        self.closed = True


class Run:
    """One call of lead(), in which so many signals arrive at once in the first step; if
    `moment` is given, another one follows at this moment in the main thread."""

    def __init__(self, n_signals, moment=None):
        self.conns, self.problems = [], []
        self.in_step = False
        self.n_moments, self._moment = 0, moment
        self._signals = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1][:n_signals]
        for number in self._signals:
            signal.signal(number, self._handle)
        self.caught = None
        try:
            zklock.Locks(lambda: Connection(self)).lead("x", self._step, threading.Event(), every=0)
            self.problems.append("the signal is lost")
        except (Signal, Second) as error:
            self.caught = error         # and its traceback, as in a block that handles it
        except BaseException as error:
            self.problems.append(f"the caller gets {error!r}")
        sys.settrace(None)
        self._expect_end()

    def _handle(self, _, frame):
        frames = []
        while frame:
            frames.append(frame)
            frame = frame.f_back
        if not any(frame.f_code.co_filename == zklock.__file__ for frame in frames):
            return                                  # lead() has ended
        if self._moment is not None:
            for frame in frames:
                frame.f_trace = self._trace
            sys.settrace(self._trace)
        raise Signal

    def _trace(self, *_):
        self.n_moments += 1
        if self.n_moments == self._moment:
            raise Second
        return self._trace

    def _step(self, held):
        self.in_step = True
        if len(self._signals) > 1:
            sys.setswitchinterval(5)                # as a function in C that keeps the GIL
        time.sleep(0.001)
        for number in self._signals:
            os.kill(os.getpid(), number)
        sys.setswitchinterval(0.005)
        self._signals = []
        held.conn.cancelled.wait(10)
        self.in_step = False

    def _expect_end(self):
        if not all_close(self.conns):
            self.problems.append("the lock is not released")


def all_close(conns):
    """Are all connections closed, soon?"""
    end = time.monotonic() + 30
    while not all(conn.closed for conn in conns) and time.monotonic() < end:
        time.sleep(0.001)
    return all(conn.closed for conn in conns)


def moments():
    """A second signal at each moment after the first one."""
    moment, n_moments = 0, 1
    while moment < n_moments:
        moment += 1
        run = Run(1, moment)
        n_moments = max(n_moments, run.n_moments)
        check(not run.problems, f"moment {moment}: {run.problems}")


def second_signal():
    """The exception of a later signal replaces the first one: sys.exit() after a reload."""
    run = types.SimpleNamespace(conns=[], in_step=False, problems=[])
    handled = threading.Event()

    def handle(number, _):
        if number == signal.SIGTERM:
            handled.set()
        raise Signal if number == signal.SIGHUP else Second

    def step(held):
        os.kill(os.getpid(), signal.SIGHUP)
        held.conn.cancelled.wait(10)    # lead() waits for the end of the step
        os.kill(os.getpid(), signal.SIGTERM)
        handled.wait(10)

    for number in signal.SIGHUP, signal.SIGTERM:
        signal.signal(number, handle)
    caught = None
    try:
        zklock.Locks(lambda: Connection(run)).lead("x", step, threading.Event())
    except Exception as error:
        caught = error
    check(isinstance(caught, Second), f"after a second signal the caller gets {caught!r}")
    check(run.conns[0].closed, "the lock is not released after a second signal")


def failures():
    """An error of the step reaches the caller, and nothing keeps the objects of the step."""
    run = types.SimpleNamespace(conns=[], in_step=False, problems=[])
    kept = []

    def step(held):
        kept.append(weakref.ref(held))
        raise Problems

    gc.disable()
    try:
        zklock.Locks(lambda: Connection(run)).lead("x", step, threading.Event())
        check(False, "an exception that is false is lost")
    except Problems:
        check(run.conns[0].closed, "the lock is released")
    check(kept[0]() is None, "an object of a failed step stays")
    gc.enable()


def signal_in_hold():
    """A signal at each moment of the call of hold(): no lock is left, although a pool, as this
    list, keeps the connections."""
    moment, is_in_block = 0, False
    while not is_in_block:
        moment += 1
        run = types.SimpleNamespace(conns=[], in_step=False, problems=[], n=0)

        def trace(_, event, __):
            run.n += event in ("call", "line")
            if run.n == moment and event in ("call", "line"):
                raise Signal
            return trace

        try:
            sys.settrace(trace)
            with zklock.Locks(lambda: Connection(run)).hold("x"):
                sys.settrace(None)
                is_in_block = True
        except Signal:
            pass
        finally:
            sys.settrace(None)
        check(all_close(run.conns), f"hold(), moment {moment}: a lock is left")


def threads_run():
    """All threads run when hold() ends, because CPython crashes if it exits before. Here they run
    late: without a signal, stopped before, with a signal meanwhile, and at each moment of _run()."""
    start = zklock._thread.start_new_thread
    delay, waits = 0.2, []

    def start_late(function, args):
        def late():
            time.sleep(delay)
            waits.pop()
            function(*args)

        waits.append(function)
        return start(late, ())

    def handle(*_):
        raise Signal

    signal.signal(signal.SIGALRM, handle)
    zklock._thread = types.SimpleNamespace(allocate_lock=zklock._thread.allocate_lock, start_new_thread=start_late)
    for how in "undisturbed", "stopped", "with a signal":
        run = types.SimpleNamespace(conns=[], in_step=False, problems=[])
        stop = threading.Event()
        if how == "stopped":
            stop.set()
        with contextlib.suppress(Signal, zklock.Stopped):
            if how == "with a signal":
                signal.setitimer(signal.ITIMER_REAL, 0.1)
            with zklock.Locks(lambda: Connection(run)).hold("x", stop=stop):
                check(how == "undisturbed", f"hold() {how} goes on")
        check(not waits, f"hold() {how} ends before the threads {waits} run")
        check(all_close(run.conns), f"hold() {how} leaves a lock")

    delay = 0.01
    for moment in range(1, 60):
        n = 0
        run = types.SimpleNamespace(conns=[], in_step=False, problems=[])

        def trace(frame, event, _):
            nonlocal n
            frame.f_trace_opcodes = frame.f_code.co_name == "_run"
            n += event == "opcode"
            if event == "opcode" and n == moment:
                raise Signal
            return trace

        with contextlib.suppress(Signal):
            sys.settrace(trace)
            with zklock.Locks(lambda: Connection(run)).hold("x"):
                sys.settrace(None)
        sys.settrace(None)
        check(not waits, f"hold(), opcode {moment}: ends before its threads run")
        check(all_close(run.conns), f"hold(), opcode {moment}: leaves a lock")


def check(is_good, text):
    results.append(is_good)
    if not is_good:
        print(text, file=sys.stderr)


results = []
for n in 1, 2, 3, 4:
    problems = Run(n).problems
    check(not problems, f"{n} signals: {problems}")
moments()
second_signal()
failures()
signal_in_hold()
threads_run()
print(f"{len(results) - sum(results)} of {len(results)}")
