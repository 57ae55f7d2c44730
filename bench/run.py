#!/usr/bin/python3
"""Measures parts of the benchmark on the servers that bench/servers.sh started.

Owns: finding the parts, the progress output, and writing the results. A part is
a module of bench/parts with a function measure(bench), which returns a Result. A
part that fails does not stop the others, but the exit status is then 1.
"""

import argparse
import importlib
import os
import sys
import time
import traceback

sys.dont_write_bytecode = True

# pylint: disable=wrong-import-position
from lib.bench import Bench                                     # noqa: E402
from lib.machine import check_disk, describe, disk_sync         # noqa: E402
from lib.results import NoNumbers                               # noqa: E402

SUFFIX = {"off": "", "on": "_sync"}


def measure(name, bench, where):
    module = importlib.import_module(f"parts.{name}")
    start = time.monotonic()
    result = module.measure(bench)
    result.write(
        os.path.join(where, f"{name}{SUFFIX[bench.sync]}.json"), quick=bench.quick,
        sync=bench.sync, disk_sync=disk_sync() if bench.sync == "on" else None,
        machine=describe(bench),
        seconds=round(time.monotonic() - start, 1))
    return result


def measured(name, bench, where):
    """Prints the result; returns false if there is none."""
    start = time.monotonic()
    print(f"== {name}, disk sync {bench.sync}", flush=True)
    try:
        print(measure(name, bench, where).text())
    except NoNumbers as failure:
        print(f"FAILED: {failure}")
        return False
    except Exception:                       # pylint: disable=broad-except
        print(f"FAILED: {name}\n{traceback.format_exc()}")
        bench.peers.end()                   # a peer may have failed
        return False
    finally:
        print(f"  ({time.monotonic() - start:.0f} s)", flush=True)
    return True


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--sync", choices=SUFFIX, default="off")
    parser.add_argument("--out", required=True)
    parser.add_argument("parts", nargs="+")
    options = parser.parse_args()
    bench = Bench(options.quick, options.rounds, options.out, options.sync)
    if options.sync == "on" and not options.quick:
        check_disk()
    try:
        done = [measured(name, bench, options.out) for name in options.parts]
    finally:
        bench.end()
    return 0 if all(done) else 1


if __name__ == "__main__":
    sys.exit(main())
