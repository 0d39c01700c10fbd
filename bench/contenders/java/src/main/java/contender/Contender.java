package contender;

import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Phaser;
import java.util.stream.IntStream;

import org.redisson.api.RLock;

/**
 * Java's contenders: Redisson's RLock and FairLock, each doing the job that the only argument describes.
 * docs/performance.md says what is measured; {@link Locks} has the settings, and why those.
 */
final class Contender {
    /** Few connections serve many threads, and few threads acquire many leases. */
    private static final int LEASE_THREADS = 32;

    /** A JVM that has just started may take longer to renew than a lease lives. */
    private static final int WARM_UP_CYCLES = 200;

    private Contender() {}

    public static void main(String[] arguments) {
        try {
            if (arguments.length != 1) {
                throw new IllegalArgumentException("expected one argument, the job in JSON");
            }
            run(Job.parse(arguments[0]));
        } catch (Exception error) {
            fail(error);
        }
        // At once: threads may wait for a lock that they will never get.
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }

    private static void run(Job job) throws InterruptedException {
        Locks locks = new Locks(job);
        Commands commands = new Commands();
        switch (job.mode()) {
            case "cycles" -> new Cycles(job, locks).run(commands);
            case "hold" -> keep(locks, List.of(job.name()), commands);
            case "wait" -> waitFor(job, locks, commands);
            case "leases" -> keep(
                    locks, IntStream.range(0, job.tasks()).mapToObj(i -> job.name() + ":" + i).toList(), commands);
            default -> throw new IllegalArgumentException("no such mode: " + job.mode());
        }
        locks.close();
    }

    /** Acquires all names, and keeps them until told to end. */
    private static void keep(Locks locks, List<String> names, Commands commands) throws InterruptedException {
        for (int i = 0; i < WARM_UP_CYCLES; i++) {
            locks.release(locks.acquire(names.get(0) + ":warm:" + ProcessHandle.current().pid()));
        }
        if (!commands.ready()) {
            return;
        }
        int count = Math.min(LEASE_THREADS, names.size());
        CountDownLatch held = new CountDownLatch(count);
        CountDownLatch end = new CountDownLatch(1);
        List<Thread> threads = new ArrayList<>();
        for (int number = 0; number < count; number++) {
            int first = number;
            threads.add(start("keeper-" + number, () -> {
                List<RLock> mine = new ArrayList<>();
                for (int i = first; i < names.size(); i += count) {
                    mine.add(locks.acquire(names.get(i)));
                }
                held.countDown();
                end.await();
                mine.forEach(locks::release);
            }));
        }
        held.await();
        say("{\"event\":\"held\"}");
        commands.untilEnd();
        end.countDown();
        for (Thread thread : threads) {
            thread.join();
        }
    }

    /** All tasks ask for one name that somebody else holds. */
    private static void waitFor(Job job, Locks locks, Commands commands) {
        if (!commands.ready()) {
            return;
        }
        Phaser releasing = new Phaser(1);
        for (int task = 0; task < job.tasks(); task++) {
            start("task-" + task, () -> {
                RLock lock = locks.acquire(job.name());
                releasing.register();
                say("{\"event\":\"got\"}");
                locks.release(lock);
                releasing.arriveAndDeregister();
            });
        }
        commands.untilEnd();
        releasing.arriveAndAwaitAdvance();
    }

    interface Work {
        void run() throws InterruptedException;
    }

    static Thread start(String name, Work work) {
        Thread thread = new Thread(
                () -> {
                    try {
                        work.run();
                    } catch (Exception error) {
                        fail(error);
                    }
                },
                name);
        thread.setDaemon(true);
        thread.start();
        return thread;
    }

    /** One line on standard output; println of a whole line is one step. */
    static void say(String line) {
        System.out.println(line);
        System.out.flush();
    }

    private static void fail(Exception error) {
        String message = error instanceof IllegalArgumentException ? error.getMessage() : error.toString();
        StringBuilder quoted = new StringBuilder();
        message.chars().forEach(c -> {
            if (c == '"' || c == '\\') {
                quoted.append('\\');
            }
            quoted.append(c < ' ' ? ' ' : (char) c);
        });
        say("{\"event\":\"error\",\"message\":\"" + quoted + "\"}");
        Runtime.getRuntime().halt(1);
    }
}
