"""kazoo's locks under the node names of Curator.

Owns: three subclasses, by which a Python program meets Java programs that use
Curator, and SQL sessions with zklock.node_names = curator_mutex or curator.
They set attributes of kazoo's classes that kazoo does not document.
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


class Read(Lock):
    """The read lock of an InterProcessReadWriteLock."""

    _NODE_NAME = "__READ__"
    _EXCLUDE_NAMES = ["__WRIT__"]
