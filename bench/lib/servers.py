"""The servers that bench/servers.sh has started, and pgbench on them.

Owns: how to reach them, and what is read from pgbench's output and from
ZooKeeper's counters. Starts and ends no server.
"""

import os
import re
import socket
import statistics
import subprocess

import psycopg2

DATABASE, USER = "postgres", "postgres"


class Server:
    """One PostgreSQL server."""

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

    def start_pgbench(self, script, clients, seconds, settings="", mode="simple"):
        """Runs for a second more: the first one, in which sessions are
        opened, does not count."""
        environment = dict(os.environ, PGOPTIONS=settings)
        command = ["pgbench", "-n", "-h", self.directory, "-p", str(self.port),
                   "-U", USER, "-M", mode, "-c", str(clients),
                   "-j", str(min(clients, 2)), "-P", "1",
                   "-T", str(seconds + 1), "-f", script, DATABASE]
        return subprocess.Popen(
            command, env=environment, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def pgbench(self, script, clients, seconds, settings="", mode="simple"):
        """Transactions per second."""
        return pgbench_rate(
            self.start_pgbench(script, clients, seconds, settings, mode))


def pgbench_rate(process):
    """Waits for its end."""
    output, errors = process.communicate()
    if process.returncode != 0 or "aborted" in errors:
        raise RuntimeError(f"pgbench failed:\n{output}{errors}")
    rates = re.findall(r"^progress: .* ([0-9.]+) tps", errors, re.MULTILINE)
    if len(rates) > 1:
        return statistics.mean(float(rate) for rate in rates[1:])
    return float(re.search(r"^tps = ([0-9.]+)", output, re.MULTILINE)[1])


class ZooKeeper:
    """The ZooKeeper server."""

    def __init__(self, connect_string):
        self.connect_string = connect_string

    def counters(self):
        """What mntr tells."""
        host, port = self.connect_string.split(":")
        with socket.create_connection((host, int(port)), 60) as connection:
            connection.sendall(b"mntr")
            with connection.makefile() as answer:
                rows = [line.rstrip("\n").split("\t") for line in answer]
        return {row[0]: row[1] for row in rows if len(row) == 2}

    def packets(self):
        return int(float(self.counters()["zk_packets_received"]))


def from_environment():
    """The ZooKeeper server, and the PostgreSQL servers by name."""
    servers = {}
    for word in os.environ["BENCH_PORTS"].split():
        name, port = word.split("=")
        servers[name] = Server(name, os.environ["BENCH_SOCKETS"], int(port))
    return ZooKeeper(os.environ["BENCH_ZK"]), servers
