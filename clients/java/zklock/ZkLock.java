package zklock;

import java.sql.Connection;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.time.Duration;
import java.util.Set;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;
import org.postgresql.core.BaseConnection;
import org.postgresql.core.TransactionState;

/**
 * Cluster-wide locks of zklock for programs with JDBC. Copy this file into your program. It needs
 * Java 11 and PostgreSQL's JDBC driver.
 *
 * <pre>{@code
 * ZkLock locks = new ZkLock(() -> DriverManager.getConnection(URL));
 * locks.withLock("shop:invoices", Duration.ofSeconds(30), conn -> book(conn)); // one transaction
 * try (ZkLock.Held held = locks.hold("shop:nightly", null)) { ... }       // several transactions
 * ZkLock.Leader leader = locks.leader("shop:leader", Duration.ofSeconds(1), held -> step(held));
 * locks.runOnce("shop:report", "2030-01-01", conn -> report(conn));       // once for each tick
 * }</pre>
 *
 * <p>A transaction commits once or not at all: it is repeated only after an attempt that certainly
 * did not commit. If the connection breaks during COMMIT, the program cannot know whether the
 * server has committed: {@link CommitUnknown}. If you must go on then, give the work an ID and
 * pass it to {@link #runOnce} as the tick, again after CommitUnknown: the ID is committed together
 * with the work. Effects outside the database, such as a mail, can happen several times: the
 * manual has a recipe for a job that must not repeat them. Or pass the fencing token (zk_fence,
 * {@link Held#token}) with them.
 *
 * <p>Behind a pooler in transaction mode only withLock and runOnce work (prepareThreshold=0). hold,
 * leader and runAtMostOnce need a session of their own. autosave=always works only if the default
 * isolation level is READ COMMITTED.
 */
@SuppressWarnings("serial")
public final class ZkLock {
    /** Opens a connection, which is closed after use: a pool gets it back. */
    public interface Connector {
        Connection connect() throws SQLException;
    }

    /** Work in a transaction. It must not catch errors of statements, and must not commit. */
    public interface Work<T> {
        T run(Connection conn) throws SQLException;
    }

    /** Work with a lock that is held at session level. */
    public interface Step {
        void run(Held held) throws SQLException, InterruptedException;
    }

    /** Another session held the lock until the timeout. The work did not run. */
    public static final class LockTimeout extends SQLException {
        private LockTimeout(String name) {
            super("another session holds the lock \"" + name + "\"");
        }
    }

    /** The session no longer holds the lock, or its connection is broken. */
    public static final class LockLost extends SQLException {
        private LockLost(String name, Throwable cause) {
            super("the lock \"" + name + "\" was lost", cause);
        }
    }

    /** A check of the lock was cancelled, as by {@link Leader#stop}. */
    public static final class Stopped extends SQLException {
        private Stopped(String name, Throwable cause) {
            super("a check of the lock \"" + name + "\" was cancelled", cause);
        }
    }

    /** The work caught the error of a statement, or ended the transaction itself. */
    public static final class NotCommitted extends SQLException {
        private NotCommitted() {
            super("the work caught an error or ended the transaction");
        }
    }

    /** The connection broke during COMMIT: the transaction may have been committed. */
    public static final class CommitUnknown extends SQLException {
        private CommitUnknown(Throwable cause) {
            super("the connection broke during COMMIT", cause);
        }
    }

    private static final System.Logger LOG = System.getLogger("zklock");
    private static final int ATTEMPTS = 5;
    private static final String CANCELLED = "57014";

    // How long a check waits for the server: less than the server needs to notice that the
    // machine of the program is gone, so that the lock cannot go to another session before.
    private static final int CHECK_MS = 15_000;

    // SQLSTATEs after which a transaction is repeated, with the same session; and with another
    // one, also after 08xxx: the server stops, starts, is full, is a standby, or has ended a
    // session that was idle.
    private static final Set<String> AGAIN = Set.of("40001", "40P01");
    private static final Set<String> AGAIN_ELSEWHERE =
            Set.of("57P01", "57P02", "57P03", "57P05", "53300", "25006");

    // The server notices the death of the program within 2 s, and that of its machine within 25 s.
    private static final String WATCH_CLIENT =
            "SET %1$s client_connection_check_interval = '2s'; SET %1$s tcp_keepalives_idle = 10;"
                    + "SET %1$s tcp_keepalives_interval = 5; SET %1$s tcp_user_timeout = '25s';";

    // In REPEATABLE READ the data can be older than the lock.
    private static final String TRANSACTION = String.format(
            "SET TRANSACTION ISOLATION LEVEL READ COMMITTED;" + WATCH_CLIENT, "LOCAL");

    // No timeout ends a session that waits for a lock.
    private static final String LONG_SESSION = String.format(WATCH_CLIENT, "SESSION")
            + "SET statement_timeout = 0; SET lock_timeout = 0";

    private final Connector connector;

    /**
     * Set connectTimeout and tcpKeepAlive=true in the URL, and targetServerType=primary if it lists
     * several servers. If the network drops all packets, a check of a lock fails after 15 seconds,
     * but another statement only when the operating system gives the connection up.
     */
    public ZkLock(Connector connector) {
        this.connector = connector;
    }

    /**
     * Runs the work in a transaction that holds the lock, and commits.
     *
     * <p>Repeats the transaction, up to five times, if the lock was lost (40001), after a
     * serialization failure or a deadlock, and with a new connection if the connection or the
     * ensemble failed before COMMIT was sent. The pauses grow to 1.6 s at most, so the restart of a
     * server can outlast them. 57014 is thrown: it may be your cancel or statement_timeout; if it is
     * not, call withLock again. A call inside the work uses another session, which waits for its
     * caller if the name is the same.
     *
     * @param timeout of the wait for the lock, or null for no limit
     * @throws LockTimeout if another session held the lock until the timeout, or lock_timeout
     * @throws CommitUnknown if the connection broke during COMMIT
     */
    public <T> T withLock(String name, Duration timeout, Work<T> work)
            throws SQLException, InterruptedException {
        return repeat(() -> {
            Connection conn = connector.connect();
            try {
                return transaction(conn, c -> {
                    lockInTransaction(c, name, timeout);
                    return null;
                }, work);
            } finally {
                close(conn);
            }
        }, ZkLock::canReconnect);
    }

    private static void lockInTransaction(Connection conn, String name, Duration timeout)
            throws SQLException {
        query(conn, TRANSACTION);
        try {
            if (timeout == null) {
                query(conn, "SELECT zk_xact_lock(?)", name);
            } else if (!query(conn, "SELECT zk_try_xact_lock(?, ?::interval)", name,
                    timeout.toString()).equals(true)) {
                throw new LockTimeout(name);
            }
        } catch (SQLException error) {
            throw ofWait(name, error);
        }
    }

    private static SQLException ofWait(String name, SQLException error) {
        return "55P03".equals(error.getSQLState()) ? new LockTimeout(name) : error;
    }

    /**
     * Holds the lock at session level, with a connection of its own, until close(), which throws
     * LockLost if the lock was lost. The wait needs no snapshot and no transaction. In this session
     * statement_timeout and lock_timeout are off; idle_session_timeout counts also while the lock
     * is held.
     *
     * @param timeout of the wait for the lock, or null for no limit
     */
    public Held hold(String name, Duration timeout) throws SQLException, InterruptedException {
        return repeat(() -> acquire(connector.connect(), name, timeout), ZkLock::canReconnect);
    }

    private static Held acquire(Connection conn, String name, Duration timeout)
            throws SQLException {
        try {
            conn.setAutoCommit(true);
            query(conn, LONG_SESSION);
            query(conn, "CALL zk_lock_wait(?, ?::interval)", name,
                    timeout == null ? null : timeout.toString());
            return new Held(conn, name);
        } catch (SQLException error) {
            endSession(conn);
            throw ofWait(name, error);
        }
    }

    /**
     * Returns a candidate, which calls the step while it is the leader.
     *
     * @param every time between two steps, in which the lock is checked each second
     */
    public Leader leader(String name, Duration every, Step step) {
        return new Leader(name, every, step);
    }

    /**
     * Runs the work if it has not run for this tick; returns whether this call ran it.
     *
     * <p>All workers connect to one database, which has a table of the runs:
     *
     * <pre>
     * CREATE TABLE job_runs (job text, tick text, run_at timestamptz DEFAULT now(),
     *                        PRIMARY KEY (job, tick));
     * </pre>
     *
     * <p>Work and record are one transaction, as in {@link #withLock}. The other workers wait for
     * it; if the worker dies, the next one runs the work. Call it again after CommitUnknown: it
     * returns false if the first call has committed. A job of hours uses {@link #hold}, and records
     * its tick in its last transaction.
     */
    public boolean runOnce(String job, String tick, Work<?> work)
            throws SQLException, InterruptedException {
        return withLock(job, null, conn -> {
            if (query(conn, "INSERT INTO job_runs (job, tick) VALUES (?, ?) "
                    + "ON CONFLICT DO NOTHING", job, tick).equals(0)) {
                return false;
            }
            work.run(conn);
            return true;
        });
    }

    /**
     * Runs the work unless another worker holds the lock; returns whether it ran. For workers whose
     * databases have no table in common. If the worker dies, the work may remain undone.
     *
     * @param atLeast how long the lock is held at least: longer than the starts of one tick differ
     *     between the machines, and shorter than the time between two ticks
     */
    public boolean runAtMostOnce(String name, Duration atLeast, Step work)
            throws SQLException, InterruptedException {
        Held acquired;
        try {
            acquired = hold(name, Duration.ZERO);
        } catch (LockTimeout error) {
            return false;
        }
        try (Held held = acquired) {
            long end = System.nanoTime() + atLeast.toNanos();
            work.run(held);
            held.pause(Duration.ofNanos(end - System.nanoTime()), new CountDownLatch(1));
            return true;
        }
    }

    /**
     * A lock that a session holds; its connection, in autocommit mode; its fencing token. For one
     * thread at a time.
     */
    public static final class Held implements AutoCloseable {
        public final Connection conn;
        public final String name;
        public final long token;
        private boolean closed;

        private Held(Connection conn, String name) throws SQLException {
            this.conn = conn;
            this.name = name;
            this.token = (Long) query(conn, "SELECT zk_lock_token(?)", name);
        }

        /**
         * Runs the work in a transaction, and commits. The transaction is fenced: it cannot commit
         * after one of a later holder. It is repeated after 40001 and 40P01 while the lock is held.
         *
         * @throws LockLost if the lock was lost
         * @throws CommitUnknown if the connection broke during COMMIT
         */
        public <T> T transaction(Work<T> work) throws SQLException, InterruptedException {
            return repeat(() -> ZkLock.transaction(conn,
                    c -> query(c, "SELECT zk_fence(?)", name), work), this::canRepeat);
        }

        private boolean canRepeat(SQLException error) throws SQLException {
            if (error.getSQLState() == null) {      // one of the classes above
                return false;
            }
            try {
                check();
            } catch (SQLException lost) {
                lost.addSuppressed(error);
                throw lost;
            }
            return AGAIN.contains(error.getSQLState());
        }

        /**
         * Checks the lock. Costs one statement, and no request to the ensemble: the server itself
         * watches the lock.
         *
         * @throws LockLost if the lock was lost, or the server does not answer for 15 seconds
         */
        public void check() throws SQLException {
            require("SELECT zk_lock_token(?)", token);
        }

        /**
         * Returns whether another session has requested the release of the lock (zk_revoke). A
         * leader gives up the leadership between two steps then; a long step or a job of hold()
         * asks.
         */
        public boolean revoked() throws SQLException {
            return (Boolean) ask("SELECT zk_revoked(?)");
        }

        /**
         * Waits until the time has passed or the latch is open; checks the lock each second, and at
         * the end of the time.
         */
        public void pause(Duration time, CountDownLatch stop)
                throws SQLException, InterruptedException {
            pause(time, stop, false);
        }

        private void pause(Duration time, CountDownLatch stop, boolean endsWhenRevoked)
                throws SQLException, InterruptedException {
            long end = System.nanoTime() + time.toNanos();
            long left = time.toMillis();
            while (!stop.await(Math.min(left, 1000), TimeUnit.MILLISECONDS)) {
                check();
                left = TimeUnit.NANOSECONDS.toMillis(end - System.nanoTime());
                if (left <= 0 || endsWhenRevoked && revoked()) {
                    return;
                }
            }
        }

        /** Releases the lock, and ends the session. */
        @Override
        public void close() throws SQLException {
            if (closed) {
                return;
            }
            closed = true;
            try {
                require("SELECT zk_unlock(?)", true);
            } finally {
                endSession(conn);
            }
        }

        private void require(String sql, Object expected) throws SQLException {
            if (!expected.equals(ask(sql))) {
                throw new LockLost(name, null);
            }
        }

        private Object ask(String sql) throws SQLException {
            try {
                int before = conn.getNetworkTimeout();
                conn.setNetworkTimeout(Runnable::run, CHECK_MS);
                try {
                    return query(conn, sql, name);
                } finally {
                    if (!conn.isClosed()) {
                        conn.setNetworkTimeout(Runnable::run, before);
                    }
                }
            } catch (SQLException error) {
                if (CANCELLED.equals(error.getSQLState())) {
                    throw new Stopped(name, error);
                }
                throw canReconnect(error) || conn.isClosed() ? new LockLost(name, error) : error;
            }
        }
    }

    /**
     * A candidate, and sometimes the leader.
     *
     * <p>A step reads in the database what to do, because the step before may have been that of
     * another process, and writes in held.transaction(), which is safe from former leaders. If the
     * lock is lost, the server cancels the running statement of the step. A step that works
     * elsewhere for long calls held.check(). After a loss, a broken connection or CommitUnknown,
     * and when a release was requested (zk_revoke) and the step has ended, the process is a
     * candidate again, behind the others. Other errors of a step end run(). A server that cannot be
     * reached, or refuses the connection, is tried again for ever; each attempt is logged.
     *
     * <p>To stop at SIGTERM: {@code Runtime.getRuntime().addShutdownHook(new
     * Thread(leader::stop))}. A step must not call System.exit(), which waits for the step then.
     * The running statement of the step on held.conn is cancelled: a step that has changed
     * something elsewhere records it through a connection of its own.
     *
     * <p>A program that hangs stays the leader, or becomes it: let a watchdog kill it, such as
     * systemd's, or let the Connector set idle_session_timeout, to some seconds at least.
     */
    public final class Leader {
        private final String name;
        private final Duration every;
        private final Step step;
        private final CountDownLatch stop = new CountDownLatch(1);
        private volatile CountDownLatch ended;
        private volatile Thread runner;
        private volatile Connection conn;       // null while it is opened

        private Leader(String name, Duration every, Step step) {
            this.name = name;
            this.every = every;
            this.step = step;
        }

        /** Waits for the lock and leads, in one session after another, until stop(). */
        public void run() throws SQLException, InterruptedException {
            ended = new CountDownLatch(1);
            runner = Thread.currentThread();
            try {
                while (stop.getCount() > 0) {
                    try {
                        lead();
                    } catch (SQLException error) {
                        if (!stepsDown(error)) {
                            throw error;
                        }
                        if (stop.getCount() > 0 || error instanceof CommitUnknown) {
                            LOG.log(System.Logger.Level.WARNING,
                                    "not the leader of " + name + ": " + error.getMessage());
                        }
                    }
                    stop.await(ThreadLocalRandom.current().nextLong(2000), TimeUnit.MILLISECONDS);
                }
            } finally {
                ended.countDown();
            }
        }

        /**
         * Cancels the wait, or the running statement of the step; returns when run() has ended, in
         * the step itself at once.
         */
        public void stop() {
            stop.countDown();
            try {
                // A cancel between two statements has no effect; therefore it is repeated.
                while (runner != null && runner != Thread.currentThread()
                        && !ended.await(200, TimeUnit.MILLISECONDS)) {
                    cancel();
                }
            } catch (InterruptedException error) {
                Thread.currentThread().interrupt();
            }
        }

        private void lead() throws SQLException, InterruptedException {
            conn = null;
            conn = connector.connect();
            try (Held held = acquire(conn, name, null)) {
                while (stop.getCount() > 0 && !held.revoked()) {
                    step.run(held);
                    held.pause(every, stop, true);
                }
                if (stop.getCount() > 0) {
                    LOG.log(System.Logger.Level.WARNING,
                            "not the leader of " + name + ": a release was requested");
                }
            }
        }

        private boolean stepsDown(SQLException error) {
            boolean cancelled = stop.getCount() == 0 && CANCELLED.equals(error.getSQLState());
            return conn == null || error instanceof LockLost || error instanceof Stopped
                    || error instanceof CommitUnknown || cancelled
                    || canReconnect(error);
        }

        private void cancel() {
            try {
                if (conn != null) {
                    conn.unwrap(BaseConnection.class).cancelQuery();
                }
            } catch (SQLException error) {
                LOG.log(System.Logger.Level.DEBUG, "no cancel", error);
            }
        }
    }

    private interface Attempt<T> {
        T run() throws SQLException, InterruptedException;
    }

    private interface Decision {
        boolean canRepeat(SQLException error) throws SQLException;
    }

    private static <T> T repeat(Attempt<T> function, Decision decision)
            throws SQLException, InterruptedException {
        for (int attempt = 1;; attempt++) {
            try {
                return function.run();
            } catch (SQLException error) {
                if (!decision.canRepeat(error) || attempt == ATTEMPTS) {
                    throw error;
                }
                LOG.log(System.Logger.Level.INFO,
                        "attempt " + attempt + ": " + error.getSQLState() + ", trying again");
            }
            Thread.sleep(ThreadLocalRandom.current().nextLong(100L << attempt));
        }
    }

    private static boolean canReconnect(SQLException error) {
        String state = error.getSQLState();
        return state != null && (AGAIN.contains(state) || AGAIN_ELSEWHERE.contains(state)
                || state.startsWith("08"));
    }

    private static <T> T transaction(Connection conn, Work<?> lock, Work<T> work)
            throws SQLException {
        if (stateOf(conn) != TransactionState.IDLE) {
            throw new IllegalStateException("the connection is in a transaction already");
        }
        boolean autoCommit = conn.getAutoCommit();
        conn.setAutoCommit(false);
        try {
            lock.run(conn);
            T result = work.run(conn);
            if (stateOf(conn) != TransactionState.OPEN) {
                throw new NotCommitted();
            }
            commit(conn);
            return result;
        } finally {
            // An error here must not hide what has become of the transaction.
            try {
                conn.rollback();                // does nothing after the commit
                conn.setAutoCommit(autoCommit);
            } catch (SQLException error) {
                close(conn);
            }
        }
    }

    private static void commit(Connection conn) throws SQLException {
        try {
            conn.commit();
        } catch (SQLException error) {
            // If the connection is in order after an error of COMMIT, the server has rolled back.
            if (conn.isClosed() || stateOf(conn) != TransactionState.IDLE) {
                throw new CommitUnknown(error);
            }
            throw error;
        }
    }

    private static TransactionState stateOf(Connection conn) throws SQLException {
        return conn.unwrap(BaseConnection.class).getTransactionState();
    }

    /** Ends the session, which releases its locks, even if a pool keeps the connection. */
    private static void endSession(Connection conn) {
        try {
            conn.unwrap(BaseConnection.class).close();
        } catch (SQLException error) {
            LOG.log(System.Logger.Level.DEBUG, "cannot end the session", error);
        }
        close(conn);
    }

    private static void close(Connection conn) {
        try {
            conn.close();
        } catch (SQLException error) {
            LOG.log(System.Logger.Level.DEBUG, "cannot close the connection", error);
        }
    }

    /** Returns the first value of the first row, or the number of changed rows. */
    private static Object query(Connection conn, String sql, String... args) throws SQLException {
        try (PreparedStatement statement = conn.prepareStatement(sql)) {
            for (int i = 0; i < args.length; i++) {
                statement.setString(i + 1, args[i]);
            }
            if (!statement.execute()) {
                return statement.getUpdateCount();
            }
            try (ResultSet rows = statement.getResultSet()) {
                rows.next();
                return rows.getObject(1);
            }
        }
    }
}
