"""P14: a transaction that takes a kept lock, against PostgreSQL's own advisory lock."""

SETTING = "-c zklock.keep_time=10min"
TRANSACTIONS = {
    "shared": ("SELECT zk_xact_lock_shared('gate');",
               "SELECT pg_advisory_xact_lock_shared(1);"),
    "exclusive": ("SELECT zk_xact_lock((:client_id)::text);",
                  "SELECT pg_advisory_xact_lock(:client_id);"),
}


def measure(bench):
    result = bench.result("P14", "A transaction with a lock that its session keeps")
    bench.peers.end()               # their pings are requests, too
    for mode, (ours, theirs) in TRANSACTIONS.items():
        kept = bench.script(f"p14_{mode}", ours)
        advisory = bench.script(f"p14_{mode}_advisory", theirs)
        for clients in 1, 8:
            compare(bench, result, f"{mode}, {clients} client{'s' if clients > 1 else ''}",
                    clients, kept, advisory)
    return result


def compare(bench, result, what, clients, kept, advisory):
    requests = []

    def run(script):
        return bench.a.start_pgbench(script, clients, bench.size(8, 1), mode="prepared",
                                     settings=SETTING).finish()

    def ours():
        before = bench.zk.packets()
        done = run(kept)
        requests.append((bench.zk.packets() - before) / max(done.count, 1))
        return done.rate

    rates = bench.interleave({"kept": ours, "advisory": lambda: run(advisory).rate})
    result.add_all("transactions/s", {f"zklock, {what}": rates["kept"],
                                      f"PostgreSQL, {what}": rates["advisory"]})
    result.check_ratio("P14", f"rate of a kept lock, {what}, against PostgreSQL's own",
                       rates["kept"], rates["advisory"], "at least", 0.8)
    result.check("P14", f"requests for each transaction, {what}", max(requests), "at most", 0.02)
