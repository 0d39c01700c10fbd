"""The two libraries, and their settings.

Both have no more to say on speed than to install hiredis, so it is there. A wait
goes on for ever by itself in both. Each task has a connection of its own in the
pool: redis-py's default of 100 raises an error when there are more tasks.
"""

import math

import redis
import redis.asyncio
import redis_lock


class RedisPy:
    """redis-py's own Lock, for threads.

    It asks again every 0.1 s while it waits. That is the default, and the
    documentation recommends no other.
    """

    renews = False

    def __init__(self, node, ttl_ms, tasks, mode):
        self.ttl = ttl_ms / 1000
        self.client = redis.Redis.from_url(node, max_connections=tasks + 1)
        self.client.ping()

    def acquire(self, name):
        lock = self.client.lock(name, timeout=self.ttl)
        lock.acquire()
        return lock

    def release(self, lock):
        """Whether the lock was still there."""
        try:
            lock.release()
            return True
        except redis.exceptions.LockNotOwnedError:
            return False


class AsyncRedisPy:
    """The same for asyncio."""

    def __init__(self, node, ttl_ms, tasks, mode):
        self.ttl = ttl_ms / 1000
        self.client = redis.asyncio.Redis.from_url(node, max_connections=tasks + 1)

    async def acquire(self, name):
        lock = self.client.lock(name, timeout=self.ttl)
        await lock.acquire()
        return lock

    async def release(self, lock):
        """Whether the lock was still there."""
        try:
            await lock.release()
            return True
        except redis.exceptions.LockNotOwnedError:
            return False


class PythonRedisLock:
    """python-redis-lock, whose waiters block in BLPOP until a release wakes one.

    - It counts its ttl in whole seconds: rounded up here.
    - Its renewal is one thread for each lock, so it is on only where a lock is
      kept: in `hold` and `leases`.
    - redis-py gives up an answer after 5 s by default, but BLPOP takes longer.
    """

    renews = True

    def __init__(self, node, ttl_ms, tasks, mode):
        self.expire = math.ceil(ttl_ms / 1000)
        self.renewal = mode in ("hold", "leases")
        self.client = redis.Redis.from_url(node, max_connections=tasks + 1, socket_timeout=None)
        self.client.ping()

    def acquire(self, name):
        lock = redis_lock.Lock(self.client, name, expire=self.expire, auto_renewal=self.renewal)
        lock.acquire()
        return lock

    def release(self, lock):
        """Whether the lock was still there."""
        try:
            lock.release()
            return True
        except redis_lock.NotAcquired:
            return False
