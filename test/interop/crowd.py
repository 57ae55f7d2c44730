"""One member of a crowd that reports its holds to the referee (ZkLock::Referee).

Owns: the protocol with the referee. Crowd.java is the same in Java.
"""

import socket
import time


class Crowd:
    """Arguments, as strings: the referee's port; the claim: member, resource, mode;
    and three times in milliseconds: duration of the run, of a hold, and of the pause
    after it. A member that has held nothing at the end of the run continues, with
    fewer and fewer contenders, for at most a minute."""

    GRACE = 60

    def __init__(self, port, *arguments):
        who, resource, mode, *times = arguments
        self.socket = socket.create_connection(("127.0.0.1", int(port)))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.claim = "%s %s %s" % (who, resource, mode)
        duration, self.hold, self.pause = [int(t) / 1000 for t in times]
        self.end = time.monotonic() + duration
        self.turns = self.misses = 0

    def goes_on(self):
        grace = 0 if self.turns else self.GRACE
        return time.monotonic() < self.end + grace

    def turn(self):
        self.tell("enter")
        time.sleep(self.hold)
        self.tell("leave")
        self.turns += 1

    def rest(self):
        time.sleep(self.pause)

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
