"""The history of a run: one JSON line for each operation.

Owns: the file and the clock. All times are seconds of CLOCK_MONOTONIC of the
machine that drives the run; README.md describes the fields.
"""

import json
import threading
import time

now = time.monotonic


class History:
    """Appends records; thread-safe."""

    def __init__(self, path):
        self.lock = threading.Lock()
        self.file = open(path, "w", encoding="utf-8")

    def add(self, **record):
        line = json.dumps(record, separators=(",", ":"))
        with self.lock:
            if not self.file.closed:
                self.file.write(line + "\n")
                self.file.flush()

    def close(self):
        with self.lock:
            self.file.close()


def read(path):
    """Returns the records of a file, ordered by their ends."""
    with open(path, encoding="utf-8") as file:
        return [json.loads(line) for line in file]
