#!/usr/bin/python3
"""Measures parts of the benchmark on the servers that bench/servers.sh started.

Owns: finding the parts, what is said meanwhile, and writing what they return.
A part is a module of bench/parts with a function measure(bench), which returns
a Result.
"""

import argparse
import importlib
import os
import sys
import time

sys.dont_write_bytecode = True

# pylint: disable=wrong-import-position
from lib.bench import Bench                                     # noqa: E402
from lib.machine import describe                                # noqa: E402


def measure(name, bench, where):
    module = importlib.import_module(f"parts.{name}")
    start = time.monotonic()
    result = module.measure(bench)
    result.write(
        os.path.join(where, f"{name}.json"), quick=bench.quick,
        machine=describe(bench), seconds=round(time.monotonic() - start, 1))
    return result


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", required=True)
    parser.add_argument("parts", nargs="+")
    options = parser.parse_args()
    bench = Bench(options.quick, options.rounds, options.out)
    try:
        for name in options.parts:
            print(f"== {name}", flush=True)
            result = measure(name, bench, options.out)
            print(result.text(), flush=True)
    finally:
        bench.end()


if __name__ == "__main__":
    main()
