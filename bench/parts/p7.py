"""P7: calls that need no network."""

LOOP = "FROM generate_series(1, 1000);"
ADVISORY = "pg_advisory_lock(1)", "pg_advisory_unlock(1)"
# Commands that a client runs once.
HOLD = ["\\if not :held", "SELECT zk_lock('held');", "\\set held true", "\\endif"]
OURS = {
    "re-entrant lock and unlock": ("zk_lock('held')", "zk_unlock('held')"),
    "token": ("zk_lock_token('held')",),
    "an attempt against a local holder": ("zk_try_lock('theirs')",),
}


def measure(bench):
    result = bench.result("P7", "What needs no network")
    bench.peers.end()               # their pings are requests, too
    holder = bench.a.connect()
    try:
        with holder.cursor() as cursor:
            cursor.execute("SELECT zk_lock('theirs')")
        for name, form, times in (("one in a statement", one, 1),
                                  ("a thousand in a statement", thousand, 1000)):
            rates, requests = compare(bench, form, times)
            result.add_all("calls/s", {f"{what}, {name}": rounds
                                       for what, rounds in rates.items()})
            for what in OURS:
                result.check_ratio(
                    "P7", f"rate of {what}, {name}, against pg_advisory_lock and unlock",
                    rates[what], rates["pg_advisory_lock and unlock"], "at least", 0.9)
            result.check("P7", f"requests for each call, {name}", max(requests),
                         "at most", 0.01)
    finally:
        holder.close()
    return result


def one(calls):
    return f"SELECT {', '.join(calls)};"


def thousand(calls):
    return f"SELECT {', '.join(f'count({call})' for call in calls)} {LOOP}"


def compare(bench, form, times):
    """Returns rates, and requests at the ensemble for each call of zklock."""
    requests = []

    def rate(script):
        before = bench.zk.packets()
        run = bench.a.start_pgbench(script, 1, 1, mode="prepared",
                                    variables=["held=false"]).finish()
        requests.append((bench.zk.packets() - before) / (max(run.count, 1) * times))
        return run.rate * times

    scripts = {what: bench.script(f"p7_{number}_{times}", *HOLD, form(calls))
               for number, (what, calls) in enumerate(
                   [*OURS.items(), ("pg_advisory_lock and unlock", ADVISORY)])}
    return bench.interleave({what: lambda path=path: rate(path)
                             for what, path in scripts.items()}, warm=False), requests
