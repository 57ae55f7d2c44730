#!/usr/bin/python3
"""A second signal, whose handler raises an exception, at each moment after the first one: the lock
must be held until the step has ended. Python runs signal handlers when a function begins; here a
tracing function takes the place of the handler. Prints at how many moments that fails."""

import os
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "..", "clients", "python"))
import zklock                                                           # noqa: E402


class Signal(Exception):
    pass


class Canceller:
    """Lets the step end."""

    def __init__(self, conn):
        pass

    def request(self):
        cancels.append(True)

    def end(self):
        pass


class Stop:
    def is_set(self):
        sys.settrace(trace)
        raise Signal


def trace(frame, *_):
    if not ended:
        calls.append(frame.f_code.co_name)
        if len(calls) == moment:
            raise Signal


def step(_):
    while not cancels:
        time.sleep(0.001)
    ended.append(True)


zklock._Canceller = Canceller
moment, failed, calls = 0, 0, []
while moment <= len(calls):
    moment += 1
    calls, cancels, ended = [], [], []
    try:
        zklock._cancellable(None, Stop(), step)
    except Signal:
        pass
    sys.settrace(None)
    failed += not ended
    cancels.append(True)
print(f"{failed} of {moment}")
