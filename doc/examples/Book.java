// Books the next invoice under the lock "invoices". withLock is the reusable part: it repeats the
// transaction after the errors of the retry rules (doc/cookbook.md).
//
//     java -cp postgresql.jar Book.java ADDRESS CUSTOMER
//
// ADDRESS is the address of the server, such as postgresql://127.0.0.1:5432/shop?user=app;
// the table is invoices (number int PRIMARY KEY, customer text).
import java.sql.*;
import java.util.Set;
import java.util.concurrent.ThreadLocalRandom;
import org.postgresql.core.BaseConnection;
import org.postgresql.core.TransactionState;
import org.postgresql.util.PSQLException;

public class Book {
    static final Set<String> RETRY = Set.of("40001", "40P01", "08006");

    interface Work<T> {
        T run(Connection conn) throws SQLException;
    }

    /** Runs the work, possibly several times, in a transaction that holds the lock. */
    static <T> T withLock(Connection conn, String lock, int attempts, Work<T> work)
            throws SQLException, InterruptedException {
        for (int attempt = 1;; attempt++) {
            try {
                return runOnce(conn, lock, work);
            } catch (SQLException error) {
                if (!canRetry(error) || conn.isClosed() || attempt == attempts) {
                    throw error;
                }
                System.out.println("attempt " + attempt + ": " + error.getSQLState()
                        + ", trying again");
                Thread.sleep(ThreadLocalRandom.current().nextLong(50L << attempt));
            }
        }
    }

    static <T> T runOnce(Connection conn, String lock, Work<T> work) throws SQLException {
        if (stateOf(conn) != TransactionState.IDLE) {
            throw new IllegalStateException("withLock begins the transaction itself");
        }
        boolean autoCommit = conn.getAutoCommit();
        conn.setAutoCommit(false);
        try {
            try (Statement s = conn.createStatement()) {
                s.execute("SET LOCAL lock_timeout = '30s'");
            }
            try (PreparedStatement s = conn.prepareStatement("SELECT zk_xact_lock(?)")) {
                s.setString(1, lock);
                s.execute();
            }
            T result = work.run(conn);
            if (stateOf(conn) == TransactionState.FAILED) {
                throw new SQLException("the work caught the error of a statement", "25P02");
            }
            conn.commit();
            return result;
        } finally {
            if (!conn.isClosed()) {
                conn.rollback();                // does nothing after the commit
                conn.setAutoCommit(autoCommit);
            }
        }
    }

    static TransactionState stateOf(Connection conn) throws SQLException {
        return conn.unwrap(BaseConnection.class).getTransactionState();
    }

    /** The driver uses 08006 also for a broken connection: that error has no server message. */
    static boolean canRetry(SQLException error) {
        return error instanceof PSQLException
                && ((PSQLException) error).getServerErrorMessage() != null
                && RETRY.contains(error.getSQLState());
    }

    static int book(Connection conn, String customer) throws SQLException {
        try (PreparedStatement s = conn.prepareStatement(
                "INSERT INTO invoices SELECT coalesce(max(number), 0) + 1, ? FROM invoices "
                        + "RETURNING number")) {
            s.setString(1, customer);
            try (ResultSet rows = s.executeQuery()) {
                rows.next();
                return rows.getInt(1);
            }
        }
    }

    public static void main(String[] args) throws Exception {
        try (Connection conn = DriverManager.getConnection("jdbc:" + args[0])) {
            int number = withLock(conn, "invoices", 5, c -> book(c, args[1]));
            System.out.println("booked invoice " + number);
        }
    }
}
