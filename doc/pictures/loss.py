#!/usr/bin/python3
"""Draws loss.svg: the life of a lock whose holder is cut off. Who knows what, and when?

    loss.py            writes loss.svg beside this file
    loss.py --check    fails if loss.svg is not what this would write

The times are fractions of the session timeout T, read from the source that decides them.
"""

import os
import re
import sys
from fractions import Fraction

HERE = os.path.dirname(os.path.abspath(__file__))
LEASE = os.path.join(HERE, "..", "..", "src", "recipe", "session", "lease_clock.c")
# Of the ensemble: the tick of the default settings, with T = 10 s; a session expires at the latest
# T and one and a half ticks after its last heartbeat.
TICK = Fraction(1, 5)

WIDTH, LEFT, RIGHT = 960, 150, 30
FIRST, LAST = Fraction(-1, 5), Fraction(7, 5)


def fraction_of(pattern):
    """Finds the numerator and denominator of the one place in the source that has them."""
    with open(LEASE, encoding="utf-8") as source:
        found = re.findall(pattern, source.read())
    if len(found) != 1:
        sys.exit(f"loss.py: {pattern}: {len(found)} places in lease_clock.c")
    numbers = found[0] if isinstance(found[0], tuple) else ("1", found[0])
    return Fraction(int(numbers[0]), int(numbers[1]))


PROOF = fraction_of(r"zkl__clock_interval\(.*\)\n\{\n\treturn clock->timeout_ms / (\d+);")
LEASE_END = fraction_of(r"lease_length\(.*\)\n\{\n\treturn clock->timeout_ms / (\d+);")
RESERVE = LEASE_END * fraction_of(r"return lease_length\(clock\) / (\d+);")
TRUST = fraction_of(r"at_most = write->submitted_ms \+ clock->timeout_ms \* (\d+) / (\d+);")
EXPIRY, LATEST = Fraction(1), 1 + TICK * 3 / 2


def x_of(time):
    return round(LEFT + (WIDTH - LEFT - RIGHT) * float((time - FIRST) / (LAST - FIRST)), 1)


def label(time):
    if time.numerator == 0:
        return "0"
    return ("" if time.numerator == 1 else str(time.numerator)) + "T" + (
        "" if time.denominator == 1 else f"/{time.denominator}")


def text(x, y, words, kind="", anchor="middle"):
    return f'<text x="{x}" y="{y}" class="{kind}" text-anchor="{anchor}">{words}</text>'


def span(start, end, y, kind, words):
    x, right = x_of(start), x_of(end)
    return (f'<rect x="{x}" y="{y}" width="{round(right - x, 1)}" height="36" class="{kind}"/>'
            + text(round((x + right) / 2, 1), y + 22, words))


def mark(time, top, bottom, kind="line"):
    return f'<line x1="{x_of(time)}" y1="{top}" x2="{x_of(time)}" y2="{bottom}" class="{kind}"/>'


def draw():
    out = []
    for y, words in (90, "the holder"), (170, "the ensemble"), (250, "the next session"):
        out.append(text(LEFT - 12, y + 22, words, "lane", "end"))
    out += [
        # The holder
        span(FIRST, RESERVE, 90, "good", "commits"),
        span(RESERVE, TRUST, 90, "ask", "works; a commit must ask"),
        span(TRUST, LAST, 90, "stop", "lost: statement cancelled, COMMIT: 40001"),
        # The ensemble
        span(FIRST, EXPIRY, 170, "good", "the session lives: the lock is the holder's"),
        span(EXPIRY, LATEST, 170, "ask", "it expires"),
        span(LATEST, LAST, 170, "stop", ""),
        # The next session
        span(FIRST, EXPIRY, 250, "idle", "waits"),
        span(EXPIRY, LATEST, 250, "ask", "is granted"),
        span(LATEST, LAST, 250, "good", ""),
    ]
    for time, words in ((-PROOF, "proof"), (Fraction(0), "last proof"), (PROOF, "no answer"), (2 * PROOF, "other servers")):
        out += [mark(time, 126, 170, "proof" if time <= 0 else "lost"), text(x_of(time) + 3, 152, words, "small", "start")]
    cut = Fraction(1, 24)
    out += [mark(cut, 46, 300, "cut"), text(x_of(cut) + 4, 42, "cut off here", "cut", "start")]
    out += [mark(TRUST, 60, 300), mark(EXPIRY, 60, 300),
            text(round((x_of(TRUST) + x_of(EXPIRY)) / 2, 1), 74, "nobody works", "small")]
    out.append(f'<line x1="{x_of(FIRST)}" y1="310" x2="{x_of(LAST)}" y2="310" class="line"/>')
    for time in Fraction(0), RESERVE, LEASE_END, TRUST, EXPIRY:
        out += [mark(time, 306, 314), text(x_of(time), 330, label(time))]
    out += [mark(LATEST, 306, 314), text(x_of(LATEST), 330, "T + 1.5 ticks"),
            text(LEFT - 12, 330, "after the last proof", "small", "end")]
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} 345" font-family="sans-serif" font-size="13">',
        '<!-- Written by loss.py. -->',
        '<title>A lock whose holder is cut off: the holder stops before the next session is granted the lock</title>',
        '<style>text{fill:#222}.small{font-size:11px;fill:#555}.lane{font-weight:bold}.cut{stroke:#b00;stroke-dasharray:4 3}'
        'text.cut{stroke:none;fill:#b00}.line{stroke:#222}.proof{stroke:#2a7}.lost{stroke:#b00;stroke-dasharray:2 2}'
        '.good{fill:#cfe8d5}.ask{fill:#fbeec2}.stop{fill:#f3cfcf}.idle{fill:#e4e4e4}</style>',
        f'<rect width="{WIDTH}" height="345" fill="#fff"/>', *out, "</svg>"]) + "\n"


def main():
    path = os.path.join(HERE, "loss.svg")
    drawn = draw()
    if sys.argv[1:] == ["--check"]:
        with open(path, encoding="utf-8") as file:
            if file.read() != drawn:
                sys.exit("doc/pictures/loss.svg is stale: run doc/pictures/loss.py")
        return
    with open(path, "w", encoding="utf-8") as file:
        file.write(drawn)


main()
