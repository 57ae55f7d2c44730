"""The clients of a run.

Owns: one thread and one database connection per client, and a random walk that
depends on the client's seed and on the locks it holds according to the model.
Every statement becomes one record of the history.
"""

import random
import threading
import time

import psycopg2

from history import now
from holds import Holds

MODES = {"x": "", "s": "_shared"}
UNLOCK = {"x": "zk_unlock", "s": "zk_unlock_shared", "p": "zk_release_permit"}
KEPT = "k"                      # a lock that all clients share, mostly
LEVELS = {"session": "", "transaction": "_xact"}
HELD = """SELECT name, substr(translate(mode, 'e', ''), 1, 1),
 level, hold_count, token, state FROM zk_held_locks ORDER BY 1, 2, 3"""
WRITE = """INSERT INTO ledger (txn, name, token, mode, seen)
 SELECT %s, h.name, h.token, h.mode,
  (SELECT max(l.token) FROM ledger l
   WHERE l.name = h.name AND l.mode = 'x' AND l.token < h.token)
 FROM unnest(%s::text[], %s::bigint[], %s::text[]) AS h (name, token, mode)
 RETURNING name, token, mode, seen"""


def granted(value, mode, wait):
    """The value of a successful request: an attempt's answer, True for a permit, or tokens."""
    if wait is not None:
        return value
    if mode == "p":
        return True
    return value if isinstance(value, list) else [value]


class Client(threading.Thread):
    """Runs until stop is set, or forever if the database does not answer."""

    def __init__(self, name, server, seed, history, run):
        super().__init__(name=name, daemon=True)
        self.server = server
        self.random = random.Random(f"{seed}/{name}")
        self.history = history
        self.run_state = run
        self.connection = None
        self.pid = 0
        self.session = 0
        self.patient = self.keeps = False
        self.holds = Holds()
        self.serial = 0
        self.txn = None
        self.seen = []

    # One statement, one record.

    def do(self, op, sql, arguments=(), take=None, **fields):
        """Returns (outcome, value); outcome unknown means a lost connection."""
        record = {"process": self.name, "session": self.session, "op": op,
                  **fields, "start": now()}
        try:
            with self.connection.cursor() as cursor:
                cursor.execute(sql, arguments)
                rows = cursor.fetchall() if cursor.description else None
            record["value"] = take(rows) if take else None
            record["outcome"] = "ok"
        except psycopg2.Error as error:
            record["outcome"] = "unknown" if self.connection.closed else "fail"
            record["state"] = error.pgcode
            record["text"] = str(error).partition("\n")[0]
        record["end"] = now()
        self.history.add(**record)
        if record["outcome"] == "unknown":
            self.connection = None
        elif record["outcome"] == "ok":
            done = op
            if op == "lock" and record["value"] is False or (
                    op == "unlock" and not record["value"]):
                done = None
            self.holds.apply(done, *(fields.get(key) for key in
                                     ("names", "mode", "level")))
        return record["outcome"], record.get("value")

    def connect(self):
        place = self.run_state.servers.info["pg"][self.server - 1]
        start = now()
        try:
            self.connection = psycopg2.connect(
                host=place["host"], port=place["port"], dbname="postgres",
                user=self.run_state.user, connect_timeout=5,
                application_name=self.name)
        except psycopg2.Error:
            return False
        self.connection.autocommit = True
        self.session += 1
        self.pid = self.connection.get_backend_pid()
        self.holds, self.txn = Holds(), None
        self.patient = self.random.random() < 0.3
        self.keeps = self.run_state.keepers and self.random.random() < 0.5
        self.history.add(process=self.name, session=self.session, op="connect",
                         start=start, end=now(), outcome="ok", value=self.pid,
                         keeps=self.keeps)
        return self.do("set", f"SET lock_timeout = {self.limit()}")[0] == "ok" and (
            not self.keeps or self.do("set", "SET zklock.keep_time = "
                                      f"{self.random.choice((300, 600000))}")[0] == "ok")

    def limit(self):
        return 0 if self.patient else self.random.choice((300, 1000, 4000))

    def run(self):
        while not self.run_state.stop.is_set():
            if self.connection is None and not self.connect():
                self.run_state.stop.wait(0.2)
                continue
            self.step()
        self.settle()

    def step(self):
        """Runs one operation, and the necessary steps after a failure."""
        weights = self.choices()
        action = self.random.choices(list(weights), weights.values())[0]
        outcome = getattr(self, action)()
        if outcome == "fail":
            self.recover()
        pause = self.random.random()
        if pause < 0.015:
            self.run_state.stop.wait(self.random.uniform(0.2, 2))
        else:
            time.sleep(pause * 0.02)

    def held_locks(self):
        return [name for name in self.holds.names()
                if name not in self.run_state.semaphores]

    def choices(self):
        holding = bool(self.holds.names())
        if self.holds.nested is None:
            return {"lock": 1 if holding else 3, "permit": 1, "begin": 6,
                    "unlock": 5 if holding else 0.2,
                    "unlock_all": 3 if holding else 0,
                    "write": 2 if holding else 0, "look": 1,
                    "leave": 0.05}
        return {"lock": 1 if len(self.holds.names()) > 1 else 5,
                "permit": 1,
                "unlock": 0.7 if holding else 0.1, "write": 4,
                "fence": 1 if self.run_state.fences else 0,
                "fail": 0.3, "look": 0.7,
                "savepoint": 1 if len(self.holds.nested) < 4 else 0,
                "rollback_to": 0.7 if len(self.holds.nested) > 1 else 0,
                "release": 0.7 if len(self.holds.nested) > 1 else 0,
                "commit": 5 if holding else 0.5, "rollback": 0.8, "leave": 0.03}

    # Operations.

    def lock(self):
        held = self.held_locks()
        names = [self.random.choice(self.run_state.names)]
        wait = self.random.choice((None, None, None, 0, 0.2, 1))
        if self.patient and held:
            names = [self.random.choice(held)]
        elif self.patient and self.holds.names():
            wait = 0.2
        elif self.random.random() < 0.2:
            names = self.random.sample(self.run_state.names,
                                       self.random.randint(2, 3))
        mode = self.random.choice("xs")
        if self.run_state.keepers and not held and self.random.random() < 0.5:
            names, mode = self.rarely_contended()
        shared = [name for name in held if not self.holds.held(name, "x")]
        if shared and self.random.random() < 0.4:
            names, mode = [self.random.choice(shared)], "x"
        level = "session" if self.holds.nested is None \
            or self.random.random() < 0.2 else "transaction"
        return self.request(names, mode, level, wait)

    def rarely_contended(self):
        """Returns a lock that a session can keep for a while, and the mode."""
        if self.random.random() < 0.5:
            return [KEPT], self.random.choices("sx", (100, 1))[0]
        owner = self if self.random.random() < 0.98 else \
            self.random.choice(self.run_state.clients)
        return [owner.name], "x"

    def permit(self):
        """Acquires a permit; a client that waits without a timeout holds nothing else."""
        name = self.random.choice(sorted(self.run_state.semaphores))
        level = "session" if self.holds.nested is None \
            or self.random.random() < 0.2 else "transaction"
        wait = self.random.choice((None, 0, 0.2, 1))
        if self.patient and self.holds.names() and wait is None:
            wait = 0.2
        return self.request([name], "p", level, wait)

    def request(self, names, mode, level, wait):
        several = len(names) > 1
        function = f"zk{'' if wait is None else '_try'}{LEVELS[level]}_" + (
            "acquire_permit" if mode == "p" else f"lock{'_many' if several else ''}{MODES[mode]}")
        key = names if several else names[0]
        arguments = [key]
        sql = f"SELECT {function}(%s{'::text[]' if several else '::text'}"
        if mode == "p":
            sql += ", %s"
            arguments.append(self.run_state.semaphores[names[0]])
        if wait:
            sql += ", %s::interval"
            arguments.append(f"{wait}s")
        outcome, _ = self.do(
            "lock", sql + ")", arguments, names=names, mode=mode, level=level,
            wait=wait,
            take=lambda rows: granted(rows[0][0], mode, wait))
        return outcome

    def unlock(self):
        held = [key for key in self.holds.counts() if key[2] == "session"]
        if held and self.random.random() < 0.95:
            name, mode, _ = self.random.choice(sorted(held))
        else:
            name = self.random.choice(self.run_state.names)
            mode = self.random.choice("xs")
        return self.do("unlock", f"SELECT {UNLOCK[mode]}(%s::text)",
                       (name,), lambda rows: rows[0][0], names=[name],
                       mode=mode)[0]

    def unlock_all(self):
        return self.do("unlock_all", "SELECT zk_unlock_all()")[0]

    def begin(self):
        self.new_txn()
        return self.do("begin", "BEGIN")[0]

    def new_txn(self):
        self.serial += 1
        self.txn = f"{self.name}.{self.serial}"

    def write(self):
        """Inserts a row for each lock, and reads the rows of earlier holders."""
        held = self.look()
        if held != "ok":
            return held
        if self.holds.nested is None:
            self.new_txn()
        rows = [row for row in self.seen if row[1] != "p"] or [
            ["", None, "", 0, 0, ""]]
        return self.do("write", WRITE,
                       (self.txn, [r[0] for r in rows], [r[4] for r in rows],
                        [r[1] for r in rows]), take=lambda rows: rows,
                       txn=self.txn)[0]

    def look(self):
        outcome, self.seen = self.do("held", HELD, take=lambda rows: rows)
        return outcome

    def fence(self):
        held = self.held_locks()
        if not held:
            return "ok"
        name = self.random.choice(held)
        return self.do("fence", "SELECT zk_fence(%s::text)", (name,),
                       lambda rows: rows[0][0], names=[name], txn=self.txn)[0]

    def fail(self):
        return self.do("error", "SELECT 1 / 0")[0]

    def savepoint(self):
        return self.do("savepoint", f"SAVEPOINT s{len(self.holds.nested)}")[0]

    def rollback_to(self):
        return self.do("rollback_to", "ROLLBACK TO SAVEPOINT "
                       f"s{len(self.holds.nested) - 1}")[0]

    def release(self):
        return self.do("release", "RELEASE SAVEPOINT "
                       f"s{len(self.holds.nested) - 1}")[0]

    def commit(self):
        return self.do("commit", "COMMIT", txn=self.txn)[0]

    def rollback(self):
        return self.do("rollback", "ROLLBACK")[0]

    def leave(self):
        """Closes the connection without releasing locks."""
        start = now()
        self.connection.close()
        self.connection = None
        self.history.add(process=self.name, session=self.session, op="close",
                         start=start, end=now(), outcome="ok")
        return "ok"

    def recover(self):
        """After an error, leaves the transaction or rolls back to a savepoint, and reads
        the remaining locks. A refused COMMIT has ended the transaction."""
        outcome = "ok"
        if self.in_transaction():
            back = len(self.holds.nested or ()) > 1 \
                and self.random.random() < 0.5
            outcome = self.rollback_to() if back else self.rollback()
        elif self.holds.nested is not None:
            self.holds.end()
        if outcome == "ok":
            outcome = self.look()
        if outcome == "ok":
            self.adopt(self.seen)
        elif outcome == "fail":
            self.recover()

    def in_transaction(self):
        return self.connection.get_transaction_status() \
            != psycopg2.extensions.TRANSACTION_STATUS_IDLE

    def adopt(self, rows):
        """Continues with the locks in zk_held_locks; the checker verifies them."""
        there = {tuple(row[:3]): row[3] for row in rows}
        known = self.holds.counts()
        for key in set(there) | set(known):
            if there.get(key, 0) != known.get(key, 0):
                self.holds.lose(key, there.get(key, 0))

    # The end.

    def settle(self):
        """Releases everything, after the nemesis has ended."""
        self.run_state.healed.wait()
        while True:
            if self.connection is None and not self.connect():
                time.sleep(0.2)
                continue
            if (self.holds.nested is None or self.rollback() == "ok") and \
                    self.unlock_all() == "ok" and self.look() == "ok" and \
                    self.do("set", "SET lock_timeout = 0")[0] == "ok":
                break
            if self.connection is not None and self.in_transaction():
                self.recover()
        self.progress()
        if self.connection is not None:
            self.leave()

    def progress(self):
        """Acquires every lock and a permit of every semaphore once more."""
        for name in [*self.run_state.names, *self.run_state.semaphores]:
            mode = "x" if name in self.run_state.names else "p"
            while True:
                if self.connection is None and not self.connect():
                    time.sleep(0.2)
                    continue
                if self.request([name], mode, "session", None) != "ok":
                    if self.connection is not None:
                        self.recover()
                    continue
                outcome = self.unlock_all()
                if outcome == "fail":
                    self.recover()
                break
            self.history.add(process=self.name, op="progress", names=[name],
                             start=now(), end=now(), outcome="ok")
