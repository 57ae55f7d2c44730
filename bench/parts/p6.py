"""P6: hand-over with a thousand waiters against ten."""

from parts.handover import one_server


def measure(bench):
    result = bench.result("P6", "Hand-over on one server, by the number of waiters")
    few, many = bench.size((10, 1000), (3, 10))
    numbers = bench.interleave(
        {str(size): lambda size=size: one_server(bench, size) for size in (few, many)},
        warm=False)
    for size, rounds in numbers.items():
        result.add_series(f"{size} wait", "ms for each hand-over", rounds)
    result.check_ratio("P6", f"time with {many} waiters, against {few}",
                       numbers[str(many)], numbers[str(few)], "at most", 1.3)
    return result
