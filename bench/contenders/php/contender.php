<?php
/*
 * PHP's contender: the lock that many PHP services write for themselves, on
 * phpredis, doing the job that the only argument describes. docs/performance.md
 * says what is measured.
 *
 * SET NX PX, and while somebody else has the lock, sleep for 200 ms and ask
 * again; a script that deletes the key if it is still one's own. That is all of
 * it: no renewal, one node, and one task, because a PHP process does one thing
 * at a time. The usual loop gives up after 10 s; here it is asked again at once.
 */

declare(strict_types=1);

const RETRY_DELAY_US = 200_000;

const RELEASE = <<<'LUA'
if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end
LUA;

final class Lock
{
    private string $id = '';

    public function __construct(private Redis $redis, private int $ttlMs)
    {
    }

    /** True when it has the lock, false when $stop said so first. */
    public function acquire(string $name, ?callable $stop = null): bool
    {
        $this->id = uniqid('', true) . getmypid();
        while ($this->redis->set($name, $this->id, ['nx', 'px' => $this->ttlMs]) !== true) {
            usleep(RETRY_DELAY_US);
            if ($stop !== null && $stop()) {
                return false;
            }
        }
        return true;
    }

    /** Whether the lock was still there. */
    public function release(string $name): bool
    {
        return $this->redis->eval(RELEASE, [$name, $this->id], 1) === 1;
    }
}

function say(array $event): void
{
    fwrite(STDOUT, json_encode($event, JSON_THROW_ON_ERROR | JSON_UNESCAPED_SLASHES) . "\n");
    fflush(STDOUT);
}

/** A line of the input; its end is as good as `end`. */
function nextCommand(): string
{
    $line = fgets(STDIN);
    return $line === false ? 'end' : trim($line);
}

/** False when the job is over before it began. */
function ready(): bool
{
    say(['event' => 'ready']);
    return nextCommand() !== 'end';
}

function untilEnd(): void
{
    while (nextCommand() !== 'end') {
    }
}

/** Whether the end has been told, without waiting for it. */
function ended(): bool
{
    $read = [STDIN];
    $none = null;
    return stream_select($read, $none, $none, 0) > 0 && nextCommand() === 'end';
}

/*
 * A cycle counts when its lock was had before the time was up. A wait that
 * lasts longer is waited for and given back, but neither counted nor timed.
 */
function cycles(stdClass $job, Lock $lock): void
{
    $warm = "$job->name:warm:" . getmypid();
    for ($i = 0; $i < 200; $i++) {
        $lock->acquire($warm);
        $lock->release($warm);
    }
    if (!ready()) {
        return;
    }
    $cycles = $completed = $held = $gone = 0;
    $waits = $whole = [];
    $start = hrtime(true);
    $deadline = $start + (int) ($job->seconds * 1e9);
    $most = $job->cycles ?? PHP_INT_MAX;
    $end = isset($job->cycles) ? $start : $deadline;
    for ($i = 0; $i < $most && ($asked = hrtime(true)) < $deadline; $i++) {
        $name = $job->distinct > 0 ? "$job->name:0:" . $i % $job->distinct : $job->name;
        $lock->acquire($name);
        $had = hrtime(true);
        if ($job->hold_us > 0) {
            usleep($job->hold_us);
        }
        $releasing = hrtime(true);
        $wasThere = $lock->release($name);
        $released = hrtime(true);
        $completed++;
        $gone += $wasThere ? 0 : 1;
        if ($had < $deadline) {
            $cycles++;
            $held += $releasing - $had;
            $end = max($end, $released);
            if ($job->samples) {
                $waits[] = intdiv($had - $asked, 1000);
                $whole[] = intdiv($released - $asked, 1000);
            }
        }
        if ($job->pause_us > 0) {
            usleep($job->pause_us);
        }
    }
    $done = [
        'event' => 'done',
        'cycles' => $cycles,
        'completed' => $completed,
        'elapsed_us' => intdiv($end - $start, 1000),
        'held_us' => intdiv($held, 1000),
        'failed' => $gone,
        'tasks' => [$cycles],
    ];
    if ($job->samples) {
        $done['waits_us'] = $waits;
        if ($job->distinct > 0) {
            $done['cycles_us'] = $whole;
        }
    }
    say($done);
    untilEnd();
}

function hold(stdClass $job, Lock $lock): void
{
    if (ready()) {
        $lock->acquire($job->name);
        say(['event' => 'held']);
        untilEnd();
        $lock->release($job->name);
    }
}

function waitFor(stdClass $job, Lock $lock): void
{
    if (ready() && $lock->acquire($job->name, ended(...))) {
        say(['event' => 'got']);
        $lock->release($job->name);
        untilEnd();
    }
}

function run(array $arguments): void
{
    if (count($arguments) !== 1) {
        throw new InvalidArgumentException('expected one argument, the job in JSON');
    }
    $job = json_decode($arguments[0], flags: JSON_THROW_ON_ERROR);
    if ($job->lock !== 'php-loop') {
        throw new InvalidArgumentException("no such lock: $job->lock");
    }
    $mode = match ($job->mode) {
        'cycles' => cycles(...),
        'hold' => hold(...),
        'wait' => waitFor(...),
        'leases' => throw new InvalidArgumentException('php-loop does not renew by itself'),
        default => throw new InvalidArgumentException("no such mode: $job->mode"),
    };
    if (count($job->nodes) !== 1) {
        throw new InvalidArgumentException('one node only');
    }
    if ($job->tasks !== 1) {
        throw new InvalidArgumentException('one task a process only');
    }
    $node = parse_url($job->nodes[0]);
    $redis = new Redis();
    $redis->connect($node['host'], $node['port'] ?? 6379);
    $mode($job, new Lock($redis, $job->ttl_ms));
}

try {
    run(array_slice($argv, 1));
} catch (Throwable $error) {
    say(['event' => 'error', 'message' => $error->getMessage()]);
    exit(1);
}
