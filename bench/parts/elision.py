"""List elision: the library with list elision, and a library that lists the queue for each lock.

The server "lists" runs the same sources, compiled with ZKL_ALWAYS_LIST
(src, list_elision.c).
"""

from lib.results import ratio
from parts.p1 import SQL as ONE
from parts.p2 import CLIENTS, SQL as EIGHT

GAIN = 1.1


def measure(bench):
    result = bench.result("elision", "Own locks, with list elision and without")
    forms = {"one client": (bench.script("elision1", ONE), 1),
             f"{CLIENTS} clients": (bench.script("elision8", EIGHT), CLIENTS)}
    servers = {"with": bench.a, "without": bench.lists}
    numbers = bench.interleave({
        f"{form}, {variant}": lambda server=server, script=script, clients=clients:
            server.pgbench(script, clients, bench.seconds)
        for form, (script, clients) in forms.items() for variant, server in servers.items()
    }, rounds=2 * bench.rounds, warm=False)
    result.add_all("pairs/s", numbers)
    gains = {form: ratio(numbers[f"{form}, with"], numbers[f"{form}, without"])
             for form in forms}
    for form, gain in gains.items():
        result.note(f"{form}: {gain:.3g} times the rate without.")
    result.check("elision", "rate with list elision, against without, the greater of both",
                 max(gains.values()), "at least", GAIN)
    return result
