"""Python's contenders: redis-py's Lock and python-redis-lock, each doing the job
that the only argument describes. docs/performance.md says what is measured, and
locks.py which settings the libraries have, and why.

Tasks are threads. redis-py has asyncio too, and its documentation favours neither:
tried both ways, up to 64 tasks it made little difference, and with 1,024 coroutines
did two to three times as much as threads, in even shares. So many tasks are
coroutines.
"""

import asyncio
import itertools
import json
import math
import os
import sys
import threading
import time

from locks import AsyncRedisPy, PythonRedisLock, RedisPy

LOCKS = {"redis-py": RedisPy, "python-redis-lock": PythonRedisLock}

# More tasks of redis-py than this are coroutines.
MOST_THREADS = 16


class Job:
    def __init__(self, text):
        self.cycles = None
        self.__dict__.update(json.loads(text))

    def numbers(self):
        """Of a task's cycles: without end, unless the job says how many."""
        return range(math.ceil(self.cycles / self.tasks)) if self.cycles else itertools.count()

    def name_of(self, task, cycle):
        return f"{self.name}:{task}:{cycle % self.distinct}" if self.distinct else self.name

    def warm_up_names(self, task):
        """Some dozens of cycles in all, and at least two for each task."""
        return [f"{self.name}:warm:{os.getpid()}:{task}"] * max(2, 200 // self.tasks)


def say(event, **more):
    # One write for a line: threads say things at the same time.
    sys.stdout.write(json.dumps({"event": event} | more) + "\n")
    sys.stdout.flush()


def fail(message):
    say("error", message=message)
    os._exit(1)  # other threads may wait for ever


def next_command():
    """A line of the input; its end is as good as `end`."""
    return sys.stdin.readline().strip() or "end"


def ready():
    """False when the job is over before it began."""
    say("ready")
    return next_command() != "end"


def until_end():
    while next_command() != "end":
        pass


class Record:
    """What one task did.

    A cycle counts when its lock was had before the time was up. A wait that
    lasts longer is waited for and given back, but neither counted nor timed.
    """

    def __init__(self, job):
        self.samples = job.samples
        self.cycles, self.completed, self.held, self.gone, self.end = 0, 0, 0, 0, 0
        self.waits, self.whole = [], []

    def add(self, asked, had, releasing, released, was_there, in_time):
        self.completed += 1
        self.gone += not was_there
        if not in_time:
            return
        self.cycles += 1
        self.held += releasing - had
        self.end = released
        if self.samples:
            self.waits.append((had - asked) // 1000)
            self.whole.append((released - asked) // 1000)


def say_done(job, records, start, deadline):
    least = start if job.cycles else deadline
    done = {
        "cycles": sum(record.cycles for record in records),
        "completed": sum(record.completed for record in records),
        "elapsed_us": (max(least, *(record.end for record in records)) - start) // 1000,
        "held_us": sum(record.held for record in records) // 1000,
        "failed": sum(record.gone for record in records),
        "tasks": [record.cycles for record in records],
    }
    if job.samples:
        done["waits_us"] = [wait for record in records for wait in record.waits]
        if job.distinct:
            done["cycles_us"] = [cycle for record in records for cycle in record.whole]
    say("done", **done)


def cycles(job, locks):
    records = [Record(job) for _ in range(job.tasks)]
    warm = threading.Barrier(job.tasks + 1)
    go = threading.Event()
    now = time.monotonic_ns
    hold, pause = job.hold_us / 1e6, job.pause_us / 1e6

    def run(task):
        record = records[task]
        for name in job.warm_up_names(task):
            locks.release(locks.acquire(name))
        warm.wait()
        go.wait()
        for cycle in job.numbers():
            asked = now()
            if asked >= deadline:
                return
            lock = locks.acquire(job.name_of(task, cycle))
            had = now()
            if hold:
                time.sleep(hold)
            releasing = now()
            was_there = locks.release(lock)
            record.add(asked, had, releasing, now(), was_there, had < deadline)
            if pause:
                time.sleep(pause)

    threads = start_threads(job.tasks, run)
    warm.wait()
    if not ready():
        return
    start = now()
    deadline = start + int(job.seconds * 1e9)
    go.set()
    for thread in threads:
        thread.join()
    say_done(job, records, start, deadline)
    until_end()


async def async_cycles(job, locks):
    records = [Record(job) for _ in range(job.tasks)]
    now = time.monotonic_ns
    hold, pause = job.hold_us / 1e6, job.pause_us / 1e6

    async def warm_up(task):
        for name in job.warm_up_names(task):
            await locks.release(await locks.acquire(name))

    async def run(task):
        record = records[task]
        for cycle in job.numbers():
            asked = now()
            if asked >= deadline:
                return
            lock = await locks.acquire(job.name_of(task, cycle))
            had = now()
            if hold:
                await asyncio.sleep(hold)
            releasing = now()
            was_there = await locks.release(lock)
            record.add(asked, had, releasing, now(), was_there, had < deadline)
            if pause:
                await asyncio.sleep(pause)

    await asyncio.gather(*(warm_up(task) for task in range(job.tasks)))
    if not ready():
        return
    start = now()
    deadline = start + int(job.seconds * 1e9)
    await asyncio.gather(*(run(task) for task in range(job.tasks)))
    say_done(job, records, start, deadline)
    until_end()


def keep(job, locks, names):
    """Acquires all names, and keeps them until told to end."""
    if not ready():
        return
    held = [locks.acquire(name) for name in names]
    say("held")
    until_end()
    for lock in held:
        locks.release(lock)


def hold(job, locks):
    keep(job, locks, [job.name])


def leases(job, locks):
    if not locks.renews:
        fail(f"{job.lock} does not renew by itself")
    keep(job, locks, [f"{job.name}:{i}" for i in range(job.tasks)])


def wait(job, locks):
    releasing = threading.Condition()
    under_way = 0

    def run(_):
        nonlocal under_way
        lock = locks.acquire(job.name)
        with releasing:
            under_way += 1
        say("got")
        locks.release(lock)
        with releasing:
            under_way -= 1
            releasing.notify()

    if not ready():
        return
    start_threads(job.tasks, run)
    until_end()
    with releasing:
        releasing.wait_for(lambda: under_way == 0)


async def async_wait(job, locks):
    releases = set()

    async def run():
        lock = await locks.acquire(job.name)
        say("got")
        release = asyncio.ensure_future(locks.release(lock))
        releases.add(release)
        await release
        releases.discard(release)

    if not ready():
        return
    waiting = asyncio.gather(*(run() for _ in range(job.tasks)))
    ended = asyncio.ensure_future(asyncio.to_thread(until_end))
    await asyncio.wait([waiting, ended], return_when=asyncio.FIRST_COMPLETED)
    if waiting.done():
        waiting.result()
    await ended
    await asyncio.gather(*releases)


def start_threads(count, run):
    def guarded(task):
        try:
            run(task)
        except Exception as error:
            fail(f"{type(error).__name__}: {error}")

    threads = [threading.Thread(target=guarded, args=(task,), daemon=True) for task in range(count)]
    for thread in threads:
        thread.start()
    return threads


def main(arguments):
    if len(arguments) != 1:
        fail("expected one argument, the job in JSON")
    job = Job(arguments[0])
    modes = {"cycles": cycles, "hold": hold, "wait": wait, "leases": leases}
    if job.lock not in LOCKS:
        fail(f"no such lock: {job.lock}")
    if job.mode not in modes:
        fail(f"no such mode: {job.mode}")
    if len(job.nodes) > 1:
        fail("one node only")
    settings = (job.nodes[0], job.ttl_ms, job.tasks, job.mode)
    async_modes = {"cycles": async_cycles, "wait": async_wait}
    if job.lock == "redis-py" and job.tasks > MOST_THREADS and job.mode in async_modes:
        asyncio.run(async_modes[job.mode](job, AsyncRedisPy(*settings)))
    else:
        modes[job.mode](job, LOCKS[job.lock](*settings))


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except Exception as error:
        fail(f"{type(error).__name__}: {error}")
    sys.stderr.flush()
    os._exit(0)  # threads may wait for a lock that they will never get
