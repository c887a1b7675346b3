package cuda

import (
	"sync"
	"sync/atomic"
	"time"
)

// crew is goroutines that help with copies. They stay, and look out for the next copy for
// a while before they sleep: to wake them takes tens of microseconds each, one after the
// other, which is what a copy of a megabyte takes. Who is awake comes first, which is why
// they share a list and not a channel: that would wake who has slept longest.
type crew struct {
	size  int
	start sync.Once
	done  sync.WaitGroup

	mu      sync.Mutex
	list    []func()
	listed  atomic.Int32 // how many are on the list
	awake   atomic.Int32 // helpers who look at it
	wake    chan struct{}
	endings chan struct{} // closed when the crew is
}

// lookOut is how long a helper looks out for the next copy.
const lookOut = 200 * time.Microsecond

func newCrew(size int) *crew {
	return &crew{size: size, wake: make(chan struct{}, size), endings: make(chan struct{})}
}

// helpers are those who have come to help with one copy.
type helpers struct {
	mu    sync.Mutex
	ended bool
	count atomic.Int32 // of those who are busy
	busy  sync.WaitGroup
}

// help has somebody call f, if he comes before the end.
func (c *crew) help(h *helpers, f func()) {
	c.start.Do(func() {
		for range c.size {
			c.done.Go(c.helper)
		}
	})
	c.mu.Lock()
	if len(c.list) < c.size { // else nobody has come to the copies before
		c.list = append(c.list, func() {
			if h.begin() {
				f()
				h.count.Add(-1)
				h.busy.Done()
			}
		})
		c.listed.Store(int32(len(c.list)))
	}
	c.mu.Unlock()
	if c.awake.Load() < c.listed.Load() {
		select {
		case c.wake <- struct{}{}:
		default:
		}
	}
}

func (h *helpers) begin() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ended {
		return false
	}
	h.busy.Add(1)
	h.count.Add(1)
	return true
}

// end waits for those who have come, and lets nobody come any more. They are about to be
// done, too soon for sleep.
func (h *helpers) end() {
	h.mu.Lock()
	h.ended = true
	h.mu.Unlock()
	for start := time.Now(); h.count.Load() > 0 && time.Since(start) < lookOut; {
	}
	h.busy.Wait()
}

func (c *crew) helper() {
	for {
		c.awake.Add(1)
		f := c.next()
		c.awake.Add(-1)
		if f != nil {
			f()
			continue
		}
		select {
		case <-c.wake:
		case <-c.endings:
			return
		}
	}
}

// next is what there is to do next; nil if nothing comes for a while.
func (c *crew) next() (f func()) {
	for start := time.Now(); time.Since(start) < lookOut; {
		if c.listed.Load() == 0 {
			continue
		}
		c.mu.Lock()
		if n := len(c.list); n > 0 {
			f, c.list = c.list[n-1], c.list[:n-1]
			c.listed.Store(int32(n - 1))
		}
		c.mu.Unlock()
		if f != nil {
			return f
		}
	}
	return nil
}

// close ends the helpers.
func (c *crew) close() {
	close(c.endings)
	c.done.Wait()
}
