package cuda

import (
	"sync"
	"time"
)

// crew is goroutines that help with copies. They stay, and look out for the next copy for
// a while before they sleep: to wake them takes tens of microseconds each, one after the
// other, which is what a copy of a megabyte takes.
type crew struct {
	size  int
	work  chan func()
	start sync.Once
	done  sync.WaitGroup
}

// lookOut is how long a helper looks out for the next copy.
const lookOut = 200 * time.Microsecond

func newCrew(size int) *crew { return &crew{size: size, work: make(chan func(), size)} }

// helpers are those who have come to help with one copy.
type helpers struct {
	mu    sync.Mutex
	ended bool
	busy  sync.WaitGroup
}

// help has somebody call f, if he comes before the end.
func (c *crew) help(h *helpers, f func()) {
	c.start.Do(func() {
		for range c.size {
			c.done.Go(c.helper)
		}
	})
	select {
	case c.work <- func() {
		if h.begin() {
			defer h.busy.Done()
			f()
		}
	}:
	default: // nobody has come to the copies before
	}
}

func (h *helpers) begin() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ended {
		return false
	}
	h.busy.Add(1)
	return true
}

// end waits for those who have come, and lets nobody come any more.
func (h *helpers) end() {
	h.mu.Lock()
	h.ended = true
	h.mu.Unlock()
	h.busy.Wait()
}

func (c *crew) helper() {
	for {
		f, ok := c.next()
		if !ok {
			return
		}
		f()
	}
}

// next is what there is to do next.
func (c *crew) next() (f func(), ok bool) {
	for start := time.Now(); time.Since(start) < lookOut; {
		select {
		case f, ok = <-c.work:
			return f, ok
		default:
		}
	}
	f, ok = <-c.work
	return f, ok
}

// close ends the helpers, which must have nothing to do.
func (c *crew) close() {
	close(c.work)
	c.done.Wait()
}
