"""One member of a crowd that tells the referee (ZkLock::Referee) of its turns.

Owns: the conversation with the referee. See Crowd.java, which is the same.
"""

import socket
import time


class Crowd:
    """As strings: the referee's port, who this is, the resource, the mode,
    and how long to go on, and how long a turn lasts, both in milliseconds."""

    def __init__(self, port, who, resource, mode, duration, hold):
        self.socket = socket.create_connection(("127.0.0.1", int(port)))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.claim = "%s %s %s" % (who, resource, mode)
        self.end = time.monotonic() + int(duration) / 1000
        self.hold = int(hold) / 1000
        self.turns = self.misses = 0

    def goes_on(self):
        return time.monotonic() < self.end

    def turn(self):
        self.tell("enter")
        time.sleep(self.hold)
        self.tell("leave")
        self.turns += 1

    def missed(self):
        self.misses += 1

    def result(self):
        return [self.turns, self.misses]

    def tell(self, verb):
        self.socket.sendall(("%s %s\n" % (verb, self.claim)).encode())
        if not self.socket.recv(64).endswith(b"\n"):
            raise OSError("the referee has left")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()
