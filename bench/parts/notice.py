"""The time until a session handles an event in the ensemble, whatever its backend does.

The backend is idle, computes, or runs pg_sleep. The session's own thread reads the
event, as the multi-threaded client library did, which took about one round trip. A
round trip is measured, too; the limit is 100 ms more than a round trip.
"""

import socket
import threading
import time
from statistics import median

from kazoo.client import KazooClient

from lib.sessions import Sessions

STATES = {
    "idles": None,
    "computes": "DO $$ BEGIN LOOP NULL; END LOOP; END $$",
    "sleeps": "SELECT pg_sleep(600)"}
WATCHED = 1.5           # seconds until a held node is watched
LIMIT = 100             # ms


class Proxy:
    """A connection to the ensemble that can be closed."""

    def __init__(self, target):
        host, port = target.split(":")
        self.target = (host, int(port))
        self.sockets, self.listener, self.accepted = [], None, None
        self.port = 0
        self.open()

    def open(self):
        self.listener = socket.create_server(("127.0.0.1", self.port), reuse_port=True)
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.serve, args=(self.listener,), daemon=True).start()

    def serve(self, listener):
        while True:
            try:
                near, _ = listener.accept()
            except OSError:
                return
            self.accepted = time.monotonic()
            far = socket.create_connection(self.target)
            for one in near, far:
                one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.sockets += [near, far]
            for one, other in (near, far), (far, near):
                threading.Thread(target=pump, args=(one, other), daemon=True).start()

    def close(self):
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        while self.sockets:
            try:
                self.sockets.pop().shutdown(socket.SHUT_RDWR)
            except OSError:
                pass


def pump(one, other):
    try:
        while True:
            data = one.recv(65536)
            if not data:
                break
            other.sendall(data)
    except OSError:
        pass
    try:
        other.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass


def until(condition):
    """Waits until the condition holds; returns the time."""
    limit = time.monotonic() + 60
    while not condition():
        if time.monotonic() > limit:
            raise RuntimeError("nothing has happened for a minute")
    return time.monotonic()


class Backend:
    """A backend that holds a lock and is in the given state; a context."""

    def __init__(self, bench, client, state, proxy=None):
        self.bench, self.client, self.state = bench, client, state
        self.name = f"notice_{state}"
        options = {"options": f"-c zklock.connect_string=127.0.0.1:{proxy.port}"} if proxy else {}
        self.sessions = Sessions([bench.a], 1, **options)
        self.pid = self.sessions.connections[0].info.backend_pid
        self.sessions.run("SELECT zk_lock(%s)", lambda _: (self.name,))
        parent = f"/zklock/locks/{self.name}"
        (child,) = client.get_children(parent)
        self.path = f"{parent}/{child}"
        self.cursors = []

    def begin(self):
        if STATES[self.state]:
            self.cursors = self.sessions.start(STATES[self.state])
            time.sleep(0.1)

    def ended(self):
        """Returns the time when the statement failed."""
        try:
            self.sessions.wait(self.sessions.connections)
        except Exception:               # pylint: disable=broad-except
            return time.monotonic()
        raise RuntimeError("the statement did not fail")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.bench.a.query("SELECT pg_terminate_backend(%s, 5000)", self.pid)
        try:
            self.sessions.__exit__()
        except Exception:               # pylint: disable=broad-except
            pass


def ms(start, end):
    return (end - start) * 1000


def revocations(backend, number):
    """Measures until the holder writes its own data again, after it has read the request."""
    client, times = backend.client, []
    data = client.get(backend.path)[0]
    for _ in range(number):
        start = time.monotonic()
        client.set(backend.path, b"__REVOKE__")
        times.append(ms(start, until(lambda: client.get(backend.path)[0] == data)))
        time.sleep(0.05)
    return median(times)


def removal(backend):
    """Measures until the running statement has failed."""
    start = time.monotonic()
    backend.client.delete(backend.path)
    return ms(start, backend.ended())


def release(bench, client, state):
    """Measures a release while disconnected: from the reconnect until the node is deleted."""
    proxy = Proxy(bench.zk.connect_string)
    with Backend(bench, client, state, proxy) as backend:
        proxy.close()
        until(lambda: backend.sessions.run("SELECT state FROM zk_session()") == [("suspended",)])
        backend.sessions.run("SELECT zk_unlock(%s)", lambda _: (backend.name,))
        backend.begin()
        proxy.accepted = None
        proxy.open()
        gone = until(lambda: client.exists(backend.path) is None)
        took = ms(proxy.accepted, gone)
    proxy.close()
    return took


def one_round(bench, client, rounds):
    number = bench.size(20, 3)

    def note(what, took):
        rounds.setdefault(what, []).append(took)

    start = time.monotonic()
    for _ in range(number):
        client.get("/")
    note("a round trip of a client in Python", ms(start, time.monotonic()) / number)
    backends = [Backend(bench, client, state) for state in STATES]
    time.sleep(WATCHED)
    for backend in backends:
        with backend:
            backend.begin()
            note(f"a revocation is noted: the backend {backend.state}", revocations(backend, number))
            if STATES[backend.state]:
                note("a removed node fails the statement:"
                     f" the backend {backend.state}", removal(backend))
    for state in STATES:
        note("a release reaches the server, after a new connection:"
             f" the backend {state}", release(bench, client, state))


def measure(bench):
    result = bench.result("notice", "How soon a session handles what happens in the ensemble")
    client = KazooClient(bench.zk.connect_string)
    client.start(timeout=60)
    rounds = {}
    try:
        for _ in range(bench.rounds):
            one_round(bench, client, rounds)
    finally:
        client.stop()
    result.add_all("ms", rounds)
    for name, numbers in rounds.items():
        if "backend" in name:
            result.check("notice", f"{name}, ms", median(numbers), "at most", LIMIT)
    return result
