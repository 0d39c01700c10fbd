package contender;

import java.util.concurrent.TimeUnit;

import org.redisson.Redisson;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;

/**
 * Redisson's RLock and its FairLock, on one server.
 *
 * <p>Threads and connections are Redisson's documented defaults (32 netty threads, 64 connections): its documentation
 * recommends no others. In {@code hold} and {@code leases}, where a lock is kept, the watchdog renews it, with the ttl
 * as its timeout. Where locks come and go they have a lease time instead, as its documentation shows, which spares the
 * watchdog's work.
 *
 * <p>Several servers: RedLock is deprecated, and its documentation says to use RLock instead.
 */
final class Locks implements AutoCloseable {
    private final RedissonClient client;
    private final boolean fair;
    private final long leaseMillis;

    Locks(Job job) {
        fair = switch (job.lock()) {
            case "redisson-lock" -> false;
            case "redisson-fair" -> true;
            default -> throw new IllegalArgumentException("no such lock: " + job.lock());
        };
        if (job.nodes().size() != 1) {
            throw new IllegalArgumentException("one node only");
        }
        boolean kept = job.mode().equals("hold") || job.mode().equals("leases");
        leaseMillis = kept ? -1 : job.ttlMillis();
        Config config = new Config();
        config.setLockWatchdogTimeout(job.ttlMillis());
        config.useSingleServer().setAddress(job.nodes().get(0));
        client = Redisson.create(config);
    }

    /** Waits until it has the lock. Whoever calls this must be the one to release, too: a lock belongs to its thread. */
    RLock acquire(String name) {
        RLock lock = fair ? client.getFairLock(name) : client.getLock(name);
        if (leaseMillis < 0) {
            lock.lock();
        } else {
            lock.lock(leaseMillis, TimeUnit.MILLISECONDS);
        }
        return lock;
    }

    /** Whether the lock was still there. */
    boolean release(RLock lock) {
        try {
            lock.unlock();
            return true;
        } catch (IllegalMonitorStateException gone) {
            return false;
        }
    }

    @Override
    public void close() {
        client.shutdown();
    }
}
