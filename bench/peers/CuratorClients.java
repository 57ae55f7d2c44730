import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessLock;
import org.apache.curator.framework.recipes.locks.InterProcessMultiLock;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.retry.ExponentialBackoffRetry;

/**
 * Acquires and releases Curator's locks as fast as possible.
 *
 * <p>Owns: sessions, some of which stay open, and threads. Reads commands from standard input, each a
 * line of words, and answers "ok" and numbers. "run KIND CLIENTS WHERE LEAD SECONDS": the number of
 * locks acquired. LEAD seconds pass before the count begins. WHERE is "own", a lock for each
 * client, or "one" for all of them. "times KIND SECONDS": the microseconds of each turn of one client
 * with a lock of its own. Kinds: "mutex", each client with a session of its own; "shared", all
 * clients in one session; "multiN", an InterProcessMultiLock of N. bench/lib/peers.py is the only
 * caller.
 */
public final class CuratorClients {
    private static final String ROOT = "/bench_curator/";

    /** More sessions than these are closed after a run: their pings would disturb the next. */
    private static final int KEPT = 64;

    private final String connectString;
    private final List<CuratorFramework> sessions = new ArrayList<>();

    private CuratorClients(String connectString) {
        this.connectString = connectString;
    }

    public static void main(String[] arguments) throws Exception {
        PrintStream out = System.out;
        System.setOut(System.err);
        CuratorClients clients = new CuratorClients(arguments[0]);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            out.println(clients.obey(line.split(" ")));
            out.flush();
        }
        Runtime.getRuntime().halt(0);
    }

    private String obey(String[] order) {
        try {
            if (order[0].equals("times")) {
                return "ok " + times(order[1], Double.parseDouble(order[2]));
            }
            double seconds = Double.parseDouble(order[5]);
            long count = run(order[1], Integer.parseInt(order[2]), order[3],
                    Double.parseDouble(order[4]), seconds);
            return "ok " + count;
        } catch (Throwable error) {
            return "error " + error;
        }
    }

    private long run(String kind, int clients, String where, double lead, double seconds)
            throws Exception {
        open(kind.equals("shared") ? 1 : clients);
        long from = System.nanoTime() + (long) (lead * 1e9);
        long until = from + (long) (seconds * 1e9);
        ExecutorService threads = Executors.newFixedThreadPool(clients);
        List<Future<Long>> counts = new ArrayList<>();
        for (int i = 0; i < clients; i++) {
            InterProcessLock lock = lock(kind, i, where.equals("own") ? "own" + i : where);
            counts.add(threads.submit(() -> work(lock, from, until)));
        }
        threads.shutdown();
        long sum = 0;
        for (Future<Long> count : counts) {
            sum += count.get();
        }
        while (sessions.size() > KEPT) {
            sessions.remove(sessions.size() - 1).close();
        }
        return sum;
    }

    /** Returns the number of locks acquired between the two times. */
    private static long work(InterProcessLock lock, long from, long until) throws Exception {
        long count = 0;
        for (long now = System.nanoTime(); now < until; ) {
            lock.acquire();
            now = System.nanoTime();
            if (now >= from && now < until) {
                count++;
            }
            lock.release();
        }
        return count;
    }

    private String times(String kind, double seconds) throws Exception {
        open(1);
        InterProcessLock lock = lock(kind, 0, "own0");
        List<String> taken = new ArrayList<>();
        long start = System.nanoTime();
        for (long until = start + (long) (seconds * 1e9); start < until; ) {
            lock.acquire();
            lock.release();
            long end = System.nanoTime();
            taken.add(String.valueOf((end - start) / 1000));
            start = end;
        }
        return String.join(" ", taken);
    }

    private void open(int number) throws Exception {
        while (sessions.size() < number) {
            CuratorFramework session = CuratorFrameworkFactory.newClient(
                    connectString, 60000, 30000, new ExponentialBackoffRetry(100, 10));
            session.start();
            session.blockUntilConnected();
            sessions.add(session);
        }
    }

    private InterProcessLock lock(String kind, int client, String name) {
        CuratorFramework session = sessions.get(kind.equals("shared") ? 0 : client);
        if (!kind.startsWith("multi")) {
            return new InterProcessMutex(session, ROOT + name);
        }
        List<String> paths = new ArrayList<>();
        for (int i = 0; i < Integer.parseInt(kind.substring(5)); i++) {
            paths.add(ROOT + name + "_" + i);
        }
        return new InterProcessMultiLock(session, paths);
    }
}
