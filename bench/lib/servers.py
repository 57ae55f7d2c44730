"""The servers that bench/servers.sh has started, and pgbench on them.

Owns: connections to them, and parsing of pgbench's output and ZooKeeper's
counters. Starts and stops no server.
"""

import os
import re
import socket
import statistics
import subprocess
import time

import psycopg2

from lib.results import per_second

DATABASE, USER = "postgres", "postgres"


class Server:
    """One PostgreSQL server."""

    warm_up = 1         # seconds of pgbench

    def __init__(self, name, directory, port):
        self.name = name
        self.port = port
        self.directory = directory

    def connect(self, **options):
        connection = psycopg2.connect(
            host=self.directory, port=self.port, dbname=DATABASE, user=USER,
            **options)
        if not options.get("async_"):
            connection.autocommit = True
        return connection

    def query(self, sql, *arguments):
        connection = self.connect()
        try:
            with connection.cursor() as cursor:
                cursor.execute(sql, arguments or None)
                return cursor.fetchall() if cursor.description else []
        finally:
            connection.close()

    def start_pgbench(self, script, clients, seconds, settings="", mode="simple",
                      variables=(), options=()):
        """Starts pgbench; the warm-up, in which sessions are opened, does not count."""
        environment = dict(os.environ, PGOPTIONS=settings)
        command = ["pgbench", "-n", "-h", self.directory, "-p", str(self.port),
                   "-U", USER, "-M", mode, "-c", str(clients),
                   "-j", str(min(clients, 2)), "-P", "1",
                   "-T", str(seconds + self.warm_up), "-f", script, *options]
        for variable in variables:
            command += ["-D", variable]
        return Pgbench(subprocess.Popen(
            command + [DATABASE], env=environment, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE), seconds, self.warm_up)

    def pgbench(self, *arguments, **options):
        """Returns transactions per second."""
        return self.start_pgbench(*arguments, **options).finish().rate


class Pgbench:
    """A run of pgbench, with the number of transactions and the rate after the
    warm-up at its end."""

    def __init__(self, process, seconds, warm_up):
        self.process = process
        self.seconds = seconds
        self.warm_up = warm_up
        self.rate = self.count = self.output = None

    def finish(self):
        output, errors = self.process.communicate()
        if self.process.returncode != 0 or "aborted" in errors:
            raise RuntimeError(f"pgbench failed:\n{output}{errors}")
        self.output = output
        self.count = int(re.search(r"actually processed: (\d+)", output)[1])
        rates = re.findall(r"^progress: .* ([0-9.]+) tps", errors, re.MULTILINE)
        rates = rates[self.warm_up:]
        if self.warm_up and rates:
            self.rate = statistics.mean(float(rate) for rate in rates)
        else:
            self.rate = per_second(self.count, self.seconds)
        return self


class ZooKeeper:
    """The ZooKeeper server."""

    def __init__(self, connect_string):
        self.connect_string = connect_string

    def counters(self):
        """Returns the output of mntr."""
        host, port = self.connect_string.split(":")
        with socket.create_connection((host, int(port)), 60) as connection:
            connection.sendall(b"mntr")
            with connection.makefile() as answer:
                rows = [line.rstrip("\n").split("\t") for line in answer]
        return {row[0]: row[1] for row in rows if len(row) == 2}

    def packets(self):
        return int(float(self.counters()["zk_packets_received"]))

    def watches(self):
        """Returns the number of watches of all clients."""
        return int(float(self.counters()["zk_watch_count"]))

    def settle(self):
        """Waits until the server has closed the connections of all ended clients."""
        seen = None
        while True:
            counters = self.counters()
            now = (counters["zk_num_alive_connections"], counters["zk_ephemerals_count"])
            if now == seen and counters["zk_outstanding_requests"] == "0":
                return
            seen = now
            time.sleep(0.1)


def from_environment():
    """Returns the ZooKeeper server, and the PostgreSQL servers by name."""
    servers = {}
    for word in os.environ["BENCH_PORTS"].split():
        name, port = word.split("=")
        servers[name] = Server(name, os.environ["BENCH_SOCKETS"], int(port))
    return ZooKeeper(os.environ["BENCH_ZK"]), servers
