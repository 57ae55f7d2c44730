"""The machine, and the versions of the measured programs."""

import os
import platform
import re
import subprocess
import tempfile
import time
from statistics import median


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def first(pattern, text):
    found = re.search(pattern, text, re.MULTILINE)
    return found[1] if found else "unknown"


def output(*command):
    return subprocess.run(
        command, text=True, check=False, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT).stdout


def package_versions():
    listed = output("dpkg-query", "-W", "-f", "${Package} ${Version}\n", "*zookeeper*",
                    "libcurator-recipes-java", "python3-kazoo")
    return dict(line.split(" ", 1) for line in listed.splitlines()
                if re.match(r"(libzookeeper-(java|mt2|st2)|libcur|python3-kazoo)\S* \d", line))


def disk_sync():
    """Returns the median time of a write to ZooKeeper's disk, in milliseconds."""
    times = []
    with tempfile.TemporaryFile(dir=os.environ["BENCH_DISK"]) as file:
        os.write(file.fileno(), bytes(1 << 20))
        os.fsync(file.fileno())
        for i in range(100):
            start = time.monotonic()
            os.pwrite(file.fileno(), b"x" * 200, 200 * i)
            os.fdatasync(file.fileno())
            times.append((time.monotonic() - start) * 1000)
    return median(times)


def check_disk():
    """Exits if the sync is to be measured without a disk."""
    if disk_sync() < 0.01:
        raise SystemExit(f"{os.environ['BENCH_DISK']} is not on a disk:"
                         " name a directory that is, by --disk")


def describe(bench):
    """Returns names and values, in the order of the report."""
    memory = int(first(r"^MemTotal:\s+(\d+)", read("/proc/meminfo")))
    machine = {
        "processor": first(r"^model name\s*: (.*)$", read("/proc/cpuinfo")),
        "cores": os.cpu_count(),
        "memory": f"{memory / 2**20:.1f} GiB",
        "kernel": platform.release(),
        "system": first(r'^PRETTY_NAME="(.*)"', read("/etc/os-release")),
        "zklock": os.environ.get("BENCH_COMMIT") or "unknown",
        "PostgreSQL": bench.a.query("SHOW server_version")[0][0],
        "ZooKeeper": bench.zk.counters()["zk_version"].split(",")[0],
        "Java": first(r'version "(.*?)"', output("java", "-version")),
        "Python": platform.python_version(),
    }
    return {**machine, **package_versions()}
