"""The locks that one database session must hold, counted as PostgreSQL's advisory locks are.

Owns: the model of ownership: counts by name, mode and level, savepoints, the result of
a release. Leaves out other sessions, time and loss. The workload chooses its steps by the model, and the checker
compares its own copy of the model with the answers.

A hold is counted under (name, mode, level): mode "x", "s" or, of a semaphore,
"p"; level "session" or "transaction".
"""

from collections import Counter


class Holds:
    def __init__(self):
        self.session = Counter()    # (name, mode) => count
        self.nested = None          # one list of (name, mode) per savepoint

    def counts(self):
        """Returns all holds: (name, mode, level) => count."""
        found = Counter()
        for (name, mode), count in self.session.items():
            found[name, mode, "session"] += count
        for level in self.nested or ():
            for name, mode in level:
                found[name, mode, "transaction"] += 1
        return Counter({key: n for key, n in found.items() if n > 0})

    def held(self, name, mode=None):
        return any(n == name and mode in (None, m)
                   for n, m, _ in self.counts())

    def names(self):
        return sorted({name for name, _, _ in self.counts()})

    def take(self, names, mode, level):
        for name in set(names):
            if level == "session":
                self.session[name, mode] += 1
            elif self.nested:
                self.nested[-1].append((name, mode))

    def may_release(self, names, mode):
        return all(self.session[name, mode] > 0 for name in names)

    def release(self, names, mode):
        for name in set(names):
            self.session[name, mode] -= 1

    def release_all(self):
        self.session.clear()

    def begin(self):
        self.nested = [[]]

    def savepoint(self):
        self.nested.append([])

    def rollback_to(self):
        """Rolls back to the innermost savepoint, which stays. A COMMIT that failed may
        have left the transaction open."""
        if self.nested:
            self.nested[-1] = []

    def release_savepoint(self):
        inner = self.nested.pop()
        self.nested[-1].extend(inner)

    def end(self):
        self.nested = None

    def lose(self, key, count):
        """Sets the remaining count of a hold after a reported loss."""
        name, mode, level = key
        if level == "session":
            self.session[name, mode] = count
        else:
            for inner in self.nested or ():
                inner[:] = [hold for hold in inner if hold != (name, mode)]

    def apply(self, op, names=(), mode=None, level=None):
        """Applies an operation that succeeded."""
        effect = {
            "lock": lambda: self.take(names, mode, level),
            "unlock": lambda: self.release(names, mode),
            "unlock_all": self.release_all,
            "begin": self.begin,
            "savepoint": self.savepoint,
            "rollback_to": self.rollback_to,
            "release": self.release_savepoint,
            "commit": self.end,
            "rollback": self.end,
        }.get(op)
        if effect:
            effect()
