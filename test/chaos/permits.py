"""The permits of semaphores in a history: who surely had one, and how many.

Owns: the part of the checker's model that README.md describes for semaphores. A
section here is one permit. Which of several permits a release releases is
not told; the youngest is taken, whose lease lasts longest, so that nothing is
called sure that is not.
"""

from collections import defaultdict


class Permits:
    """What one database session has."""

    def __init__(self):
        self.sections = defaultdict(list)       # name => oldest first

    def all(self):
        return [s for found in self.sections.values() for s in found]

    def add(self, section):
        self.sections[section.name].append(section)

    def end(self, counts, when):
        """Ends as many as are not counted any more."""
        left = defaultdict(int)
        for (name, mode, _), count in counts.items():
            left[name] += count if mode == "p" else 0
        for name, found in self.sections.items():
            while len(found) > left[name]:
                found.pop().end(when)


def greatest(sections):
    """The most sections that were sure at a time, and one of that time."""
    changes = sorted([(s.start, 1, s) for s in sections if s.sure > s.start] +
                     [(s.sure, -1, s) for s in sections if s.sure > s.start],
                     key=lambda change: change[:2])
    most, now, witness = 0, 0, None
    for _, change, section in changes:
        now += change
        if now > most:
            most, witness = now, section
    return most, witness
