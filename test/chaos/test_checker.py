#!/usr/bin/python3
"""The checker finds the errors in handmade histories, and none in correct ones. Prints
TAP.

Every entry is a story: the smallest history in which the error can happen.
"""

import os
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

# pylint: disable=wrong-import-position
from checker import Check                                       # noqa: E402

HEADER = {"op": "run", "timeout": 3, "names": [], "servers":
          {"p": 1, "q": 1, "r": 2}}


class Story:
    """Records with a clock that advances by one second for each operation. The
    session timeout is 3 s, so a lease lasts one second."""

    def __init__(self, **header):
        self.records = [dict(HEADER, **header)]
        self.time = 100.0
        self.sessions = {}
        self.transactions = 0
        self.open = {}

    def add(self, process, op, outcome="ok", took=0.1, **fields):
        if op == "connect":
            self.sessions[process] = self.sessions.get(process, 0) + 1
        elif process not in self.sessions:
            self.add(process, "connect")
        start = self.time
        self.time += 1
        self.records.append({
            "process": process, "session": self.sessions[process], "op": op,
            "start": start, "end": start + took, "outcome": outcome,
            "value": None, **fields})
        return self

    def lock(self, process, token, name="n", mode="x", level="session",
             **fields):
        fields.setdefault("value", [token] if token else True)
        return self.add(process, "lock", names=[name], mode=mode, level=level,
                        **fields)

    def unlock(self, process, value=True, name="n", mode="x"):
        return self.add(process, "unlock", names=[name], mode=mode,
                        value=value)

    def held(self, process, *rows):
        """Rows are (mode, level, count, token)."""
        return self.add(process, "held", value=[
            ["n", mode, level, count, token, "held"]
            for mode, level, count, token in rows])

    def begin(self, process):
        self.transactions += 1
        self.open[process] = f"t{self.transactions}"
        return self.add(process, "begin")

    def commit(self, process, **fields):
        return self.add(process, "commit", txn=self.open.pop(process),
                        **fields)

    def fail(self, process, op, state, **fields):
        return self.add(process, op, outcome="fail", state=state, **fields)

    def wait(self, seconds):
        self.time += seconds
        return self

    def end(self, op, **fields):
        self.records.append({"op": op, **fields})
        return self


def section(story, process, token, **fields):
    """Adds a transaction that holds n and commits."""
    return story.begin(process).lock(
        process, token, level="transaction", **fields).commit(process)


def kept(again, mode="x", between="x", **connect):
    """p acquires the lock, releases it, and acquires it with the same token; r acquires it
    before that if "again" is false."""
    story = Story().add("p", "connect", **connect)
    story.lock("p", 10, mode=mode).unlock("p", mode=mode)
    if not again:
        story.lock("r", 11, mode=between).unlock("r", mode=between)
    return story.lock("p", 10, mode=mode).unlock("p", mode=mode)


def overlapping(first_mode, second_mode):
    """Two sections; the second commits before the first ends."""
    story = Story().begin("p")
    story.lock("p", 10, level="transaction", mode=first_mode)
    section(story, "r", 11, mode=second_mode)
    return story.commit("p")


def shared_counts():
    return Story().lock("p", 10).lock("p", 10).lock("p", 10, mode="s")


def refused(ledger):
    story = Story().begin("p").lock("p", 10, level="transaction").wait(5)
    section(story, "r", 11)
    story.fail("p", "commit", "40001", txn=story.open["p"]).held("p")
    return story.end("ledger", server=1, value=ledger)


def unknown(ledger):
    """A connection that breaks during COMMIT, after another session got the lock."""
    story = Story().begin("p").lock("p", 10, level="transaction").wait(5)
    section(story, "r", 11)
    story.add("p", "commit", outcome="unknown", txn=story.open["p"])
    return story.end("ledger", server=1, value=ledger)


def visible(seen):
    story = section(Story(), "p", 10)
    section(story, "q", 11)
    return story.end("ledger", server=1, value=[
        ["t1", "n", 10, "x", None], ["t2", "n", 11, "x", seen]])


def upgraded():
    """A sharer reads, then another sharer upgrades and writes."""
    story = Story().lock("p", 10, mode="s")
    section(story, "q", 11, mode="s")
    story.begin("p").lock("p", 10, level="transaction").commit("p")
    return story.end("ledger", server=1, value=[
        ["t1", "n", 11, "s", None], ["t2", "n", 10, "x", None]])


def shared_fences():
    """Sharers do not fence each other off: the smaller token may come later."""
    story = Story()
    for process, token in (("p", 10), ("q", 11)):
        story.begin(process).lock(process, token, mode="s",
                                  level="transaction")
    for process, token in (("q", 11), ("p", 10)):
        story.add(process, "fence", names=["n"], value=token,
                  txn=story.open[process]).commit(process)
    return story


def fenced(first, second):
    """Two transactions that fence with these tokens, one after the other."""
    story = Story()
    for process, token in (("p", first), ("q", second)):
        story.begin(process).lock(process, token, level="transaction")
        story.add(process, "fence", names=["n"], value=token,
                  txn=story.open[process]).commit(process)
    return story


def fences_of(first, second):
    """A holder with token 10 in the first mode fences after one with token 11 in the second."""
    story = Story()
    for process, token, mode in (("p", 10, first), ("q", 11, second)):
        story.begin(process).lock(process, token, mode=mode, level="transaction")
    for process, token in (("q", 11), ("p", 10)):
        story.add(process, "fence", names=["n"], value=token,
                  txn=story.open[process]).commit(process)
    return story


def upgraded_fence():
    """A sharer upgrades, and fences with a smaller token after a later sharer."""
    story = Story().lock("p", 10, mode="s").begin("q").lock("q", 11, mode="s", level="transaction")
    story.add("q", "fence", names=["n"], value=11, txn=story.open["q"]).commit("q")
    story.begin("p").lock("p", 10, level="transaction")
    return story.add("p", "fence", names=["n"], value=10, txn=story.open["p"]).commit("p")


def fence_rolled_back():
    """A fence that is rolled back with its lock still counts at the end of the transaction."""
    story = Story()
    story.begin("p").add("p", "savepoint")
    for process, token in (("p", 10), ("q", 11)):
        if process == "q":
            story.begin(process)
        story.lock(process, token, level="transaction")
        story.add(process, "fence", names=["n"], value=token, txn=story.open[process])
        if process == "p":
            story.add("p", "rollback_to")
    return story.commit("q").commit("p")


def permits(n):
    """This many sessions, each with a permit of a semaphore of capacity 2."""
    story = Story(names=[], servers={}, semaphores={"n": 2})
    for number in range(n):
        story.begin(f"p{number}").lock(f"p{number}", 10 + number, mode="p",
                                       level="transaction")
    return story


def all_commit(story):
    for process in list(story.open):
        story.commit(process)
    return story


def own_permits():
    return Story(names=[], servers={}, semaphores={"n": 2}).lock(
        "p", 10, mode="p").lock("p", 11, mode="p")


def savepoints(*rows):
    story = Story().begin("p").lock("p", 10, level="transaction")
    story.add("p", "savepoint").lock("p", 10, level="transaction")
    story.lock("p", 10, mode="s")
    return story.add("p", "rollback_to").held("p", *rows)


BAD = [
    ("two exclusive holders", overlapping("x", "x"), "two holders"),
    ("a sharer beside an exclusive holder", overlapping("x", "s"),
     "two holders"),
    ("an exclusive holder beside a sharer", overlapping("s", "x"),
     "two holders"),
    ("two holders within their leases, neither of which committed",
     Story().add("p", "connect").add("r", "connect").lock("p", 10)
     .wait(-0.5).lock("r", 11).unlock("p").unlock("r"), "two holders"),
    ("two holders, where the ledger shows that the first committed",
     unknown([["t1", "n", 10, "x", None]]), "two holders"),
    ("a later holder with a smaller token",
     section(section(Story(), "p", 11), "r", 10), "token going back"),
    ("two holders with the same token",
     section(section(Story(), "p", 10), "r", 10), "token given twice"),
    ("a sharer with a smaller token than an earlier holder",
     section(section(Story(), "p", 11), "r", 10, mode="s"),
     "token going back"),
    ("re-entry with another token",
     Story().lock("p", 10).lock("p", 11), "re-entry with another token"),
    ("a lost release: a held lock cannot be released",
     Story().lock("p", 10).unlock("p", False), "lost release"),
    ("a release that changes nothing",
     Story().lock("p", 10).unlock("p").held("p", ("x", "session", 1, 10)),
     "re-entry miscounted"),
    ("a release by a session that holds nothing",
     Story().lock("p", 10).unlock("r"), "release by a non-owner"),
    ("a release in the other mode",
     Story().lock("p", 10).unlock("p", mode="s"), "release by a non-owner"),
    ("a release of a lock at transaction level",
     Story().begin("p").lock("p", 10, level="transaction").unlock("p"),
     "release by a non-owner"),
    ("a second acquisition that is not counted",
     shared_counts().held("p", ("x", "session", 1, 10),
                          ("s", "session", 1, 10)), "re-entry miscounted"),
    ("a third release after two acquisitions",
     shared_counts().unlock("p").unlock("p").unlock("p"),
     "release by a non-owner"),
    ("a rollback to a savepoint that keeps the savepoint's lock",
     savepoints(("x", "transaction", 2, 10), ("s", "session", 1, 10)),
     "re-entry miscounted"),
    ("a rollback to a savepoint that releases a session-level lock",
     savepoints(("x", "transaction", 1, 10)),
     "hold vanished without a report"),
    ("a lock that outlives its transaction",
     section(Story(), "p", 10).held("p", ("x", "transaction", 1, 10)),
     "re-entry miscounted"),
    ("a hold that vanishes without an error",
     Story().lock("p", 10).held("p"), "hold vanished without a report"),
    ("a refused commit whose rows exist",
     refused([["t1", "n", 10, "x", None]]), "refused, but committed"),
    ("a holder that does not see the previous holder's commit",
     visible(None), "committed too late to be seen"),
    ("an older holder that commits after a newer holder's fence",
     fenced(11, 10), "fence passed", "token going back"),
    ("an older writer that commits after a newer sharer's fence",
     fences_of("x", "s"), "fence passed", "two holders"),
    ("an older sharer that commits after a newer writer's fence",
     fences_of("s", "x"), "fence passed", "two holders"),
    ("a fence that is rolled back to a savepoint, and overtaken", fence_rolled_back(), "fence passed"),
    ("a lock that is taken again by a session that keeps none", kept(True), "token given twice"),
    ("a kept lock that is taken again after another session had it",
     kept(False, keeps=True), "taken again too late", "token going back"),
    ("a kept share that is taken again after another session had the lock",
     kept(False, mode="s", keeps=True), "taken again too late"),
    ("a kept lock that is taken again after another session shared it",
     kept(False, between="s", keeps=True), "taken again too late"),
    ("three permits of two", all_commit(permits(3)), "too many permits"),
    ("a third permit within the leases of two, without any commit",
     Story(names=[], servers={}, semaphores={"n": 2}).add("p", "connect")
     .add("r", "connect").lock("p", 10, mode="p").wait(-0.8)
     .lock("p", 11, mode="p").wait(-0.8).lock("r", 12, mode="p")
     .unlock("p", mode="p").unlock("r", mode="p"), "too many permits"),
    ("a second permit that is not counted", own_permits().held(
        "p", ("p", "session", 1, 10)), "re-entry miscounted"),
    ("a third release of two permits", own_permits().unlock("p", mode="p")
     .unlock("p", mode="p").unlock("p", mode="p"), "release by a non-owner"),
    ("a permit that vanishes without an error", own_permits().held("p"),
     "hold vanished without a report"),
    ("an error that no fault explains",
     Story().fail("p", "lock", "XX000", names=["n"], mode="x",
                  level="session"), "unexpected error"),
    ("a leftover node", Story().end("left", value=["n/x"]), "node left"),
    ("a client that hangs", Story().end("hung", value=["p"]), "no progress"),
    ("a client that cannot acquire a lock at the end",
     Story(names=["n"], servers={"p": 1}), "no progress"),
    ("a backend that crashes",
     Story().end("server_log", value=["signal 11"]), "crash"),
]

GOOD = [
    ("sections one after the other",
     section(section(Story(), "p", 10), "r", 11)),
    ("sharers together", overlapping("s", "s")),
    ("a session that acquires a lock twice in both modes, and releases it as often",
     shared_counts().held("p", ("x", "session", 2, 10),
                          ("s", "session", 1, 10))
     .unlock("p").unlock("p").unlock("p", False).unlock("p", mode="s")
     .held("p")),
    ("an upgrade that keeps the sharer's token, although another session shared meanwhile",
     Story().lock("p", 10, mode="s").lock("r", 11, mode="s")
     .unlock("r", mode="s").lock("p", 10).held(
         "p", ("s", "session", 1, 10), ("x", "session", 1, 10))),
    ("a downgrade that admits sharers",
     Story().lock("p", 10).lock("p", 10, mode="s").unlock("p")
     .lock("r", 11, mode="s").held("p", ("s", "session", 1, 10))),
    ("a rollback to a savepoint",
     savepoints(("x", "transaction", 1, 10), ("s", "session", 1, 10))),
    ("a lost lock whose transaction was refused", refused([])),
    ("a lost lock whose commit has an unknown outcome and left no row",
     unknown([])),
    ("a lost lock whose loss was reported",
     Story().lock("p", 10).wait(5).lock("r", 11)
     .fail("p", "write", "40001", txn="t1").held("p")),
    ("a lock that a cancelled statement acquired nevertheless",
     Story().fail("p", "lock", "57014", names=["n"], mode="x",
                  level="session").held("p", ("x", "session", 1, 10))),
    ("a lock that a cancelled statement did not acquire",
     Story().fail("p", "lock", "57014", names=["n"], mode="x",
                  level="session").held("p")),
    ("an idle holder beyond its lease, and a new holder",
     Story().lock("p", 10).wait(5).lock("r", 11).unlock("p").unlock("r")),
    ("a refused attempt", Story().lock("p", 10).lock("r", 0, value=False)
     .held("r")),
    ("a closed connection that releases its locks",
     Story().lock("p", 10).add("p", "close").lock("r", 11)),
    ("a terminated idle backend, the next holder, and then the client's close",
     Story().add("p", "connect").add("r", "connect").lock("p", 10).wait(-0.8)
     .lock("r", 11).wait(-0.8).add("p", "close").unlock("r")),
    ("the same with a permit",
     Story(names=[], servers={}, semaphores={"n": 1}).add("p", "connect")
     .add("r", "connect").lock("p", 10, mode="p").wait(-0.8)
     .lock("r", 11, mode="p").wait(-0.8).add("p", "close")
     .unlock("r", mode="p")),
    ("a cancelled release that had its effect, and the next holder",
     Story().add("r", "connect").lock("p", 10).wait(-0.8)
     .fail("p", "unlock", "57014", names=["n"], mode="x").wait(-0.9)
     .lock("r", 11).wait(-0.8).held("p").unlock("r")),
    ("a holder that sees the previous holder's commit", visible(10)),
    ("a sharer before an upgrade to a smaller token", upgraded()),
    ("a kept lock that is taken again", kept(True, keeps=True)),
    ("a kept share that is taken again while another session shares",
     kept(False, mode="s", between="s", keeps=True)),
    ("a kept share whose token a first attempt did not show",
     Story().add("p", "connect", keeps=True).lock("p", 0, mode="s").unlock("p", mode="s")
     .lock("r", 11, mode="s").unlock("r", mode="s").lock("p", 10, mode="s")),
    ("fences in order", fenced(10, 11)),
    ("fences of sharers in another order", shared_fences()),
    ("a fence of an upgraded holder after one of a later sharer", upgraded_fence()),
    ("two permits of two", all_commit(permits(2))),
    ("two permits that are released one by one, and then a third",
     own_permits().held("p", ("p", "session", 2, 10)).unlock("p", mode="p")
     .lock("r", 12, mode="p").held("p", ("p", "session", 1, 10))
     .unlock("p", mode="p").held("p")),
    ("a permit whose holder is beyond its lease, and the permit's next holder",
     own_permits().wait(5).lock("q", 12, mode="p").lock("r", 13, mode="p")
     .fail("p", "write", "40001", txn="t1").held("p")),
    ("a rollback to a savepoint that releases a permit",
     permits(1).add("p0", "savepoint").lock("p0", 11, mode="p",
                                            level="transaction")
     .add("p0", "rollback_to").held("p0", ("p", "transaction", 1, 10))
     .lock("q", 12, mode="p").held("q", ("p", "session", 1, 12))
     .commit("p0")),
    ("an end without leftovers",
     Story(names=["n"], servers={"p": 1}).end("left", value=[])
     .end("hung", value=[]).end("progress", process="p", names=["n"])),
]


def report(number, good, name, problems):
    print(f"{'ok' if good else 'not ok'} {number} - {name}")
    if not good:
        for kind, text in problems or [("nothing found", "")]:
            print(f"#   {kind}: {text}")


def main():
    print(f"1..{len(BAD) + len(GOOD)}")
    all_good = True
    number = 0
    for name, story, *expected in BAD:
        number += 1
        problems = Check(story.records).run()
        good = {kind for kind, _ in problems} == set(expected)
        all_good &= good
        report(number, good, f"found: {name}", problems)
    for name, story in GOOD:
        number += 1
        problems = Check(story.records).run()
        all_good &= not problems
        report(number, not problems, f"passed: {name}", problems)
    return 0 if all_good else 1


if __name__ == "__main__":
    sys.exit(main())
