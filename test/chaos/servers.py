"""The servers of a run, which test/chaos/servers.pl starts and stops.

Owns: that process, and the commands to it, one at a time.
"""

import json
import os
import subprocess
import threading


class Broken(Exception):
    """A command to the servers failed."""


class Servers:
    """Starts all servers; close() stops them. With "direct" the members of the ensemble
    cannot be cut off from each other; they elect a new leader sooner."""

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
        """Sends a command; returns the answer."""
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
        """Returns the process id of a PostgreSQL server's postmaster, or 0."""
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
