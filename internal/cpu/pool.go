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
var helpers struct {
	sync.Mutex
	idle    []*helper // those without work, the last to have become so at the end
	started int
}

type helper struct {
	job  atomic.Pointer[crew] // the crew that wants it
	slot int                  // that it has there
	sleeper
	_ [2 * cacheLine]byte
}

const (
	spinTime = 100 * time.Microsecond
	pauses   = 8 // between two looks: 0.2 to 0.5 µs
)

// recruit appends up to n helpers to list, idle ones or new ones: there are never more
// than GOMAXPROCS less one.
func recruit(list []*helper, n int) []*helper {
	if n == 0 {
		return list
	}
	most := runtime.GOMAXPROCS(0) - 1
	n = min(n, most)
	helpers.Lock()
	defer helpers.Unlock()
	for range min(n, len(helpers.idle)) {
		last := len(helpers.idle) - 1
		list = append(list, helpers.idle[last])
		helpers.idle = helpers.idle[:last]
	}
	for len(list) < n && helpers.started < most {
		helpers.started++
		h := new(helper)
		go h.run()
		list = append(list, h)
	}
	return list
}

// release makes helpers that have no job idle.
func release(list []*helper) {
	if len(list) == 0 {
		return
	}
	helpers.Lock()
	helpers.idle = append(helpers.idle, list...)
	helpers.Unlock()
}

// callUp wakes those two of the list whom slot has to wake: each wakes two, so that all
// are awake after as many steps as a tree has levels.
func callUp(list []*helper, slot int) {
	for _, child := range [2]int{2*slot + 1, 2*slot + 2} {
		if child <= len(list) {
			list[child-1].wake()
		}
	}
}

func (h *helper) run() {
	for {
		c := h.rest()
		if h.job.CompareAndSwap(c, nil) { // or it was taken back
			c.came.Add(1)
			callUp(c.helpers, h.slot)
			c.trace.arrive(h.slot)
			c.work(h.slot)
			c.left.Add(1)
		}
	}
}

// rest returns when there is a job.
func (h *helper) rest() *crew {
	for {
		for start := time.Now(); time.Since(start) < spinTime; asm.Pause(pauses) {
			if c := h.job.Load(); c != nil {
				return c
			}
		}
		h.lieDown()
		if h.job.Load() == nil {
			h.sleep()
		}
	}
}
