package cpu

import (
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"tilework/internal/cpu/asm"
)

// pool holds the worker goroutines, which outlive the jobs that they run. A worker without a job
// spins for spinTime and then sleeps. After about [idleTime] it ends, and its thread with it.
//
// On Linux it sleeps on a futex. Waking it costs the caller 3.5 µs, and the worker runs 2.5 µs
// later. The Go scheduler needs 60 µs or more to wake the receiver of a channel, and wakes one
// thread at a time, so that the fifteenth worker would start after a millisecond (measured on two
// cores of a Xeon in a virtual machine).
var pool struct {
	sync.Mutex
	idle    []*poolWorker // workers without a job, most recently used last
	started int
	brief   atomic.Int64 // when the last brief job started, as a time since programStart
}

var programStart = time.Now()

type poolWorker struct {
	assigned atomic.Pointer[executor] // the executor whose job it is to run
	index    int                      // its worker number in that executor
	unused   bool                     // since the last sweep; guarded by pool
	sleeper
	_ [2 * cacheLine]byte
}

const (
	spinTime   = 100 * time.Microsecond
	spinPauses = 8 // between two checks for a job: 0.2 to 0.5 µs
)

// acquireWorkers appends up to n pool workers to list and starts new ones if too few are idle. With
// awake it takes only workers that do not sleep. The pool has at most GOMAXPROCS-1 workers.
func acquireWorkers(list []*poolWorker, n int, awake bool) []*poolWorker {
	if n == 0 {
		return list
	}
	most := runtime.GOMAXPROCS(0) - 1
	n = min(n, most)
	pool.Lock()
	defer pool.Unlock()
	for range min(n, len(pool.idle)) {
		last := len(pool.idle) - 1
		if awake && pool.idle[last].asleep() {
			return list // the others have slept longer
		}
		pool.idle[last].unused = false
		list = append(list, pool.idle[last])
		pool.idle = pool.idle[:last]
	}
	for !awake && len(list) < n && pool.started < most {
		pool.started++
		w := new(poolWorker)
		go w.run()
		list = append(list, w)
	}
	return list
}

// wakesForBrief reports whether a brief job, which starts now, may wake workers: another one has
// started recently, so more of them will probably follow while the workers spin. A single one would
// take longer, by 15 to 100 µs where the idle core of a virtual machine must be woken.
func wakesForBrief() bool {
	now := int64(time.Since(programStart))
	return now-pool.brief.Swap(now) < int64(2*spinTime)
}

// releaseWorkers returns workers without a job to the pool.
func releaseWorkers(list []*poolWorker) {
	if len(list) == 0 {
		return
	}
	pool.Lock()
	pool.idle = append(pool.idle, list...)
	pool.Unlock()
	sweeps.schedule()
}

// endUnused ends the workers that no job has used since the last call. It returns the number of
// those that are left.
func endUnused() int {
	pool.Lock()
	defer pool.Unlock()
	pool.idle = slices.DeleteFunc(pool.idle, func(w *poolWorker) bool {
		if w.unused {
			pool.started--
			w.assigned.Store(ending)
			w.wake()
		}
		return w.unused
	})
	for _, w := range pool.idle {
		w.unused = true
	}
	return pool.started
}

// ending is assigned to a worker that must end.
var ending = new(executor)

// wakeChildren wakes the two workers below the given one in a binary tree, so that waking all takes
// a number of steps logarithmic in their number.
func wakeChildren(list []*poolWorker, worker int) {
	for _, child := range [2]int{2*worker + 1, 2*worker + 2} {
		if child <= len(list) {
			list[child-1].wake()
		}
	}
}

func (w *poolWorker) run() {
	ended := false
	defer func() {
		if !ended { // a task has called runtime.Goexit
			go w.run()
		}
	}()
	for !ended {
		switch e := w.waitForJob(); {
		case e == ending:
			ended = true
			runtime.LockOSThread() // ends the thread with the goroutine
		case w.assigned.CompareAndSwap(e, nil): // otherwise the executor has withdrawn the job
			w.work(e)
		}
	}
}

// work runs tasks of a job until it ends or a task panics.
func (w *poolWorker) work(e *executor) {
	returned := false
	defer func() {
		if !returned {
			e.stop.Store(true)
		}
		e.left.Add(1)
	}()
	e.joined.Add(1)
	wakeChildren(e.workers, w.index)
	e.trace.join(w.index)
	returned = e.panics.Catch(func() { e.runPhases(w.index) })
}

// waitForJob spins, then sleeps, until an executor assigns a job.
func (w *poolWorker) waitForJob() *executor {
	for {
		for start := time.Now(); time.Since(start) < spinTime; asm.Pause(spinPauses) {
			if e := w.assigned.Load(); e != nil {
				return e
			}
		}
		w.prepareSleep()
		if w.assigned.Load() == nil {
			w.sleep()
		}
	}
}
