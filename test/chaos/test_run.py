#!/usr/bin/python3
"""A short run breaks no promise and exercises all features. Prints TAP.

CHAOS_SEED and CHAOS_SECONDS set another seed and duration. The history and
the logs are kept in TESTLOGDIR.
"""

import os
import subprocess
import sys

sys.dont_write_bytecode = True
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)

# pylint: disable=wrong-import-position
from checker import KINDS, Check                                # noqa: E402
from history import read                                        # noqa: E402

# Features that a useful run has exercised.
CONTENT = {
    "exclusive and shared, at both levels": lambda r: {
        (x["mode"], x["level"]) for x in r
        if x["op"] == "lock" and x["value"]} >= {
            (mode, level) for mode in "xs"
            for level in ("session", "transaction")},
    "permits, at both levels": lambda r: {
        x["level"] for x in r if x["op"] == "lock" and x["mode"] == "p"
        and x["value"]} == {"session", "transaction"},
    "several names at once": lambda r: any(
        x["op"] == "lock" and len(x["names"]) > 1 for x in r),
    "refused attempts": lambda r: any(
        x["op"] == "lock" and x["value"] is False for x in r),
    "rollbacks to savepoints": lambda r: any(
        x["op"] == "rollback_to" for x in r),
    "commits by clients of every server": lambda r: {
        x["process"][0] for x in r if x["op"] == "commit"} == set("abc"),
    "faults": lambda r: sum(
        x.get("process") == "nemesis" for x in r) > 10,
}


def main():
    logs = os.path.join(os.environ.get("TESTLOGDIR", "."), "chaos")
    subprocess.run(
        [os.path.join(HERE, "run"), "--seed", os.environ.get("CHAOS_SEED", "1"),
         "--seconds", os.environ.get("CHAOS_SECONDS", "60"), "--keep", logs],
        stdout=sys.stderr, check=False)
    check = Check(read(os.path.join(logs, "history.jsonl")))
    problems = check.run()
    done = [r for r in check.records if r.get("outcome") == "ok"]
    results = [(f"never: {kind}", [text for found, text in problems
                                   if found == kind]) for kind in KINDS]
    results.append(("the run had kept locks that were taken again",
                    [] if check.n_taken_again() else ["it had none"]))
    results += [(f"the run had {name}", [] if had(done) else ["it had none"])
                for name, had in CONTENT.items()]
    print(f"1..{len(results)}")
    for number, (name, wrong) in enumerate(results, 1):
        print(f"{'not ok' if wrong else 'ok'} {number} - {name}")
        for text in wrong:
            print(f"#   {text}")
        for text in wrong[:3]:      # also where the lines above are not shown
            print(f"not ok {number} - {name}: {text}", file=sys.stderr)
    return any(wrong for _, wrong in results)


if __name__ == "__main__":
    sys.exit(main())
