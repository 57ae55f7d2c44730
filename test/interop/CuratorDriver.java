import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;

/**
 * Curator's locks, driven over standard input and output.
 *
 * Owns: the protocol and its threads. Each line is "id, party, verb, arguments...", separated by
 * tabs; a party is a thread, which obeys its orders one after another. Each is answered, when it
 * is carried out, by a line "id, ok, results..." or "id, error, class, message". The verb
 * "interrupt" is not the party's own business: it interrupts what the party does. What the verbs
 * mean is in {@link CuratorLocks}. ZkLock::Opponent is the only caller.
 */
public final class CuratorDriver {
    private static final PrintStream OUT =
            new PrintStream(System.out, true, StandardCharsets.UTF_8);

    private final CuratorLocks locks;
    private final Map<String, ExecutorService> parties = new ConcurrentHashMap<>();
    private final Map<String, Future<?>> busy = new ConcurrentHashMap<>();

    private CuratorDriver(CuratorLocks locks) {
        this.locks = locks;
    }

    public static void main(String[] arguments) throws Exception {
        System.setOut(System.err);
        CuratorDriver driver = new CuratorDriver(new CuratorLocks(arguments[0]));
        BufferedReader in =
                new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        OUT.println("0\tok");
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            driver.order(line.split("\t", -1));
        }
        Runtime.getRuntime().halt(0);
    }

    private void order(String[] order) {
        String party = order[1];
        if (order[2].equals("interrupt")) {
            Future<?> task = busy.get(party);
            answer(order[0], "ok", String.valueOf(task != null && task.cancel(true)));
            return;
        }
        ExecutorService thread =
                parties.computeIfAbsent(party, name -> Executors.newSingleThreadExecutor());
        busy.put(party, thread.submit(() -> obey(order)));
    }

    private void obey(String[] order) {
        List<String> arguments = Arrays.asList(order).subList(3, order.length);
        try {
            List<String> results = locks.obey(order[2], arguments);
            answer(order[0], "ok", String.join("\t", results));
        } catch (Throwable error) {
            answer(order[0], "error",
                    error.getClass().getSimpleName() + "\t" + error.getMessage());
        }
    }

    private static void answer(String id, String status, String text) {
        String line = id + "\t" + status + "\t" + text.replace('\n', ' ');
        synchronized (OUT) {
            OUT.println(line);
        }
    }
}
