"""Processor time and sleeps of a backend's threads for a lock and unlock.

Processor time depends on the machine. So the same rounds measure the multi-threaded C
client's own processor time for a create and delete.
"""

from lib.threads import THREADS, of_process, since

BOTH_MODES = True
PAIRS = ("SELECT count(zk_lock('cpu')), count(zk_unlock('cpu'))"
         " FROM generate_series(1, %s)")
UNITS = {"time": "us", "sleeps": "sleeps"}


def measure(bench):
    result = bench.result("cpu", "Processor time of an uncontended zk_lock and zk_unlock")
    rounds = {(thread, kind): [] for kind in UNITS for thread in THREADS}
    client = []
    connection = bench.a.connect()
    try:
        with connection.cursor() as cursor:
            cursor.execute(PAIRS, (50,))
            for _ in range(bench.rounds):
                count_pairs(cursor, connection.info.backend_pid,
                            bench.size(2000, 50), rounds)
                client.append(bench.peers.c.processor_time(
                    "sync", 1, "own", bench.seconds))
    finally:
        connection.close()
    report(result, rounds, client)
    return result


def count_pairs(cursor, pid, number, rounds):
    before = of_process(pid)
    cursor.execute(PAIRS, (number,))
    for thread, counts in since(before, pid).items():
        for kind, count in counts.items():
            rounds[thread, kind].append(count / number)


def report(result, rounds, client):
    for (thread, kind), numbers in rounds.items():
        result.add_series(f"{thread}: {'processor time' if kind == 'time' else kind}",
                          UNITS[kind], numbers)
    every = [sum(times) for times in zip(*(rounds[thread, "time"] for thread in THREADS))]
    result.add_series("all threads of the backend: processor time", "us", every)
    result.add_series("C client, create and delete, all threads: processor time", "us", client)
    result.note_ratio(
        "The backend needs {} of the processor time that the multi-threaded C client needs"
        " for a synchronous create and delete on this machine.", every, client)
