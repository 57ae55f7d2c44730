"""kazoo's locks under the node names of Curator.

Owns: two subclasses, with which a Python program contends with Java programs that
use Curator, and with SQL sessions with zklock.node_names = curator_mutex or curator.
They set undocumented attributes of kazoo's classes.
"""

from kazoo.recipe.lock import Lock


class Mutex(Lock):
    """An InterProcessMutex."""

    _NODE_NAME = "-lock-"
    _EXCLUDE_NAMES = ["-lock-"]


class Write(Lock):
    """The write lock of an InterProcessReadWriteLock."""

    _NODE_NAME = "__WRIT__"
    _EXCLUDE_NAMES = ["__READ__", "__WRIT__"]
