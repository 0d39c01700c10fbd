// Go's contenders: redsync, bsm/redislock and rueidislock, each doing the job
// that its only argument describes. docs/performance.md says what is measured.
//
// The three adapters with their settings, and why those, are in locks.go.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"
)

type job struct {
	Lock     string   `json:"lock"`
	Mode     string   `json:"mode"`
	Nodes    []string `json:"nodes"`
	Tasks    int      `json:"tasks"`
	Name     string   `json:"name"`
	Distinct int      `json:"distinct"`
	HoldUs   int64    `json:"hold_us"`
	PauseUs  int64    `json:"pause_us"`
	Seconds  float64  `json:"seconds"`
	Cycles   int      `json:"cycles"` // if given, it ends earlier, after so many
	TTLMs    int64    `json:"ttl_ms"`
	Samples  bool     `json:"samples"`
}

func (j job) ttl() time.Duration { return time.Duration(j.TTLMs) * time.Millisecond }

func main() {
	if err := run(os.Args[1:]); err != nil {
		say(map[string]any{"event": "error", "message": err.Error()})
		os.Exit(1)
	}
}

func run(arguments []string) error {
	if len(arguments) != 1 {
		return errors.New("expected one argument, the job in JSON")
	}
	var j job
	if err := json.Unmarshal([]byte(arguments[0]), &j); err != nil {
		return fmt.Errorf("the job is not JSON as expected: %w", err)
	}
	if len(j.Nodes) == 0 || j.Tasks < 1 || j.TTLMs < 1 {
		return errors.New("the job needs nodes, tasks and ttl_ms")
	}
	locks, err := newLocker(j)
	if err != nil {
		return err
	}
	defer locks.close()

	switch j.Mode {
	case "cycles":
		err = cycles(j, locks)
	case "hold":
		err = holdAll(locks, []string{j.Name})
	case "wait":
		err = wait(j, locks)
	case "leases":
		if !locks.renews() {
			return fmt.Errorf("%s does not renew by itself", j.Lock)
		}
		names := make([]string, j.Tasks)
		for i := range names {
			names[i] = fmt.Sprintf("%s:%d", j.Name, i)
		}
		err = holdAll(locks, names)
	default:
		err = fmt.Errorf("no such mode: %s", j.Mode)
	}
	return err
}

// holdAll acquires all names and keeps them until told to end.
func holdAll(locks locker, names []string) error {
	commands := ready()
	if !commands.next() {
		return nil
	}
	releases := make([]func() error, len(names))
	// 64 at a time: as fast as one at a time is slow, without 100,000 requests
	// that wait for an answer longer than any time-out.
	err := inParallel(min(64, len(names)), func(worker int) error {
		for i := worker; i < len(names); i += 64 {
			release, err := locks.acquire(names[i])
			if err != nil {
				return err
			}
			releases[i] = release
		}
		return nil
	})
	if err != nil {
		return err
	}
	say(map[string]any{"event": "held"})
	commands.untilEnd()
	return inParallel(min(64, len(names)), func(worker int) error {
		for i := worker; i < len(names); i += 64 {
			if err := releases[i](); err != nil && !errors.Is(err, errGone) {
				return err
			}
		}
		return nil
	})
}

// wait lets all tasks ask for one name that somebody else holds.
func wait(j job, locks locker) error {
	commands := ready()
	if !commands.next() {
		return nil
	}
	failed := make(chan error, 1)
	var releasing sync.WaitGroup
	go func() {
		err := inParallel(j.Tasks, func(int) error {
			release, err := locks.acquire(j.Name)
			if err != nil {
				return err
			}
			releasing.Add(1)
			defer releasing.Done()
			say(map[string]any{"event": "got"})
			return release()
		})
		if err != nil {
			failed <- err
		}
	}()
	ended := make(chan struct{})
	go func() {
		commands.untilEnd()
		close(ended)
	}()
	select {
	case err := <-failed:
		return err
	case <-ended:
		releasing.Wait()
		return nil
	}
}

// inParallel runs work on so many goroutines, and returns the first error.
func inParallel(tasks int, work func(task int) error) error {
	failures := make([]error, tasks)
	var group sync.WaitGroup
	for task := range tasks {
		group.Go(func() { failures[task] = work(task) })
	}
	group.Wait()
	for _, err := range failures {
		if err != nil {
			return err
		}
	}
	return nil
}

// commands are the lines on standard input.
type commands struct{ lines *bufio.Scanner }

func ready() commands {
	say(map[string]any{"event": "ready"})
	return commands{bufio.NewScanner(os.Stdin)}
}

// next waits for one line, and is false when the job is over before it began.
func (c commands) next() bool {
	return c.lines.Scan() && strings.TrimSpace(c.lines.Text()) != "end"
}

func (c commands) untilEnd() {
	for c.next() {
	}
}

var saying sync.Mutex

// say prints one line of JSON on standard output, which is not buffered.
func say(event map[string]any) {
	line, err := json.Marshal(event)
	if err != nil {
		panic(err) // maps of numbers and strings can always be written
	}
	saying.Lock()
	defer saying.Unlock()
	os.Stdout.Write(append(line, '\n'))
}

// background is used where a library wants a context: nothing is cancelled here.
var background = context.Background()
