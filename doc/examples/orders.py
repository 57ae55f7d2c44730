# Excludes SQL sessions with zklock.node_names = 'kazoo', and with no other value. Tested with
# kazoo 2.8.
#
#     orders.py ENSEMBLE MILLISECONDS

import os
import sys
import time
from urllib.parse import quote
from kazoo.client import KazooClient


def path_of(name):
    """The path of the lock that SQL calls by this name."""
    return "/zklock/locks/" + quote(name, safe=":@+=")


def on_state(state):
    if state != "CONNECTED":                # the lock may be lost
        print("stopped:", state, flush=True)
        os._exit(1)


zk = KazooClient(sys.argv[1], timeout=10)   # as zklock.session_timeout
zk.add_listener(on_state)
zk.start()
try:
    lock = zk.Lock(path_of("orders/north"))
    if not lock.acquire(timeout=60):
        sys.exit("another holder has the lock")
    try:
        print("alone in the cluster", flush=True)
        time.sleep(float(sys.argv[2]) / 1000)               # the work
    finally:
        lock.release()
finally:
    zk.remove_listener(on_state)
    zk.stop()
