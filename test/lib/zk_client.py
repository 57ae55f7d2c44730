#!/usr/bin/python3
"""A kazoo session driven over standard input and output.

Owns: one ZooKeeper session. Reads one JSON object per line,
{"op": ..., "id": ..., further arguments}, and answers each with one line,
{"id": ..., "ok": result} or {"id": ..., "error": class, "message": text}; the
answer of id 0 reports that the session is open. Node data are sent as text in which
every character is one byte. ZkLock::ZkClient is the only caller.
"""

import json
import socket
import struct
import sys
import threading
import time

from kazoo.client import KazooClient
from kazoo.exceptions import KazooException, NoNodeError, NotEmptyError
from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.protocol.serialization import Create2
from kazoo.security import (
    ACL, CREATOR_ALL_ACL, OPEN_ACL_UNSAFE, READ_ACL_UNSAFE, Id, make_acl,
    make_digest_acl)


class CreateContainer(Create2):
    """kazoo's Create2 request with the type number of createContainer."""

    type = 19


def acls(spec):
    """Returns the ACL list for "world", "read", "add" (read and create, but not delete),
    "creator", {"digest": "u:p"}, or as get_acls() returns it: [[perms, scheme, id], ...]."""
    if spec is None or spec == "world":
        return OPEN_ACL_UNSAFE
    if spec == "read":
        return READ_ACL_UNSAFE
    if spec == "add":
        return [make_acl("world", "anyone", read=True, create=True)]
    if spec == "creator":
        return CREATOR_ALL_ACL
    if isinstance(spec, list):
        return [ACL(perms, Id(scheme, name)) for perms, scheme, name in spec]
    user, password = spec["digest"].split(":", 1)
    return [make_digest_acl(user, password, all=True)]


def stat_dict(stat):
    """Returns a kazoo ZnodeStat as a dictionary, with the owner as hexadecimal text."""
    owner = stat.ephemeralOwner
    return {
        "czxid": stat.czxid,
        "mzxid": stat.mzxid,
        "pzxid": stat.pzxid,
        "ctime": stat.ctime,
        "mtime": stat.mtime,
        "version": stat.version,
        "cversion": stat.cversion,
        "aversion": stat.aversion,
        "dataLength": stat.dataLength,
        "numChildren": stat.numChildren,
        "ephemeralOwner": hex(owner & (1 << 64) - 1),
        "isEphemeral": int(owner != 0),
    }


def password_of(session_id):
    """Returns the password that a ZooKeeper server assigns to a session: 16 bytes of
    java.util.Random, seeded with the session id and a constant of ZooKeeper's source."""
    seed = (session_id ^ 0xB3415C00 ^ 0x5DEECE66D) & (1 << 48) - 1
    password = b""
    while len(password) < 16:
        seed = (seed * 0x5DEECE66D + 0xB) & (1 << 48) - 1
        password += (seed >> 16).to_bytes(4, "little")
    return password


class Driver:
    """One method per operation."""

    def __init__(self, hosts, timeout):
        # kazoo's default pauses double up to a minute: after an outage the session
        # would expire. A server that has just started may leave a reconnection
        # unanswered; kazoo waits for the session timeout divided by the number of
        # servers.
        self.client = KazooClient(
            hosts=",".join([hosts] * 3), timeout=timeout,
            handler=SequentialThreadingHandler(),
            connection_retry={"max_tries": -1, "delay": 0.1, "backoff": 1})
        self.client.start(timeout=max(timeout, 30))
        self.is_ensemble = "," in hosts

    def children(self, path):
        try:
            return sorted(self.client.get_children(path))
        except NoNodeError:
            return []

    def tree(self, path):
        found = []
        for name in self.children(path):
            child = path.rstrip("/") + "/" + name
            found.append(child)
            found.extend(self.tree(child))
        return found

    def get(self, path):
        data, stat = self.client.get(path)
        result = stat_dict(stat)
        result["data"] = (data or b"").decode("latin-1")
        return result

    def exists(self, path):
        stat = self.client.exists(path)
        return stat and stat_dict(stat)

    def create(self, path, data="", acl=None, ephemeral=False,
               sequence=False, container=False, makepath=False):
        data = data.encode("latin-1")
        if not container:
            return self.client.create(
                path, data, acl=acls(acl), ephemeral=ephemeral,
                sequence=sequence, makepath=makepath)
        if makepath:
            self.client.ensure_path(path.rsplit("/", 1)[0] or "/")
        result = self.client.handler.async_result()
        flags = 4
        self.client._call(
            CreateContainer(path, data, acls(acl), flags), result)
        return result.get()[0]

    def create_children(self, path, count, length):
        """Creates count children whose names have length characters."""
        self.client.ensure_path(path)
        for number in range(count):
            self.client.create(f"{path}/{number:0{length}}")
        return True

    def create_contenders(self, path, count, size, first=0):
        """Creates count exclusive nodes of a lock whose data have size bytes, many at a time."""
        self.client.ensure_path(path)
        for begin in range(first, first + count, 100):
            creates = self.client.transaction()
            for number in range(begin, min(begin + 100, first + count)):
                creates.create(f"{path}/_c_{number:08x}-0000-4000-8000-000000000000-lock-{number:010}", b"x" * size)
            creates.commit()
        return True

    def delete_children(self, path):
        for name in self.children(path):
            self.client.delete(path + "/" + name)
        return True

    def delete(self, path, recursive=False):
        if recursive:
            return self.delete_tree(path)
        return self.client.delete(path)

    def delete_tree(self, path):
        """Deletes the tree in one transaction: a program that uses it may recreate nodes."""
        while self.client.exists(path):
            deletes = self.client.transaction()
            for each in [*reversed(self.tree(path)), path]:
                deletes.delete(each)
            wrong = [result for result in deletes.commit()
                     if isinstance(result, KazooException)]
            if not wrong:
                break
            if not any(isinstance(error, (NotEmptyError, NoNodeError))
                       for error in wrong):
                raise wrong[0]
        return True

    def set(self, path, data):
        return stat_dict(self.client.set(path, data.encode("latin-1")))

    def get_acls(self, path):
        return [[acl.perms, acl.id.scheme, acl.id.id]
                for acl in self.client.get_acls(path)[0]]

    def set_acl(self, path, acl):
        self.client.set_acls(path, acls(acl))
        return True

    def add_auth(self, scheme, credential):
        self.client.add_auth(scheme, credential)
        return True

    def state(self):
        return self.client.state

    def session_id(self):
        return hex((self.client.client_id or (0,))[0] & (1 << 64) - 1)

    def hold_session(self, session_id):
        """Takes over the session of another client, and sends its heartbeats from now on."""
        number = int(session_id, 16)
        connect = struct.pack(">iqiQi16s?", 0, 0, 10000, number, 16, password_of(number), False)
        ping = struct.pack(">iii", 8, -2, 11)
        server = socket.create_connection(self.client.hosts[0], timeout=30)
        server.sendall(struct.pack(">i", len(connect)) + connect)

        def beat():
            while server.recv(4096):
                time.sleep(0.5)
                server.sendall(ping)
        threading.Thread(target=beat, daemon=True).start()
        server.sendall(ping)
        return True

    def end_session(self, session_id):
        """Takes over and closes the session of another client. That client may take it
        back in between."""
        number = int(session_id, 16)
        connect = struct.pack(">iqiQi16s?", 0, 0, 10000, number, 16,
                              password_of(number), False)
        close = struct.pack(">ii", 1, -11)
        with socket.create_connection(self.client.hosts[0], timeout=30) as server:
            server.sendall(b"".join(
                struct.pack(">i", len(frame)) + frame for frame in (connect, close)))
            try:
                while server.recv(4096):
                    pass
            except ConnectionError:
                pass
        return True

    def close(self):
        self.client.stop()
        self.client.close()
        return True


def answer(driver, request):
    """Runs one request and returns the answer."""
    operation, number = request.pop("op"), request.pop("id")
    try:
        # A member of an ensemble may lag behind the others.
        if driver.is_ensemble and operation in ("children", "tree", "get", "exists"):
            driver.client.sync("/")
        return {"id": number, "ok": getattr(driver, operation)(**request)}
    except Exception as error:  # pylint: disable=broad-except
        return failure(number, error)


def failure(number, error):
    return {"id": number, "error": type(error).__name__, "message": str(error)}


def reply(value):
    print(json.dumps(value), flush=True)


def main():
    hosts, timeout = sys.argv[1], float(sys.argv[2])
    try:
        driver = Driver(hosts, timeout)
    except Exception as error:  # pylint: disable=broad-except
        reply(failure(0, error))
        return 1
    reply({"id": 0, "ok": driver.session_id()})
    for line in sys.stdin:
        request = json.loads(line)
        last = request["op"] == "close"
        reply(answer(driver, request))
        if last:
            return 0
    driver.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
