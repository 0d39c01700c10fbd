package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"sync/atomic"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	redsyncredis "github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"
)

// locker is what the three libraries have in common.
type locker interface {
	// acquire waits until it has the lock, however often its library gives up.
	acquire(name string) (release func() error, err error)
	renews() bool
	close()
}

// errGone says that a release came too late, or met a key that was not there.
var errGone = errors.New("the lock was gone before its release")

// patience bounds how long errors (not refusals) are answered by asking again.
const patience = 60 * time.Second

func newLocker(j job) (locker, error) {
	switch j.Lock {
	case "redsync":
		return newRedsync(j)
	case "redislock":
		return newRedislock(j)
	case "rueidislock":
		return newRueidislock(j)
	}
	return nil, fmt.Errorf("no such lock: %s", j.Lock)
}

// redsyncLocker: redsync over go-redis, the client of its README's example; its
// documentation calls no other one faster.
//
// Tries (32) and delays between them (50 to 250 ms at random) are the defaults,
// because the documentation recommends no others. When all tries are used up,
// Lock is called again, as its documentation says one may. The pool of
// connections is go-redis's default, 10 for each core.
//
// On several nodes WithFailFast is on, which is documented "to achieve low
// latency": it goes on as soon as a quorum has answered. Its price is that a
// release may overtake its own acquire on a slower node, where the key then
// stays until its ttl.
type redsyncLocker struct {
	clients []*redis.Client
	redsync *redsync.Redsync
	options []redsync.Option
}

func newRedsync(j job) (locker, error) {
	l := &redsyncLocker{options: []redsync.Option{
		redsync.WithExpiry(j.ttl()),
		redsync.WithFailFast(len(j.Nodes) > 1),
	}}
	var pools []redsyncredis.Pool
	for _, node := range j.Nodes {
		client, err := goRedis(node)
		if err != nil {
			return nil, err
		}
		l.clients = append(l.clients, client)
		pools = append(pools, goredis.NewPool(client))
	}
	l.redsync = redsync.New(pools...)
	return l, nil
}

func (l *redsyncLocker) acquire(name string) (func() error, error) {
	mutex := l.redsync.NewMutex(name, l.options...)
	var taken *redsync.ErrTaken
	err := askAgain(func() error { return mutex.Lock() }, func(err error) bool {
		return errors.As(err, &taken) || errors.Is(err, redsync.ErrFailed)
	})
	if err != nil {
		return nil, err
	}
	return func() error {
		if ok, err := mutex.Unlock(); !ok {
			return fmt.Errorf("%w: %v", errGone, err)
		}
		return nil
	}, nil
}

func (l *redsyncLocker) renews() bool { return false }

func (l *redsyncLocker) close() {
	for _, client := range l.clients {
		client.Close()
	}
}

// redislockLocker: bsm/redislock, which does not retry by itself. Its
// documentation recommends no delay below 16 ms, so that is the delay. It gives
// up at the context's deadline, which is therefore far away.
type redislockLocker struct {
	client *redis.Client
	locks  *redislock.Client
	ttl    time.Duration
}

func newRedislock(j job) (locker, error) {
	if len(j.Nodes) > 1 {
		return nil, errOneNode
	}
	client, err := goRedis(j.Nodes[0])
	if err != nil {
		return nil, err
	}
	return &redislockLocker{client, redislock.New(client), j.ttl()}, nil
}

func (l *redislockLocker) acquire(name string) (func() error, error) {
	options := &redislock.Options{RetryStrategy: redislock.LinearBackoff(16 * time.Millisecond)}
	farAway, cancel := context.WithTimeout(background, 24*time.Hour)
	defer cancel()
	var lock *redislock.Lock
	err := askAgain(func() (err error) {
		lock, err = l.locks.Obtain(farAway, name, l.ttl, options)
		return err
	}, func(err error) bool { return errors.Is(err, redislock.ErrNotObtained) })
	if err != nil {
		return nil, err
	}
	return func() error {
		err := lock.Release(background)
		if errors.Is(err, redislock.ErrLockNotHeld) {
			return errGone
		}
		return err
	}, nil
}

func (l *redislockLocker) renews() bool { return false }

func (l *redislockLocker) close() { l.client.Close() }

// rueidisLocker: rueidislock with what its README says of one Redis of version
// 7.0.5 or later, KeyMajority 1 and NoLoopTracking. Waiters are woken by client
// side caching. It renews at half of the ttl, its default.
//
// Two things are not as documented, or some runs would never end:
//   - TryNextAfter, the time-out of an attempt, is a second instead of 20 ms:
//     with one key there is no next one to try, and an attempt that timed out
//     is not woken again when nobody else wants the lock.
//   - A wait is asked again when it has lasted for too long. With two processes
//     at one name, version 1.0.79 now and then forgets a waiter: the lock is
//     free, and WithContext waits for ever.
//
// Several nodes are only supported as one cluster, not as independent servers.
type rueidisLocker struct {
	locks   rueidislock.Locker
	tooLong time.Duration
}

func newRueidislock(j job) (locker, error) {
	if len(j.Nodes) > 1 {
		return nil, errOneNode
	}
	address, err := addressOf(j.Nodes[0])
	if err != nil {
		return nil, err
	}
	locks, err := rueidislock.NewLocker(rueidislock.LockerOption{
		ClientOption:   rueidis.ClientOption{InitAddress: []string{address}, ForceSingleClient: true},
		KeyMajority:    1,
		NoLoopTracking: true,
		KeyValidity:    j.ttl(),
		TryNextAfter:   time.Second,
	})
	if err != nil {
		return nil, err
	}
	tooLong := time.Second
	if j.Mode == "wait" {
		// Waiters of a lock that is held for long are right to wait, and what
		// their waiting costs is measured.
		tooLong = 2 * j.ttl()
	}
	return &rueidisLocker{locks, tooLong}, nil
}

func (l *rueidisLocker) acquire(name string) (func() error, error) {
	for {
		asking, cancel := context.WithCancel(background)
		watch := time.AfterFunc(l.tooLong, cancel)
		held, release, err := l.locks.WithContext(asking, name)
		if inTime := watch.Stop(); !inTime {
			if err == nil {
				release()
			}
			continue
		}
		if err != nil {
			cancel()
			return nil, err
		}
		return func() error {
			lost := held.Err() != nil
			release()
			cancel()
			if lost {
				return errGone
			}
			return nil
		}, nil
	}
}

func (l *rueidisLocker) renews() bool { return true }

func (l *rueidisLocker) close() { l.locks.Close() }

var errOneNode = errors.New("one node only")

// failed counts how often something failed, but for refusals.
var failed atomic.Int64

// complain counts a failure. Where there are many, the first tells what it is about.
func complain(err error) {
	if failed.Add(1) == 1 {
		fmt.Fprintln(os.Stderr, err)
	}
}

// askAgain asks until it has the lock. Errors that are not refusals are asked
// again too, for a while: a busy server or one bad node of five may cause them.
func askAgain(ask func() error, refused func(error) bool) error {
	asked := time.Now()
	for {
		err := ask()
		if err == nil {
			return nil
		}
		if refused(err) {
			continue
		}
		complain(err)
		if time.Since(asked) > patience {
			return err
		}
		time.Sleep(time.Millisecond)
	}
}

// goRedis connects at once, so that a wrong address is told before the job.
func goRedis(node string) (*redis.Client, error) {
	options, err := redis.ParseURL(node)
	if err != nil {
		return nil, errors.New("a node's address is not a redis URL")
	}
	client := redis.NewClient(options)
	if err := client.Ping(background).Err(); err != nil {
		return nil, fmt.Errorf("%s does not answer: %w", options.Addr, err)
	}
	return client, nil
}

func addressOf(node string) (string, error) {
	parsed, err := url.Parse(node)
	if err != nil || parsed.Scheme != "redis" || parsed.Host == "" {
		return "", errors.New("a node's address is not a redis URL")
	}
	return parsed.Host, nil
}
