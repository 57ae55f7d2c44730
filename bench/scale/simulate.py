#!/usr/bin/python3
"""Simulates the failure of a leader for more sessions than one machine can run.

    simulate.py [--timeout SECONDS] [--election SECONDS] [--rate SESSIONS] [N ...]

Each of N sessions pauses for a random time after the loss of its connection, and again after a
server has refused it, as src/recipe/zookeeper/zk_connection.c does. The servers refuse
connections until the election is over. Then they serve sessions in the order of arrival, --rate a
second in all; a session whose attempt takes too long tries again. Prints what part of the sessions
tries to connect in the busiest 100 ms, and when the last lock is confirmed. The defaults of
--election and --rate are those of the measurement "scale" with 2,000 sessions.
"""

import argparse
import heapq
import random
from collections import Counter

WINDOW = 0.1


def spread(timeout):
    """The pause after a connection that has lasted."""
    return random.uniform(0, min(timeout / 10, 1.5))


def after_refusal(timeout):
    least = min(timeout / 20, 0.5)
    return random.uniform(least, 2 * least)


def simulate(n, timeout, election, rate):
    """Returns the attempts in the busiest window, and the times until half and all are back."""
    attempts = [(spread(timeout), 0) for _ in range(n)]
    heapq.heapify(attempts)
    windows, back, free = Counter(), [], election
    while attempts:
        now, failures = heapq.heappop(attempts)
        windows[int(now / WINDOW)] += 1
        # The limit of an attempt: half of what is left of half the timeout (zkl_zk_begin_attempt).
        limit = max(timeout / 20, (timeout / 2 - now) / 2)
        if now < election:
            heapq.heappush(attempts, (now + after_refusal(timeout), failures))
        elif free - now > limit:
            pause = min(0.25 * 2 ** failures, timeout / 6)
            heapq.heappush(attempts, (now + limit + random.uniform(pause / 2, pause),
                                      failures + 1))
        else:
            free = max(free, now) + 1 / rate
            back.append(free)
    back.sort()
    return max(windows.values()), back[n // 2], back[-1]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--timeout", type=float, default=20)
    parser.add_argument("--election", type=float, default=0.8)
    parser.add_argument("--rate", type=float, default=1170)
    parser.add_argument("sizes", type=int, nargs="*", default=[2000, 20000])
    options = parser.parse_args()
    random.seed(1)
    for n in options.sizes:
        busiest, half, last = simulate(n, options.timeout, options.election, options.rate)
        print(f"{n:,} sessions: {busiest / n:.3f} of them in the busiest {WINDOW * 1000:.0f} ms;"
              f" half confirmed after {half:.1f} s, all after {last:.1f} s")


if __name__ == "__main__":
    main()
