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
 * tabs. A party is a thread, which executes its commands one after another. The answer to a
 * command is a line "id, ok, results..." or "id, error, class, message". The verb "interrupt" does
 * not run in the party's thread: it interrupts the party's current command. {@link CuratorLocks}
 * has the verbs. ZkLock::Opponent is the only caller.
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
            driver.command(line.split("\t", -1));
        }
        Runtime.getRuntime().halt(0);
    }

    private void command(String[] command) {
        String party = command[1];
        if (command[2].equals("interrupt")) {
            Future<?> task = busy.get(party);
            answer(command[0], "ok", String.valueOf(task != null && task.cancel(true)));
            return;
        }
        ExecutorService thread =
                parties.computeIfAbsent(party, name -> Executors.newSingleThreadExecutor());
        busy.put(party, thread.submit(() -> execute(command)));
    }

    private void execute(String[] command) {
        List<String> arguments = Arrays.asList(command).subList(3, command.length);
        try {
            List<String> results = locks.execute(command[2], arguments);
            answer(command[0], "ok", String.join("\t", results));
        } catch (Throwable error) {
            answer(command[0], "error",
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
