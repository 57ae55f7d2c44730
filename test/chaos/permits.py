"""The permits of semaphores in a history: which sessions were guaranteed to have how many.

Owns: the part of the checker's model that README.md describes for semaphores. A
section here is one permit. The history does not show which of several permits a
release releases. The checker assumes the newest, whose lease lasts longest, so it
never counts a permit as guaranteed that is not.
"""

from collections import defaultdict


class Permits:
    """The permits of one database session."""

    def __init__(self):
        self.sections = defaultdict(list)       # name => oldest first

    def all(self):
        return [s for found in self.sections.values() for s in found]

    def add(self, section):
        self.sections[section.name].append(section)

    def end(self, counts, when):
        """Ends the permits that are not counted any more."""
        left = defaultdict(int)
        for (name, mode, _), count in counts.items():
            left[name] += count if mode == "p" else 0
        for name, found in self.sections.items():
            while len(found) > left[name]:
                found.pop().end(when)


def most_at_once(sections):
    """Returns the sections guaranteed at the time when there are the most of them."""
    changes = sorted([(s.start, 1, s) for s in sections if s.guaranteed_until > s.start] +
                     [(s.guaranteed_until, -1, s) for s in sections if s.guaranteed_until > s.start],
                     key=lambda change: change[:2])
    most, now = [], []
    for _, change, section in changes:
        if change < 0:
            now.remove(section)
            continue
        now.append(section)
        if len(now) > len(most):
            most = list(now)
    return most
