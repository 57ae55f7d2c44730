"""P5: a hundred names in one call."""

from parts.arrays import pair_rates

BOTH_MODES = True


def measure(bench):
    size = bench.size(100, 5)
    result = bench.result("P5", f"{size} names in one call: lock and unlock")
    numbers = pair_rates(bench, size)
    result.add_all("calls/s", numbers)
    result.check_ratio(
        "P5", "rate, against Curator's InterProcessMultiLock",
        numbers["zklock"], numbers["Curator InterProcessMultiLock"],
        "at least", 30)
    return result
