import java.io.IOException;
import java.io.UncheckedIOException;
import java.lang.reflect.Proxy;
import java.nio.file.Files;
import java.nio.file.Path;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.SQLException;
import java.time.Duration;
import zklock.ZkLock;

/**
 * Programs that use clients/java/zklock/ZkLock.java, for test/t/programs/clients.pl: the arguments are
 * the address of the server, a command and its arguments. program.py has the same commands.
 */
public final class Program {
    private static String url;
    private static ZkLock locks;

    public static void main(String[] args) throws InterruptedException {
        url = "jdbc:" + args[0];
        locks = new ZkLock(() -> DriverManager.getConnection(url));
        try {
            run(args);
        } catch (SQLException error) {
            String state = error.getSQLState();
            say("failed: " + (state != null ? state : error.getClass().getSimpleName()));
            System.exit(1);
        } catch (IllegalStateException error) {
            say("failed: " + error.getClass().getSimpleName());
            System.exit(1);
        }
    }

    private static void run(String[] args) throws SQLException, InterruptedException {
        String name = args[2];
        switch (args[1]) {
            case "count":
                count(name, Path.of(args[3]), Integer.parseInt(args[4]));
                break;
            case "work":
                locks.withLock(name, seconds(args.length > 4 ? args[4] : "30"),
                        conn -> insert(conn, args[3]));
                say("done");
                break;
            case "stumble":
                locks.withLock(name, seconds("30"),
                        conn -> execute(conn, "SELECT stumble(?)", args[3]));
                say("done");
                break;
            case "held_stumble":
                try (ZkLock.Held held = locks.hold(name, null)) {
                    held.transaction(conn -> execute(conn, "SELECT stumble(?)", args[3]));
                }
                say("done");
                break;
            case "swallow":
                locks.withLock(name, seconds("30"), Program::swallow);
                break;
            case "in_transaction":
                inTransaction(name);
                break;
            case "hold":
                hold(name, args[3], args.length > 4 ? seconds(args[4]) : null);
                break;
            case "lose":
                lose(name, Path.of(args[3]));
                break;
            case "watch":
                watch(name);
                break;
            case "failing_release":
                new ZkLock(() -> failAtClose(DriverManager.getConnection(url)))
                        .withLock(name, seconds("30"), conn -> insert(conn, args[3]));
                say("done");
                break;
            case "nested":
                nested(name, args[3]);
                break;
            case "aborted":
                aborted(name);
                break;
            case "lead_elsewhere":
                locks.leader(name, seconds(args[3]), held -> say("step")).run();
                break;
            case "lead_one_step":
                leadOneStep(name);
                break;
            case "lead_again":
                leadAgain(name);
                break;
            case "most_busy":
                locks.runAtMostOnce(name, Duration.ZERO,
                        held -> locks.withLock(args[3], Duration.ZERO, conn -> true));
                break;
            case "lead":
                lead(name, args[3], seconds(args[4]));
                break;
            case "once":
                say(locks.runOnce(name, args[3], conn -> insert(conn, args[4])) ? "ran" : "has run");
                break;
            case "most":
                say(locks.runAtMostOnce(name, seconds(args[3]), held -> say("works"))
                        ? "ran" : "another");
                break;
            default:
                throw new IllegalArgumentException(args[1]);
        }
    }

    /** Adds 1 to the number in a file, which a second writer at the same time would spoil. */
    private static void count(String name, Path path, int times)
            throws SQLException, InterruptedException {
        for (int i = 0; i < times; i++) {
            locks.withLock(name, seconds("30"), conn -> {
                try {
                    int number = Integer.parseInt(Files.readString(path));
                    execute(conn, "SELECT 1");
                    return Files.writeString(path, Integer.toString(number + 1));
                } catch (IOException error) {
                    throw new UncheckedIOException(error);
                }
            });
        }
        say("done");
    }

    private static boolean swallow(Connection conn) {
        try {
            return execute(conn, "SELECT 1 / 0");
        } catch (SQLException error) {
            return false;
        }
    }

    private static void inTransaction(String name) throws SQLException, InterruptedException {
        Connection conn = DriverManager.getConnection(url);
        conn.setAutoCommit(false);
        execute(conn, "SELECT 1");
        new ZkLock(() -> conn).withLock(name, seconds("30"), c -> insert(c, "inside"));
    }

    private static void hold(String name, String by, Duration timeout)
            throws SQLException, InterruptedException {
        ZkLock.Held held = locks.hold(name, timeout);
        try {
            for (int i = 0; i < 2; i++) {
                held.transaction(conn -> insert(conn, by));
            }
            say("token " + held.token);
        } finally {
            held.close();
            held.close();                       // does nothing
        }
        say("done");
    }

    /** Holds the lock, in an idle session, until somebody writes to the fifo. */
    private static void lose(String name, Path fifo) throws SQLException, InterruptedException {
        try (ZkLock.Held held = locks.hold(name, null)) {
            say("holds " + held.name);
            Files.readString(fifo);
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
        say("done");
    }

    private static void watch(String name) throws SQLException, InterruptedException {
        try (ZkLock.Held held = locks.hold(name, null)) {
            say("holds " + held.name);
            while (true) {
                held.check();
                Thread.sleep(100);
            }
        }
    }

    /** Returns a connection that breaks after the commit. */
    private static Connection failAtClose(Connection conn) {
        return (Connection) Proxy.newProxyInstance(Program.class.getClassLoader(),
                new Class<?>[] {Connection.class}, (proxy, method, args) -> {
                    Object result = method.invoke(conn, args);
                    if (method.getName().equals("close")) {
                        throw new SQLException("the connection broke", "08006");
                    }
                    return result;
                });
    }

    private static void nested(String name, String by) throws SQLException, InterruptedException {
        try (ZkLock.Held held = locks.hold(name, null)) {
            held.transaction(conn -> {
                insert(conn, by);
                try {
                    return held.transaction(c -> insert(c, by));
                } catch (InterruptedException error) {
                    throw new SQLException(error);
                }
            });
        }
    }

    /** Checks the lock in a transaction that has failed. */
    private static void aborted(String name) throws SQLException, InterruptedException {
        try (ZkLock.Held held = locks.hold(name, null)) {
            held.conn.setAutoCommit(false);
            swallow(held.conn);
            held.check();
        }
    }

    /** The step stops the leader. */
    private static void leadOneStep(String name) throws SQLException, InterruptedException {
        ZkLock.Leader[] leader = new ZkLock.Leader[1];
        leader[0] = locks.leader(name, seconds("0"), held -> {
            say("step");
            leader[0].stop();
        });
        leader[0].run();
        say("stopped");
    }

    /** A step fails, and the leader runs again, until SIGTERM; then another session has the lock. */
    private static void leadAgain(String name) throws SQLException, InterruptedException {
        ZkLock.Leader leader = locks.leader(name, Duration.ZERO, held -> {
            throw new SQLException("step", "23505");
        });
        try {
            leader.run();
        } catch (SQLException error) {
            say(error.getSQLState());
        }
        Thread runner = Thread.currentThread();
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            leader.stop();
            try {
                runner.join();
                say("stopped");
            } catch (InterruptedException error) {
                say("interrupted");
            }
        }));
        try (ZkLock.Held held = locks.hold(name, null)) {
            say("holds " + held.name);
            leader.run();
        }
    }

    private static void lead(String name, String by, Duration every)
            throws SQLException, InterruptedException {
        ZkLock.Leader leader = locks.leader(name, every,
                held -> held.transaction(conn -> insert(conn, by)));
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            leader.stop();
            say("stopped");
        }));
        leader.run();
    }

    private static boolean insert(Connection conn, String by) throws SQLException {
        return execute(conn, "INSERT INTO work (by) VALUES (?)", by);
    }

    private static boolean execute(Connection conn, String sql, String... args)
            throws SQLException {
        try (PreparedStatement statement = conn.prepareStatement(sql)) {
            for (int i = 0; i < args.length; i++) {
                statement.setString(i + 1, args[i]);
            }
            return statement.execute();
        }
    }

    private static Duration seconds(String text) {
        return Duration.ofMillis((long) (1000 * Double.parseDouble(text)));
    }

    private static void say(String text) {
        System.out.println(text);
    }
}
