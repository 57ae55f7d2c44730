import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.nio.charset.StandardCharsets;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessLock;
import org.apache.curator.framework.recipes.locks.InterProcessMultiLock;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.locks.InterProcessReadWriteLock;
import org.apache.curator.framework.recipes.locks.InterProcessSemaphoreMutex;
import org.apache.curator.framework.recipes.locks.InterProcessSemaphoreV2;
import org.apache.curator.framework.recipes.locks.Revoker;
import org.apache.curator.retry.RetryNTimes;
import org.apache.zookeeper.Watcher;
import org.apache.zookeeper.ZooKeeper;

/**
 * Sessions and locks by name, and the operations on them.
 *
 * Owns: the driver's verbs. The driver uses Curator as a Java program would.
 */
final class CuratorLocks {
    private final String connectString;
    private final Map<String, CuratorFramework> sessions = new ConcurrentHashMap<>();
    private final Map<String, InterProcessLock> locks = new ConcurrentHashMap<>();
    private final Map<String, InterProcessReadWriteLock> pairs = new ConcurrentHashMap<>();
    private final Map<String, CountDownLatch> asked = new ConcurrentHashMap<>();

    CuratorLocks(String connectString) {
        this.connectString = connectString;
    }

    List<String> execute(String verb, List<String> arguments) throws Exception {
        String first = arguments.get(0);
        switch (verb) {
            case "open":
                open(first, Integer.parseInt(arguments.get(1)));
                return List.of();
            case "close":
                sessions.remove(first).close();
                return List.of();
            case "expire":
                expire(sessions.get(first));
                return List.of();
            case "data":
                return List.of(new String(
                        sessions.get(first).getData().forPath(arguments.get(1)),
                        StandardCharsets.UTF_8));
            case "revoke":
                Revoker.attemptRevoke(sessions.get(first), arguments.get(1));
                return List.of();
            case "lock":
                locks.put(first, lock(arguments));
                return List.of();
            default:
                return execute(verb, first, locks.get(first), arguments);
        }
    }

    private List<String> execute(
            String verb, String name, InterProcessLock lock, List<String> arguments)
            throws Exception {
        switch (verb) {
            case "acquire":
                return answer(acquire(lock, Long.parseLong(arguments.get(1))));
            case "release":
                lock.release();
                return List.of();
            case "participants":
                return names(participants(lock));
            case "revocable":
                asked.put(name, new CountDownLatch(1));
                ((InterProcessMutex) lock).makeRevocable(l -> asked.get(name).countDown());
                return List.of();
            case "asked":
                return answer(asked.get(name).await(
                        Long.parseLong(arguments.get(1)), TimeUnit.MILLISECONDS));
            case "crowd":
                return crowd(lock, arguments);
            default:
                throw new IllegalArgumentException("no verb " + verb);
        }
    }

    private static List<String> answer(boolean value) {
        return List.of(value ? "1" : "0");
    }

    private void open(String name, int timeout) throws Exception {
        CuratorFramework session = CuratorFrameworkFactory.builder()
                .connectString(connectString)
                .sessionTimeoutMs(timeout)
                .connectionTimeoutMs(30000)
                // Curator's default is the host's address, which requires a resolvable host name.
                .defaultData("127.0.0.1".getBytes(StandardCharsets.UTF_8))
                .retryPolicy(new RetryNTimes(300, 100))
                .build();
        session.start();
        session.blockUntilConnected();
        sessions.put(name, session);
    }

    /** A client that knows a session's password may move the session to another connection, and close it there. */
    private void expire(CuratorFramework session) throws Exception {
        ZooKeeper victim = session.getZookeeperClient().getZooKeeper();
        CountDownLatch connected = new CountDownLatch(1);
        ZooKeeper thief = new ZooKeeper(connectString, victim.getSessionTimeout(),
                event -> {
                    if (event.getState() == Watcher.Event.KeeperState.SyncConnected) {
                        connected.countDown();
                    }
                },
                victim.getSessionId(), victim.getSessionPasswd());
        connected.await();
        thief.close();
    }

    /** Arguments: name, kind, session, path or the paths of a multi lock, number of leases. */
    private InterProcessLock lock(List<String> arguments) {
        CuratorFramework session = sessions.get(arguments.get(2));
        String path = arguments.get(3);
        switch (arguments.get(1)) {
            case "mutex":
                return new InterProcessMutex(session, path);
            case "read":
                return pair(arguments).readLock();
            case "write":
                return pair(arguments).writeLock();
            case "semaphore_mutex":
                return new InterProcessSemaphoreMutex(session, path);
            case "semaphore":
                return new Leases(new InterProcessSemaphoreV2(
                        session, path, Integer.parseInt(arguments.get(4))));
            case "multi":
                return new InterProcessMultiLock(session, Arrays.asList(path.split(" ")));
            default:
                throw new IllegalArgumentException("no kind " + arguments.get(1));
        }
    }

    /** The read and the write lock of one session below one path are related. */
    private InterProcessReadWriteLock pair(List<String> arguments) {
        String session = arguments.get(2);
        String path = arguments.get(3);
        return pairs.computeIfAbsent(session + path, key -> new InterProcessReadWriteLock(
                sessions.get(session), path, session.getBytes(StandardCharsets.UTF_8)));
    }

    private static boolean acquire(InterProcessLock lock, long timeout) throws Exception {
        if (timeout >= 0) {
            return lock.acquire(timeout, TimeUnit.MILLISECONDS);
        }
        lock.acquire();
        return true;
    }

    private static Collection<String> participants(InterProcessLock lock) throws Exception {
        return lock instanceof Leases
                ? ((Leases) lock).semaphore.getParticipantNodes()
                : ((InterProcessMutex) lock).getParticipantNodes();
    }

    private static List<String> names(Collection<String> paths) {
        List<String> names = new ArrayList<>();
        for (String path : paths) {
            names.add(path.substring(path.lastIndexOf('/') + 1));
        }
        return names;
    }

    /** Arguments: lock, timeout (ms), and the arguments of {@link Crowd}. */
    private static List<String> crowd(InterProcessLock lock, List<String> arguments)
            throws Exception {
        long timeout = Long.parseLong(arguments.get(1));
        try (Crowd crowd = new Crowd(arguments.subList(2, arguments.size()))) {
            while (crowd.goesOn()) {
                if (acquire(lock, timeout)) {
                    crowd.turn();
                    lock.release();
                    crowd.rest();
                } else {
                    crowd.missed();
                }
            }
            return crowd.result();
        }
    }
}
