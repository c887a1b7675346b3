package cpu

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"tilework/internal/cpu/asm"
)

// The helpers are goroutines that outlive the task they came for. One without work
// looks out for some for spinTime and then sleeps until it is woken.
//
// It sleeps on a word of memory, and not on a channel, where the system can do that
// (Linux's futex): whoever wakes it pays 3.5 µs, and it runs 2.5 µs later, where the
// Go scheduler takes 60 µs and more for a channel's receiver and wakes one thread at a
// time, so that the fifteenth would come after a millisecond (measured on two cores of
// a Xeon, in a virtual machine).
var pool struct {
	sync.Mutex
	idle    []*poolWorker // those without work, the last to have become so at the end
	started int
}

type poolWorker struct {
	assigned atomic.Pointer[executor] // the crew that wants it
	index    int                      // that it has there
	sleeper
	_ [2 * cacheLine]byte
}

const (
	spinTime   = 100 * time.Microsecond
	spinPauses = 8 // between two looks: 0.2 to 0.5 µs
)

// recruit appends up to n helpers to list, idle ones or new ones: there are never more
// than GOMAXPROCS less one.
func acquireWorkers(list []*poolWorker, n int) []*poolWorker {
	if n == 0 {
		return list
	}
	most := runtime.GOMAXPROCS(0) - 1
	n = min(n, most)
	pool.Lock()
	defer pool.Unlock()
	for range min(n, len(pool.idle)) {
		last := len(pool.idle) - 1
		list = append(list, pool.idle[last])
		pool.idle = pool.idle[:last]
	}
	for len(list) < n && pool.started < most {
		pool.started++
		h := new(poolWorker)
		go h.run()
		list = append(list, h)
	}
	return list
}

// release makes helpers that have no job idle.
func releaseWorkers(list []*poolWorker) {
	if len(list) == 0 {
		return
	}
	pool.Lock()
	pool.idle = append(pool.idle, list...)
	pool.Unlock()
}

// callUp wakes those two of the list whom slot has to wake: each wakes two, so that all
// are awake after as many steps as a tree has levels.
func wakeChildren(list []*poolWorker, worker int) {
	for _, child := range [2]int{2*worker + 1, 2*worker + 2} {
		if child <= len(list) {
			list[child-1].wake()
		}
	}
}

func (h *poolWorker) run() {
	for {
		c := h.waitForJob()
		if h.assigned.CompareAndSwap(c, nil) { // or it was taken back
			c.joined.Add(1)
			wakeChildren(c.workers, h.index)
			c.trace.join(h.index)
			c.runPhases(h.index)
			c.left.Add(1)
		}
	}
}

// rest returns when there is a job.
func (h *poolWorker) waitForJob() *executor {
	for {
		for start := time.Now(); time.Since(start) < spinTime; asm.Pause(spinPauses) {
			if c := h.assigned.Load(); c != nil {
				return c
			}
		}
		h.prepareSleep()
		if h.assigned.Load() == nil {
			h.sleep()
		}
	}
}
