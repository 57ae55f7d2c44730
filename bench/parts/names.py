"""Growth: locks, zk_locks and empty znodes by the number of lock names."""

import time

# A root of its own: below the usual one are the empty znodes of other parts.
ROOT = "-c zklock.root=/names"
LOCKS = "/names/locks"
USED = 10       # names in use, far from each other


def measure(bench):
    result = bench.result("names", "Growth: the number of names")
    backlog(bench, result)      # first: of former names, ZooKeeper would remove some meanwhile
    once(bench, result)
    idle(bench, result)
    return result


def idle(bench, result):
    """Measures with this many idle names."""
    locks, looks, there = {}, {}, 0
    connection = bench.a.connect(options=ROOT)
    connection.cursor().execute("SELECT zk_lock('name0'), zk_unlock('name0')")
    connection.close()
    for size in bench.size([10, 1000, 10000, 100000], [10, 100]):
        bench.peers.c.order("fill", LOCKS, there, size)
        there = size
        script = bench.script(
            f"names{size}", f"\\set i random(0, {USED - 1}) * {size // USED}",
            "SELECT zk_lock('name' || :i), zk_unlock('name' || :i);")
        numbers = bench.interleave({
            "zklock, ten of the names": lambda: bench.a.pgbench(
                script, 1, bench.seconds, settings=ROOT),
            "C client, textbook, one name": lambda: bench.peers.c.rate(
                "textbook", 1, "own", bench.seconds),
        }, warm=False)
        for name, rates in numbers.items():
            locks.setdefault(name, {})[size] = [1000 / rate for rate in rates]
        for name, times in look(bench).items():
            looks.setdefault(name, {})[size] = times
    result.add_plot("One client's lock and unlock", ("names", "milliseconds"), WHY)
    for name, curve in locks.items():
        result.add_curve(name, curve)
    result.add_plot("Reading the queues, one lock of all names held",
                    ("names", "milliseconds"), WHY_LOOKING)
    for name, curve in looks.items():
        result.add_curve(name, curve)


def look(bench):
    """Returns milliseconds in one session; the first read does not count."""
    connection = bench.a.connect(options=ROOT)
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT zk_lock('name1')")

            def read(what):
                start = time.monotonic()
                cursor.execute(f"SELECT count(*) FROM {what}")
                assert cursor.fetchone() == (1,)
                return (time.monotonic() - start) * 1000

            read("zk_locks")
            return bench.interleave({
                what: lambda what=what: read(what)
                for what in ("zk_locks", "zk_locks_of('name1')")}, warm=False)
    finally:
        connection.close()


def new_names(bench, name, rate=None, use="zk_lock(n), zk_unlock(n)"):
    """Returns a pgbench script that uses each name once, and its options."""
    script = bench.script(
        name, "\\set i :i + 1", "\\set run random(1, 1000000000)",
        f"SELECT {use} FROM format('{name}:%s:%s', :run, :i) AS n;")
    return script, {"variables": ("i=0",), "options": ("-R", str(rate)) if rate else ()}


def backlog(bench, result):
    """Counts empty znodes after some seconds of new names, while the sessions continue."""
    seconds = bench.size(30, 2)
    uses = {
        "zklock, locks": "zk_lock(n), zk_unlock(n)",
        "zklock, semaphores": "zk_acquire_permit(n, 2), zk_release_permit(n)",
    }
    curves = {what: {} for what in uses}
    for rate in bench.size([50, 200, 500, 1000], [10, 20]):
        for what, use in uses.items():
            script, options = new_names(bench, f"{what[8:]}{rate}", rate, use)
            bench.zk.settle()
            before = znodes(bench)
            run = bench.a.start_pgbench(script, 4, seconds, **options)
            time.sleep(seconds)
            curves[what][rate] = [znodes(bench) - before]
            run.finish()
    result.add_plot(f"Empty znodes after {seconds} seconds of new names",
                    ("new names a second", "znodes"), WHY_BACKLOG)
    for what, curve in curves.items():
        result.add_curve(what, curve)


def znodes(bench):
    return int(bench.zk.counters()["zk_znode_count"])


def once(bench, result):
    """Compares names that are used once with a name that is used repeatedly."""
    own = bench.script("own", "SELECT zk_lock('own' || :client_id), zk_unlock('own' || :client_id);")
    new, options = new_names(bench, "once")
    for clients in (1, 8):
        numbers = bench.interleave({
            f"{clients} clients, a name used once": lambda clients=clients: bench.a.pgbench(
                new, clients, bench.seconds, **options),
            f"{clients} clients, a name of its own": lambda clients=clients: bench.a.pgbench(
                own, clients, bench.seconds)})
        result.add_all("locks/s", numbers)


WHY = (
    "A lock is looked for by its path, which the server has in a hash table, and only"
    " its own znode's children are listed: other names play no part.")
WHY_LOOKING = (
    "zk_locks reads the znode of each name, in pipelined requests, also if nobody uses"
    " the name; zk_locks_of() reads the znodes of its name.")
WHY_BACKLOG = (
    "A session deletes the znode of a name five seconds after its last use, so that at"
    " most some seconds' names are left, whatever the rate; a semaphore has three znodes."
    " ZooKeeper alone removes 10,000 a minute.")
