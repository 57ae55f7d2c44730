"""The servers of a run, as test/chaos/servers.pl keeps them.

Owns: that process, and one command at a time with it.
"""

import json
import os
import subprocess
import threading


class Broken(Exception):
    """The servers do not obey."""


class Servers:
    """Starts everything; close() ends it. direct: no member of the ensemble can
    be cut off from the others, who elect a new leader the sooner."""

    def __init__(self, where, tick_ms, session_timeout, settings, direct):
        here = os.path.dirname(os.path.abspath(__file__))
        pgxs = subprocess.run(
            [os.environ.get("PG_CONFIG", "pg_config"), "--pgxs"],
            check=True, capture_output=True, text=True).stdout.strip()
        tests = os.path.join(os.path.dirname(pgxs), "../test")
        environment = dict(
            os.environ, TMPDIR=where, TESTDIR=where,
            TESTDATADIR=os.path.join(where, "tmp_check"),
            TESTLOGDIR=os.path.join(where, "tmp_check/log"),
            PG_REGRESS=os.path.join(tests, "regress/pg_regress"))
        self.lock = threading.Lock()
        self.process = subprocess.Popen(
            ["perl", "-I", os.path.join(here, "../lib"),
             "-I", os.path.join(tests, "perl"),
             os.path.join(here, "servers.pl"), str(tick_ms), session_timeout,
             settings, str(int(direct))],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            env=environment, cwd=where, start_new_session=True)
        self.info = json.loads(self.ask("info"))

    def ask(self, *words):
        """One command; its answer."""
        with self.lock:
            try:
                print(*words, file=self.process.stdin, flush=True)
            except BrokenPipeError as error:
                raise Broken("the servers have ended") from error
            for line in self.process.stdout:
                verdict, _, text = line.rstrip("\n").partition(" ")
                if verdict == "ok":
                    return text
                if verdict == "error":
                    raise Broken(f"{' '.join(map(str, words))}: {text}")
        raise Broken("the servers have ended")

    def postmaster(self, server):
        """Process id of a PostgreSQL server's postmaster, or 0."""
        path = os.path.join(self.info["pg"][server - 1]["dir"],
                            "postmaster.pid")
        try:
            with open(path, encoding="ascii") as file:
                return int(file.readline() or 0)
        except OSError:
            return 0

    def close(self):
        self.process.stdin.close()
        self.process.stdout.read()
        self.process.wait(60)
