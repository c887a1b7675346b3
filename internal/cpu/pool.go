package cpu

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"tilework/internal/cpu/asm"
)

// A task is work cut into items, numbered from 0, that several goroutines do
// together. The items form phases; those of one phase may run at once, and none
// starts before all of the phase before it are done.
//
// Which goroutine does which item never shows in the result: an item always
// computes the same thing from the same inputs.
type task interface {
	// walk returns a fresh walk over the phases, at the first.
	walk() walker
}

// A walker goes through a task's phases in order. Each goroutine has its own.
type walker interface {
	// items is the number of items in the present phase.
	items() int
	// do carries out item i of the present phase.
	do(i int)
	// advance goes to the next phase, or reports false after the last.
	advance() bool
}

// crew is one task under way. Whoever takes part draws tickets, the items'
// numbers counted through all phases, and does what it drew.
//
// Nobody waits for a helper that has not come: an item belongs to the one that
// drew it, and whoever draws is already running. So a wait for lower tickets
// always ends.
type crew struct {
	task task
	// What all write is kept on cache lines of its own.
	_    [cacheLine]byte
	next atomic.Int64 // the next ticket
	_    [cacheLine]byte
	done atomic.Int64 // how many items are done
	_    [cacheLine]byte
	stop atomic.Bool // leave after the item in hand

	// doors counts the helpers inside; the lowest bit says that the doors are
	// closed, after which nobody enters.
	doors atomic.Int64
}

const (
	doorsClosed = 1
	oneHelper   = 2
)

// execute does the task with up to threads goroutines, the caller being one,
// and returns when nothing of it runs any more. progress, if any, is called from
// this goroutine with the items done and their total. When ctx ends, execute
// leaves what is undone and returns its error.
func execute(ctx context.Context, t task, threads int, progress func(done, total int64)) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	c := &crew{task: t}
	var total int64
	if progress != nil {
		for w := t.walk(); ; {
			total += int64(w.items())
			if !w.advance() {
				break
			}
		}
	}
	for range threads - 1 {
		if !recruit(c) {
			break
		}
	}
	ended := ctx.Done()
	c.work(func() {
		if ended != nil && ctx.Err() != nil {
			c.stop.Store(true)
		}
		if progress != nil {
			progress(c.done.Load(), total)
		}
	})
	c.close()
	if c.stop.Load() {
		return ctx.Err()
	}
	return nil
}

// work draws tickets until there are none. after, if not nil, is called after
// each item.
func (c *crew) work(after func()) {
	w := c.task.walk()
	var first int64 // the first ticket of w's phase
	for {
		ticket := c.next.Add(1) - 1
		for ticket >= first+int64(w.items()) {
			first += int64(w.items())
			if !w.advance() {
				return
			}
		}
		if !c.await(first) {
			return
		}
		w.do(int(ticket - first))
		c.done.Add(1)
		if after != nil {
			after()
		}
	}
}

// await returns when n items are done, or false when the task is to stop.
func (c *crew) await(n int64) bool {
	for w := (wait{}); !c.stop.Load(); w.pause() {
		if c.done.Load() >= n {
			return true
		}
	}
	return false
}

// wait is a wait for another goroutine, which is expected to take microseconds: it
// spins, and now and then lets others have the processor. To do that at every turn
// would be no better on idle cores, and would have all who wait contend for the
// scheduler's lock.
type wait struct{ turns int }

func (w *wait) pause() {
	asm.Pause(16) // about half a microsecond
	if w.turns++; w.turns%16 == 0 {
		runtime.Gosched()
	}
}

// help is what a helper does with a crew: nothing when the doors are closed.
func (c *crew) help() {
	if c.doors.Add(oneHelper)&doorsClosed == 0 {
		c.work(nil)
	}
	c.doors.Add(-oneHelper)
}

// close lets no more helpers in and returns when the last has left.
func (c *crew) close() {
	c.doors.Add(doorsClosed)
	for w := (wait{}); c.doors.Load()&^doorsClosed != 0; w.pause() {
	}
}

// Share calls f(0) … f(n-1) from up to [Workers](threads) goroutines, the caller's
// included. When ctx ends, the rest is left out and its error
// returned.
func Share(ctx context.Context, n, threads int, f func(i int)) error {
	return execute(ctx, &calls{n, f}, Workers(threads), nil)
}

type calls struct {
	n int
	f func(i int)
}

func (c *calls) walk() walker  { return c }
func (c *calls) items() int    { return c.n }
func (c *calls) do(i int)      { c.f(i) }
func (c *calls) advance() bool { return false }

// Workers is the number of goroutines that compute for a caller who allows that
// many: 0 or less is GOMAXPROCS, which is also the most.
func Workers(asked int) int {
	n := runtime.GOMAXPROCS(0)
	if asked > 0 {
		n = min(n, asked)
	}
	return n
}

// The helpers are goroutines that outlive the task they came for, because to
// start one costs more (100 µs and above until it runs on another core) than a
// small product. A helper without work looks out for some for spinTime and then
// sleeps until it is woken.
var helpers struct {
	sync.Mutex
	idle    []*helper // those without work, the last to have become so at the end
	started int
}

type helper struct {
	job  atomic.Pointer[crew]
	wake chan struct{}
}

const spinTime = 100 * time.Microsecond

// recruit gives c one helper more, if there is an idle one or room to start one:
// there are never more helpers than GOMAXPROCS less one.
func recruit(c *crew) bool {
	helpers.Lock()
	defer helpers.Unlock()
	if n := len(helpers.idle); n > 0 {
		h := helpers.idle[n-1]
		helpers.idle = helpers.idle[:n-1]
		h.job.Store(c)
		select {
		case h.wake <- struct{}{}:
		default:
		}
		return true
	}
	if helpers.started >= runtime.GOMAXPROCS(0)-1 {
		return false
	}
	helpers.started++
	h := &helper{wake: make(chan struct{}, 1)}
	h.job.Store(c)
	go h.run()
	return true
}

func (h *helper) run() {
	for {
		if c := h.job.Swap(nil); c != nil {
			c.help()
			helpers.Lock()
			helpers.idle = append(helpers.idle, h)
			helpers.Unlock()
		}
		h.rest()
	}
}

// rest returns when there may be work.
func (h *helper) rest() {
	var w wait
	for start := time.Now(); time.Since(start) < spinTime; w.pause() {
		if h.job.Load() != nil {
			return
		}
	}
	<-h.wake
}
