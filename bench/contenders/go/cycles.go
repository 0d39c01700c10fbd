package main

import (
	"errors"
	"fmt"
	"math"
	"os"
	"time"
)

// record is what one task did.
type record struct {
	cycles    int
	completed int // those that came too late to count, too
	held      time.Duration
	waitsUs   []int64
	cyclesUs  []int64
	end       time.Time
}

// cycles lets all tasks acquire and release until the time is up.
//
// A cycle counts when its lock was had before the time was up. A wait that
// lasts longer is waited for and given back, but neither counted nor timed:
// else the end of each run would be a race of ever fewer tasks.
func cycles(j job, locks locker) error {
	if err := warmUp(j, locks); err != nil {
		return err
	}
	failed.Store(0)
	commands := ready()
	if !commands.next() {
		return nil
	}
	records := make([]record, j.Tasks)
	start := time.Now()
	deadline := start.Add(time.Duration(j.Seconds * float64(time.Second)))
	most := math.MaxInt
	if j.Cycles > 0 {
		most = (j.Cycles + j.Tasks - 1) / j.Tasks
	}
	err := inParallel(j.Tasks, func(task int) error {
		r := &records[task]
		for i := 0; i < most && time.Now().Before(deadline); i++ {
			if err := r.cycle(j, locks, nameOf(j, task, i), deadline); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	say(summary(j, records, start, deadline))
	commands.untilEnd()
	return nil
}

func nameOf(j job, task, cycle int) string {
	if j.Distinct == 0 {
		return j.Name
	}
	return fmt.Sprintf("%s:%d:%d", j.Name, task, cycle%j.Distinct)
}

func (r *record) cycle(j job, locks locker, name string, deadline time.Time) error {
	asked := time.Now()
	release, err := locks.acquire(name)
	if err != nil {
		return err
	}
	had := time.Now()
	if j.HoldUs > 0 {
		time.Sleep(time.Duration(j.HoldUs) * time.Microsecond)
	}
	releasing := time.Now()
	if err := release(); errors.Is(err, errGone) {
		complain(err)
	} else if err != nil {
		return err
	}
	released := time.Now()
	r.completed++
	if had.Before(deadline) {
		r.cycles++
		r.held += releasing.Sub(had)
		r.end = released
		if j.Samples {
			r.waitsUs = append(r.waitsUs, had.Sub(asked).Microseconds())
			r.cyclesUs = append(r.cyclesUs, released.Sub(asked).Microseconds())
		}
	}
	if j.PauseUs > 0 {
		time.Sleep(time.Duration(j.PauseUs) * time.Microsecond)
	}
	return nil
}

func summary(j job, records []record, start, deadline time.Time) map[string]any {
	end := deadline
	if j.Cycles > 0 {
		end = start
	}
	held := time.Duration(0)
	total, completed := 0, 0
	tasks := []int{}
	waitsUs, cyclesUs := []int64{}, []int64{}
	for _, r := range records {
		if r.end.After(end) {
			end = r.end
		}
		held += r.held
		total += r.cycles
		completed += r.completed
		tasks = append(tasks, r.cycles)
		waitsUs = append(waitsUs, r.waitsUs...)
		cyclesUs = append(cyclesUs, r.cyclesUs...)
	}
	done := map[string]any{
		"event": "done", "cycles": total, "completed": completed, "tasks": tasks,
		"elapsed_us": end.Sub(start).Microseconds(), "held_us": held.Microseconds(),
		"failed": failed.Load(),
	}
	if j.Samples {
		done["waits_us"] = waitsUs
		if j.Distinct > 0 {
			done["cycles_us"] = cyclesUs
		}
	}
	return done
}

// warmUp makes connections and loads scripts, on names of its own: every task
// once at the same time, and some dozens of cycles in all.
func warmUp(j job, locks locker) error {
	each := max(1, 64/j.Tasks)
	return inParallel(j.Tasks, func(task int) error {
		for i := range each {
			release, err := locks.acquire(fmt.Sprintf("%s:warm:%d:%d:%d", j.Name, os.Getpid(), task, i))
			if err != nil {
				return err
			}
			if err := release(); err != nil && !errors.Is(err, errGone) {
				return err
			}
		}
		return nil
	})
}
