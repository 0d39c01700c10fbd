package contender;

import java.util.Arrays;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.locks.LockSupport;
import java.util.stream.IntStream;
import java.util.stream.LongStream;

import org.redisson.api.RLock;

/**
 * All tasks acquire and release until the time is up.
 *
 * <p>A cycle counts when its lock was had before the time was up. A wait that lasts longer is waited for and given
 * back, but neither counted nor timed: else the end of each run would be a race of ever fewer tasks.
 */
final class Cycles {
    /** The JVM compiles what has been run often: so much is run before anything is measured. */
    private static final int WARM_UP_CYCLES = 4_000;

    private static final int WARM_UP_CYCLES_ON_ONE_NAME = 1_000;
    private static final long WARM_UP_LIMIT_NANOS = 5_000_000_000L;

    private final Job job;
    private final Locks locks;
    private final Task[] tasks;

    Cycles(Job job, Locks locks) {
        this.job = job;
        this.locks = locks;
        tasks = IntStream.range(0, job.tasks()).mapToObj(Task::new).toArray(Task[]::new);
    }

    void run(Commands commands) throws InterruptedException {
        CountDownLatch warm = new CountDownLatch(job.tasks());
        CountDownLatch go = new CountDownLatch(1);
        long[] times = new long[2];
        Thread[] threads = Arrays.stream(tasks)
                .map(task -> Contender.start("task-" + task.number, () -> {
                    task.warmUp();
                    warm.countDown();
                    go.await();
                    task.run(times[0], times[1]);
                }))
                .toArray(Thread[]::new);
        warm.await();
        if (!commands.ready()) {
            return;
        }
        times[0] = System.nanoTime();
        times[1] = times[0] + job.nanos();
        go.countDown();
        for (Thread thread : threads) {
            thread.join();
        }
        sayDone(times[0]);
        commands.untilEnd();
    }

    private void sayDone(long start) {
        long elapsed = Arrays.stream(tasks).mapToLong(task -> task.end - start).max().orElseThrow();
        StringBuilder done = new StringBuilder("{\"event\":\"done\"");
        done.append(",\"cycles\":").append(Arrays.stream(tasks).mapToLong(task -> task.cycles).sum());
        done.append(",\"completed\":").append(Arrays.stream(tasks).mapToLong(task -> task.completed).sum());
        done.append(",\"elapsed_us\":").append(elapsed / 1000);
        done.append(",\"held_us\":").append(Arrays.stream(tasks).mapToLong(task -> task.held).sum() / 1000);
        done.append(",\"failed\":").append(Arrays.stream(tasks).mapToLong(task -> task.gone).sum());
        append(done, "tasks", Arrays.stream(tasks).mapToLong(task -> task.cycles));
        if (job.samples()) {
            append(done, "waits_us", Arrays.stream(tasks).flatMapToLong(task -> task.waits.micros()));
            if (job.distinct() > 0) {
                append(done, "cycles_us", Arrays.stream(tasks).flatMapToLong(task -> task.whole.micros()));
            }
        }
        Contender.say(done.append('}').toString());
    }

    private static void append(StringBuilder json, String name, LongStream numbers) {
        json.append(",\"").append(name).append("\":[");
        int begin = json.length();
        numbers.forEach(number -> json.append(json.length() == begin ? "" : ",").append(number));
        json.append(']');
    }

    private final class Task {
        final int number;
        final Samples waits = new Samples();
        final Samples whole = new Samples();
        long cycles;
        long completed; // those that came too late to count, too
        long held;
        long gone;
        long end;

        Task(int number) {
            this.number = number;
        }

        void warmUp() throws InterruptedException {
            String own = job.name() + ":warm:" + ProcessHandle.current().pid();
            long limit = System.nanoTime() + WARM_UP_LIMIT_NANOS;
            warmUp(own + ":" + number, WARM_UP_CYCLES, limit);
            if (job.distinct() > 0) {
                return;
            }
            // It takes two to wait.
            Thread other = job.tasks() > 1
                    ? null
                    : Contender.start("warm-up", () -> warmUp(own, WARM_UP_CYCLES_ON_ONE_NAME, limit));
            warmUp(own, WARM_UP_CYCLES_ON_ONE_NAME, limit);
            if (other != null) {
                other.join();
            }
        }

        private void warmUp(String name, int cycles, long limit) {
            int each = Math.max(2, cycles / job.tasks());
            for (int i = 0; i < each && System.nanoTime() < limit; i++) {
                locks.release(locks.acquire(name));
            }
        }

        void run(long start, long deadline) {
            end = job.cycles() > 0 ? start : deadline;
            int most = job.cycles() > 0 ? (job.cycles() + job.tasks() - 1) / job.tasks() : Integer.MAX_VALUE;
            for (int i = 0; i < most; i++) {
                long asked = System.nanoTime();
                if (asked - deadline >= 0) {
                    return;
                }
                RLock lock = locks.acquire(job.nameOf(number, i));
                long had = System.nanoTime();
                sleep(job.holdNanos());
                long releasing = System.nanoTime();
                boolean wasThere = locks.release(lock);
                long released = System.nanoTime();
                completed++;
                gone += wasThere ? 0 : 1;
                if (had - deadline < 0) {
                    cycles++;
                    held += releasing - had;
                    if (released - end > 0) {
                        end = released;
                    }
                    if (job.samples()) {
                        waits.add(had - asked);
                        whole.add(released - asked);
                    }
                }
                sleep(job.pauseNanos());
            }
        }
    }

    /** More exact than Thread.sleep, which rounds up to milliseconds. */
    private static void sleep(long nanos) {
        if (nanos <= 0) {
            return;
        }
        long until = System.nanoTime() + nanos;
        for (long left = nanos; left > 0; left = until - System.nanoTime()) {
            LockSupport.parkNanos(left);
        }
    }

    /** Times without an object for each. */
    private static final class Samples {
        private long[] nanos = new long[1024];
        private int count;

        void add(long sample) {
            if (count == nanos.length) {
                nanos = Arrays.copyOf(nanos, 2 * count);
            }
            nanos[count++] = sample;
        }

        LongStream micros() {
            return Arrays.stream(nanos, 0, count).map(sample -> sample / 1000);
        }
    }
}
