"""What a lock costs the threads of its backend: processor time, and sleeps."""

from lib.threads import THREADS, of_process, since

PAIRS = ("SELECT count(zk_lock('cpu')), count(zk_unlock('cpu'))"
         " FROM generate_series(1, %s)")
UNITS = {"time": "us", "sleeps": "sleeps"}


def measure(bench):
    result = bench.result("cpu", "zk_lock and zk_unlock, uncontended, for each pair")
    number = bench.size(2000, 50)
    rounds = {(thread, kind): [] for kind in UNITS for thread in THREADS}
    connection = bench.a.connect()
    try:
        with connection.cursor() as cursor:
            cursor.execute(PAIRS, (50,))
            pid = connection.info.backend_pid
            for _ in range(bench.rounds):
                before = of_process(pid)
                cursor.execute(PAIRS, (number,))
                for thread, counts in since(before, pid).items():
                    for kind, count in counts.items():
                        rounds[thread, kind].append(count / number)
    finally:
        connection.close()
    for (thread, kind), numbers in rounds.items():
        result.add_series(f"{thread}: {'processor time' if kind == 'time' else kind}",
                          UNITS[kind], numbers)
    return result
