import java.util.ArrayDeque;
import java.util.Deque;
import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.recipes.locks.InterProcessLock;
import org.apache.curator.framework.recipes.locks.InterProcessSemaphoreV2;
import org.apache.curator.framework.recipes.locks.Lease;

/** A semaphore with the interface of a lock: acquire() adds a lease, release() returns the last. */
final class Leases implements InterProcessLock {
    final InterProcessSemaphoreV2 semaphore;
    private final Deque<Lease> leases = new ArrayDeque<>();

    Leases(InterProcessSemaphoreV2 semaphore) {
        this.semaphore = semaphore;
    }

    @Override
    public synchronized void acquire() throws Exception {
        leases.push(semaphore.acquire());
    }

    @Override
    public synchronized boolean acquire(long time, TimeUnit unit) throws Exception {
        Lease lease = semaphore.acquire(time, unit);
        if (lease != null) {
            leases.push(lease);
        }
        return lease != null;
    }

    @Override
    public synchronized void release() {
        semaphore.returnLease(leases.pop());
    }

    @Override
    public synchronized boolean isAcquiredInThisProcess() {
        return !leases.isEmpty();
    }
}
