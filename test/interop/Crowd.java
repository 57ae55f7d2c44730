import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.util.List;

/**
 * One member of a crowd that reports its holds to the referee (ZkLock::Referee).
 *
 * Arguments: the referee's port, the member's name, the resource, the mode; and three times in
 * milliseconds: duration of the run, of a hold, and of the pause after it. A member that has held
 * nothing at the end of the run continues, with fewer and fewer contenders, for at most a minute.
 */
final class Crowd implements AutoCloseable {
    private static final long GRACE_NS = 60_000_000_000L;

    private final Socket socket;
    private final BufferedReader in;
    private final OutputStream out;
    private final String claim;
    private final long end;
    private final long hold;
    private final long rest;
    private int turns;
    private int missed;

    Crowd(List<String> arguments) throws IOException {
        socket = new Socket("127.0.0.1", Integer.parseInt(arguments.get(0)));
        socket.setTcpNoDelay(true);
        in = new BufferedReader(
                new InputStreamReader(socket.getInputStream(), StandardCharsets.UTF_8));
        out = socket.getOutputStream();
        claim = String.join(" ", arguments.subList(1, 4));
        end = System.nanoTime() + Long.parseLong(arguments.get(4)) * 1_000_000;
        hold = Long.parseLong(arguments.get(5));
        rest = Long.parseLong(arguments.get(6));
    }

    boolean goesOn() {
        return System.nanoTime() - end < (turns == 0 ? GRACE_NS : 0);
    }

    void turn() throws Exception {
        tell("enter " + claim);
        Thread.sleep(hold);
        tell("leave " + claim);
        turns++;
    }

    void rest() throws InterruptedException {
        Thread.sleep(rest);
    }

    void missed() {
        missed++;
    }

    List<String> result() {
        return List.of(String.valueOf(turns), String.valueOf(missed));
    }

    private void tell(String line) throws IOException {
        out.write((line + "\n").getBytes(StandardCharsets.UTF_8));
        if (in.readLine() == null) {
            throw new IOException("the referee has left");
        }
    }

    @Override
    public void close() throws IOException {
        socket.close();
    }
}
