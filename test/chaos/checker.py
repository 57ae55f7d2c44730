#!/usr/bin/python3
"""Checks a history: checker.py FILE prints the broken promises.

Owns: the model that README.md describes. Reads only the history: the statements,
their answers and their times, no other state of the workload.
"""

import copy
import sys
from bisect import bisect_left
from collections import defaultdict

import history
from holds import Holds
from permits import Permits, most_at_once

# SQLSTATEs that faults, timeouts and other clients may cause.
EXPECTED = {"40001", "40P01", "55P03", "57014", "08001", "08006", "22012",
            None}

# The kinds of errors.
KINDS = (
    "two holders", "too many permits", "token going back", "token given twice",
    "taken again too late",
    "re-entry with another token", "re-entry miscounted", "lost release",
    "release by a non-owner", "hold vanished without a report",
    "committed too late to be seen", "refused, but committed",
    "fence passed", "unexpected error", "node left", "no progress", "crash")


class Section:
    """A mode of a lock from its grant to its end, in one session.

    guaranteed_until: until then no other session may hold the lock, whatever
    happens. believed_until: until then the session believed that it held the lock.
    reported_at: the answer to the operation that ended this belief.
    """

    def __init__(self, replay, name, mode, hold, record, start, proven):
        self.owner = (replay.process, replay.session)
        self.replay = replay
        self.name, self.mode, self.hold = name, mode, hold
        self.asked, self.start = record["start"], start
        self.believed_until = self.reported_at = None
        self.leased = record["start"] + replay.lease if proven else start
        self.committed = start
        self.upgraded = False

    def confirm(self, when):
        self.committed = max(self.committed, when)

    def end(self, when):
        self.believed_until = max(when, self.start)
        self.reported_at = max(self.believed_until, self.replay.time)

    @property
    def guaranteed_until(self):
        return max(self.start, self.committed, min(self.believed_until, self.leased))

    def __str__(self):
        return (f"{self.mode} of {self.owner[0]}/{self.owner[1]} "
                f"token {self.hold.token} [{self.start:.3f}, "
                f"{self.guaranteed_until:.3f}]")


class Hold:
    """A session's hold of one name, from the first grant to the last release.

    again: the session kept the lock's node since an earlier hold with the same token.
    """

    def __init__(self, asked, answered):
        self.asked, self.answered = asked, answered
        self.token = None
        self.again = False


class Replay:
    """One database session, from its connect to its end."""

    def __init__(self, check, record):
        self.check = check
        self.process, self.session = record["process"], record["session"]
        self.keeps = record.get("keeps", False)
        # What is left at least of the lease when the session takes again what it kept.
        self.lease = check.lease / 2 if self.keeps else check.lease
        self.tokens = defaultdict(set)      # name => tokens of earlier holds
        self.asked_first = {}   # name => start of the first request whose token is unknown
        self.model = Holds()
        self.holds = {}         # name => Hold
        self.open = {}          # (name, mode) => Section
        self.permits = Permits()
        self.fences = []        # of the open transaction: record, exclusive, upgraded
        self.last_ok = self.time = record["end"]
        self.alternative = None
        self.loss_reported = False
        self.released_at = float("inf")     # a failed release may have had its effect
        self.over = False

    def wrong(self, kind, record, text=""):
        self.check.wrong(kind, f"{self.process}/{self.session} at "
                         f"{record['start']:.3f} {record['op']} "
                         f"{record.get('names', '')} {text}")

    def feed(self, record):
        self.time = record["end"]
        outcome = record["outcome"]
        if self.keeps and record["op"] == "lock":
            for name in record["names"]:
                self.asked_first.setdefault(name, record["start"])
        if outcome == "ok":
            self.ok(record)
            self.last_ok = record["end"]
        elif outcome == "fail":
            self.failed(record)
        else:
            self.lost(record)

    # Success.

    def ok(self, record):
        op = record["op"]
        alone = self.model.nested is None
        before = set(self.open)
        permits = set(self.permits.all())
        if op == "held":
            self.compare(record)
        elif op == "lock":
            self.granted(record)
        elif op == "unlock":
            self.unlocked(record)
        elif op == "commit":
            self.commit(record, record["end"])
        elif op == "close":
            self.model = Holds()
            self.over = True
        else:
            if op == "fence":
                self.fenced(record)
            self.model.apply(op)
        self.end_fences()
        # A close needs no answer: the backend may have been terminated before it.
        self.close_sections(self.last_ok if op == "close" else record["start"])
        if alone and op not in ("begin", "close", "rollback", "rollback_to"):
            for key in before & set(self.open):
                self.open[key].confirm(record["start"])
            for section in permits & set(self.permits.all()):
                section.confirm(record["start"])
            if op == "write":
                self.committed(record, record["end"])

    def granted(self, record):
        value = record["value"]
        if value is False:
            return
        names = record["names"]
        tokens = value if isinstance(value, list) else [None] * len(names)
        self.model.apply("lock", names, record["mode"], record["level"])
        for name, token in zip(names, tokens):
            if record["mode"] == "p":
                self.permit(name, record)
                continue
            self.enter(name, record["mode"], record, record["end"])
            self.note_token(name, token, record)

    def enter(self, name, mode, record, start):
        fresh = name not in self.holds
        if fresh:
            asked = record["start"] if record["op"] == "lock" else 0
            self.holds[name] = Hold(asked, start)
            self.check.holds.append((name, self, self.holds[name]))
        if (name, mode) in self.open:
            return
        # Only a new node proves that the session existed.
        proven = record["op"] == "lock" and (fresh or mode == "x")
        section = Section(self, name, mode, self.holds[name], record, start,
                          proven)
        section.upgraded = not fresh
        self.open[name, mode] = section
        self.check.sections[name].append(section)

    def permit(self, name, record):
        asked = record["start"] if record["op"] == "lock" else 0
        hold = Hold(asked, record["end"])
        self.check.holds.append((name, self, hold))
        section = Section(self, name, "p", hold, record, record["end"],
                          record["op"] == "lock")
        self.permits.add(section)
        self.check.permits[name].append(section)

    def note_token(self, name, token, record):
        hold = self.holds[name]
        if token is None or token == hold.token:
            return
        if hold.token is not None:
            self.wrong("re-entry with another token", record,
                       f"{hold.token} became {token}")
        hold.token = token
        if self.keeps:
            hold.again = token in self.tokens[name]
            self.tokens[name].add(token)
            # The node may be that of an earlier request.
            hold.asked = min(hold.asked, self.asked_first.pop(name, hold.asked))

    def unlocked(self, record):
        names, mode = record["names"], record["mode"]
        may = self.model.may_release(names, mode)
        if record["value"] and not may:
            self.wrong("release by a non-owner", record)
        elif not record["value"] and may:
            self.wrong("lost release", record,
                       "what is held could not be released")
        elif may:
            self.model.apply("unlock", names, mode)

    def compare(self, record):
        """Compares zk_held_locks with the model."""
        there = {(name, mode, level): count
                 for name, mode, level, count, _, _ in record["value"]}
        known = self.model.counts()
        other = self.alternative if self.alternative is not None else known
        for key in sorted(set(there) | set(known) | set(other)):
            seen = there.get(key, 0)
            allowed = {known.get(key, 0), other.get(key, 0)}
            if self.loss_reported:
                allowed.add(0)
            if seen not in allowed:
                kind = "hold vanished without a report" \
                    if seen == 0 else "re-entry miscounted"
                self.wrong(kind, record, f"{key}: {seen} instead of "
                           f"{' or '.join(map(str, sorted(allowed)))}")
            if seen != known.get(key, 0):
                self.correct(key, seen)
            if seen and key[1] == "p":
                while len(self.permits.sections[key[0]]) < sum(
                        n for other, n in there.items()
                        if other[:2] == key[:2]):
                    self.permit(key[0], None, record)
            elif seen:
                self.enter(key[0], key[1], record, record["end"])
        for name, mode, _, _, token, _ in record["value"]:
            if mode != "p":
                self.note_token(name, token, record)
        # The lost locks were no longer held when the loss was reported.
        self.close_sections(self.lost_after if self.loss_reported
                            else min(record["start"], self.released_at))
        self.alternative, self.loss_reported = None, False
        self.released_at = float("inf")

    def correct(self, key, count):
        name, mode, level = key
        if level == "session":
            self.model.session[name, mode] = count
        else:
            self.model.lose(key, count)

    def close_sections(self, when):
        counts = self.model.counts()
        self.permits.end(counts, when)
        modes = {(name, mode) for name, mode, _ in counts if mode != "p"}
        for key in set(self.open) - modes:
            self.open.pop(key).end(when)
        names = {name for name, _ in modes}
        for name in set(self.holds) - names:
            del self.holds[name]

    # Commits.

    def commit(self, record, end):
        for section in [*self.open.values(), *self.permits.all()]:
            section.confirm(record["start"])
        self.committed(record, end)
        self.model.end()

    def committed(self, record, end):
        if record.get("txn"):
            self.check.commits[record["txn"]] = (
                self.process, record["start"], end,
                {(section.hold.token, *key): section.upgraded
                 for key, section in self.open.items()})

    def fenced(self, record):
        section = self.open.get((record["names"][0], "x"))
        self.fences.append((record, section is not None, section is not None and section.upgraded))

    def end_fences(self):
        """A fence counts to the end of the transaction; no rollback to a savepoint ends it."""
        if self.model.nested is None:
            self.check.fences += [(self, *fence) for fence in self.fences]
            self.fences = []

    # Failure.

    def failed(self, record):
        op, state = record["op"], record["state"]
        if state not in EXPECTED or (state == "22012") != (op == "error"):
            self.wrong("unexpected error", record,
                       f"{state} {record.get('text', '')}")
        if state == "40001" and not self.loss_reported:
            self.loss_reported, self.lost_after = True, self.last_ok
        if op == "commit" or op == "write" and self.model.nested is None:
            self.check.refused.append(record)
        if op in ("unlock", "unlock_all"):
            self.released_at = min(self.released_at, record["start"])
        if op in ("unlock", "unlock_all") or record.get("level") == "session":
            self.note_possible_effect(record)
        # An error releases the locks of the innermost level at once.
        if op == "commit":
            self.model.end()
        elif self.model.nested:
            self.model.rollback_to()
        self.close_sections(self.last_ok)

    def note_possible_effect(self, record):
        """Notes that a cancelled statement may have had its effect at session level."""
        after = copy.deepcopy(self.model)
        names, mode = record.get("names", ()), record.get("mode")
        if record["op"] != "unlock" or after.may_release(names, mode):
            after.apply(record["op"], names, mode, record.get("level"))
        self.alternative = after.counts()

    def lost(self, record):
        """Ends the session: the connection broke, and the ledger shows whether it committed."""
        written = record.get("txn") in self.check.ledger_txns
        if record["op"] == "commit" or self.model.nested is None:
            if written and record["op"] in ("commit", "write"):
                self.commit(record, float("inf"))
        self.model = Holds()
        self.end_fences()
        self.close_sections(self.last_ok)
        self.over = True

    def finish(self):
        """Ends the session at the end of the history."""
        self.model = Holds()
        self.close_sections(self.last_ok)


class Check:
    """The whole history."""

    def __init__(self, records):
        self.problems = []      # (kind, text)
        self.sections = defaultdict(list)
        self.permits = defaultdict(list)
        self.holds, self.fences, self.refused = [], [], []
        self.commits = {}
        self.n_excused = 0
        self.records = records
        self.header = next(r for r in records if r["op"] == "run")
        self.lease = self.header["timeout"] / 3
        self.ledger = [(r["server"], row) for r in records
                       if r["op"] == "ledger" for row in r["value"]]
        self.ledger_txns = {row[0] for _, row in self.ledger}

    def wrong(self, kind, text):
        assert kind in KINDS
        self.problems.append((kind, text))

    def run(self):
        replays = {}
        for record in self.records:
            if record["op"] == "connect":
                old = replays.get(record["process"])
                if old:
                    old.finish()
                replays[record["process"]] = Replay(self, record)
            elif "session" in record:
                replays[record["process"]].feed(record)
        for replay in replays.values():
            replay.finish()
        for name in sorted(self.sections):
            self.check_overlaps(name)
            self.check_token_order(name)
        self.check_taken_again()
        self.check_permits()
        self.check_new_tokens()
        self.check_visibility()
        self.check_refused()
        self.check_fences()
        self.check_end()
        return self.problems

    # Exclusion.

    def check_overlaps(self, name):
        """Checks that no session holds a lock that another is guaranteed to hold exclusively."""
        active = []
        for section in sorted(self.sections[name], key=lambda s: s.start):
            active = [s for s in active
                      if max(s.guaranteed_until, s.believed_until) > section.start]
            for other in active:
                if other.owner == section.owner or \
                        other.mode == section.mode == "s":
                    continue
                if self.overlap(other, section):
                    self.wrong("two holders",
                               f"{name}: {other} and {section}")
                else:
                    self.n_excused += 1
            active.append(section)

    def check_permits(self):
        """Checks that never more permits are guaranteed than the semaphore has."""
        for name, size in self.header.get("semaphores", {}).items():
            most = most_at_once(self.permits[name])
            if len(most) > size:
                self.wrong("too many permits", f"{name}: {len(most)} of {size}, "
                           f"{' and '.join(map(str, most))}")

    @staticmethod
    def overlap(first, second):
        """Were both held when the second was granted? If the second is not guaranteed
        then, it may have been held, and lost, before the first."""
        return first.guaranteed_until > second.start and second.guaranteed_until > second.start

    def check_token_order(self, name):
        """Checks that exclusive sections follow each other in the order of their tokens."""
        latest = None
        for section in sorted(
                (s for s in self.sections[name]
                 if s.mode == "x" and s.guaranteed_until > s.start and s.hold.token),
                key=lambda s: (s.hold.token, s.start)):
            if latest and latest.owner != section.owner and \
                    latest.start > section.start and \
                    not self.overlap(section, latest):
                self.wrong("token going back",
                           f"{name}: {latest} and {section}")
            if latest is None or section.start > latest.start:
                latest = section

    def check_new_tokens(self):
        """Checks that each new grant has a greater token than all grants before its
        request."""
        by_name = defaultdict(list)
        for name, replay, hold in self.holds:
            if hold.token is not None:
                by_name[name].append((hold, replay))
        for name, found in by_name.items():
            answered = sorted((h.answered, h.token) for h, _ in found)
            times, greatest = [], []
            for time, token in answered:
                times.append(time)
                greatest.append(max(token, greatest[-1] if greatest else 0))
            owners = {}
            for hold, replay in found:
                if hold.again:
                    continue
                if hold.asked and \
                        owners.setdefault(hold.token, hold) is not hold:
                    self.wrong("token given twice", f"{name}: {hold.token}, "
                               f"to {replay.process} the second time")
                before = bisect_left(times, hold.asked)
                if before and greatest[before - 1] > hold.token:
                    self.wrong("token going back",
                               f"{name}: {hold.token}, asked for by "
                               f"{replay.process} at {hold.asked:.3f}, after "
                               f"{greatest[before - 1]}")

    def check_taken_again(self):
        """Checks that no session takes a lock again after another one had it with a greater
        token, unless both are shared."""
        for name, sections in self.sections.items():
            for section in sections:
                if section.hold.again and any(
                        other.hold.token and other.hold.token > section.hold.token and
                        (other.mode == "x" or section.mode == "x" and not section.upgraded) and
                        other.owner != section.owner and other.start < section.asked
                        for other in sections):
                    self.wrong("taken again too late", f"{name}: {section}")

    # Effects.

    def check_visibility(self):
        """Checks that a holder sees the rows that earlier holders committed on its server.
        An upgrade may come after a sharer with a greater token."""
        written = defaultdict(list)
        for server, (txn, name, token, mode, _) in self.ledger:
            _, start, end, held = self.commits.get(txn, (0, 0, 0, {}))
            if mode == "x" and (token, name, "x") in held and \
                    end - start < self.lease / 2:
                written[server, name, "x"].append(token)
                if not held[token, name, "x"]:
                    written[server, name, "s"].append(token)
        for tokens in written.values():
            tokens.sort()
        for server, (txn, name, token, mode, seen) in self.ledger:
            if txn not in self.commits or \
                    (token, name, mode) not in self.commits[txn][3]:
                continue
            earlier = written[server, name, mode]
            before = bisect_left(earlier, token)
            if before and (seen or 0) < earlier[before - 1]:
                self.wrong("committed too late to be seen",
                           f"{name} on server {server}: {txn} with token "
                           f"{token} saw {seen}, but not "
                           f"{earlier[before - 1]}")

    def check_refused(self):
        for record in self.refused:
            if record.get("txn") and record["txn"] in self.ledger_txns \
                    and record["txn"] not in self.commits:
                self.wrong("refused, but committed",
                           f"{record['txn']} at {record['start']:.3f}")

    def check_fences(self):
        """Checks that in one database no fence with a smaller token commits after one
        with a greater token, if one of the two holders was exclusive. The token of an upgraded
        holder is that of its shared hold: later sharers have released before the upgrade."""
        by_lock = defaultdict(list)
        servers = self.header.get("servers", {})
        for replay, record, exclusive, upgraded in self.fences:
            commit = self.commits.get(record.get("txn"))
            if commit:
                key = (servers.get(replay.process), record["names"][0])
                by_lock[key].append((record["value"], commit, exclusive, exclusive and not upgraded))
        for (server, name), found in by_lock.items():
            for token, (process, start, _, _), _, excludes_later in found:
                for greater, (_, _, end, _), excludes_earlier, _ in found:
                    if (excludes_earlier or excludes_later) and greater > token and end < start:
                        self.wrong("fence passed",
                                   f"{name} on server {server}: {process} "
                                   f"with token {token} at {start:.3f} after "
                                   f"token {greater}")

    # The end.

    def check_end(self):
        progress = set()
        for record in self.records:
            if record["op"] == "left":
                for path in record["value"]:
                    self.wrong("node left", path)
            elif record["op"] == "hung":
                for text in record["value"]:
                    self.wrong("no progress", text)
            elif record["op"] == "server_log":
                for line in record["value"]:
                    self.wrong("crash", line)
            elif record["op"] == "progress":
                progress.add((record["process"], record["names"][0]))
        for process in self.header["servers"]:
            for name in [*self.header["names"],
                         *self.header.get("semaphores", ())]:
                if (process, name) not in progress:
                    self.wrong("no progress",
                               f"{process} did not get {name} in the end")

    def n_taken_again(self):
        return sum(section.hold.again for found in self.sections.values() for section in found)

    def summary(self):
        grants = sum(len(found) for found in self.sections.values())
        permits = sum(len(found) for found in self.permits.values())
        return (f"{len(self.records)} records, {grants} sections, "
                f"{self.n_taken_again()} of kept locks, {permits} permits, "
                f"{len(self.commits)} commits, {self.n_excused} overlaps of "
                f"holders of which one had lost, or may have lost, the lock")


def main():
    check = Check(history.read(sys.argv[1]))
    for kind, text in check.run():
        print(f"{kind}: {text}")
    print(check.summary())
    return 1 if check.problems else 0


if __name__ == "__main__":
    sys.exit(main())
