// Excludes SQL sessions with zklock.node_names = 'curator'. Tested with
// org.apache.curator:curator-recipes:5.4.0 and ZooKeeper's client 3.8.0.
//
//     java -cp ... Orders.java ENSEMBLE MILLISECONDS
import java.nio.charset.StandardCharsets;
import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.*;
import org.apache.curator.framework.recipes.locks.InterProcessReadWriteLock;
import org.apache.curator.retry.ExponentialBackoffRetry;

public class Orders {
    /** The path of the lock that SQL calls by this name. */
    static String pathOf(String name) {
        StringBuilder path = new StringBuilder("/zklock/locks/");
        for (byte b : name.getBytes(StandardCharsets.UTF_8)) {
            boolean plain = Character.isLetterOrDigit(b) || "_.:@~+=-".indexOf(b) >= 0;
            path.append(plain ? String.valueOf((char) b) : String.format("%%%02X", b));
        }
        return path.toString();
    }

    public static void main(String[] args) throws Exception {
        try (CuratorFramework zk = CuratorFrameworkFactory.newClient(args[0],
                10_000,                         // as zklock.session_timeout
                5_000, new ExponentialBackoffRetry(100, 3))) {
            zk.getConnectionStateListenable().addListener((client, state) -> {
                if (!state.isConnected()) {     // the lock may be lost
                    System.out.println("stopped: " + state);
                    Runtime.getRuntime().halt(1);
                }
            });
            zk.start();
            InterProcessReadWriteLock lock =
                    new InterProcessReadWriteLock(zk, pathOf("orders/north"));
            if (!lock.writeLock().acquire(60, TimeUnit.SECONDS)) {
                throw new IllegalStateException("another holder has the lock");
            }
            try {
                System.out.println("alone in the cluster");
                Thread.sleep(Long.parseLong(args[1]));      // the work
            } finally {
                lock.writeLock().release();
            }
        }
    }
}
