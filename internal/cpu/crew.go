package cpu

import (
	"context"
	"runtime"
	"sync/atomic"

	"tilework/internal/cpu/asm"
)

// A task is work cut into items that several goroutines do together. The items form
// phases; those of one phase may run at once, and none starts before all of the phase
// before it are done.
//
// Which goroutine does which item never shows in the result: an item always computes
// the same thing from the same inputs.
type task interface {
	// phases is the number of phases.
	phases() int
	// enter brings a slot to a phase and returns how many items that has. A slot is a
	// number below the task's threads, which one goroutine has.
	enter(phase, slot int) (items int)
	// do carries out an item of the phase that the slot is in, numbered from 0. Items
	// that follow each other use the same memory: they go to one goroutine where that is
	// possible.
	do(item, slot int)
}

// crew is one task under way. A phase's items are cut into as many shares as there are
// slots, each of items that follow each other: whoever has the slot does that share,
// and then helps with the others', so that a helper who is late or never comes holds
// nobody up. Nobody waits but for items that somebody has begun.
type crew struct {
	task     task
	progress func(done, total int64)
	ctx      context.Context // nil if it never ends
	total    int64           // items of all phases; counted for progress alone
	shares   []share
	helpers  []*helper // helpers[i] has slot i+1, once it comes
	trace    *trace    // nil outside of tests

	// Items are numbered on from phase to phase and from task to task, so that no
	// counter that another core has written last must be set back.
	first, end int64 // the task's first number, and the next task's once this is done

	// What all write is kept on cache lines of its own.
	_          [cacheLine]byte
	done       atomic.Int64 // the items that are done, those of a share counted together
	_          [cacheLine]byte
	came, left atomic.Int64 // helpers
	_          [cacheLine]byte
	stop       atomic.Bool // leave after the item in hand
}

// share is how far one share of the items has got: the number of its item that is next.
type share struct {
	next atomic.Int64
	_    [2*cacheLine - 8]byte // lines are fetched in pairs
}

// execute does the task with up to threads goroutines, the caller being one, and
// returns when nothing of it runs any more. progress, if any, is called from this
// goroutine with the items done and their total. When ctx ends, execute leaves what is
// undone and returns its error.
func (c *crew) execute(ctx context.Context, t task, threads int, progress func(done, total int64)) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if threads == 1 && progress == nil && c.trace == nil {
		return alone(ctx, t)
	}
	c.task, c.progress = t, progress
	if ctx.Done() != nil {
		c.ctx = ctx
	}
	c.begin(threads)
	defer c.dismiss() // also if progress panics
	c.helpers = recruit(c.helpers, threads-1)
	for i, h := range c.helpers {
		h.slot = i + 1
		h.job.Store(c)
	}
	callUp(c.helpers, 0)
	end := c.work(0)
	if c.stop.Load() {
		return ctx.Err()
	}
	c.end = end
	if progress != nil {
		progress(c.total, c.total) // others may have done the last items, or all of them
	}
	return nil
}

// alone is execute without a crew: it costs nothing.
func alone(ctx context.Context, t task) error {
	ends := ctx.Done() != nil
	for phase := range t.phases() {
		for item := range t.enter(phase, 0) {
			t.do(item, 0)
			if ends && ctx.Err() != nil {
				return ctx.Err()
			}
		}
	}
	return nil
}

// begin readies the counters.
func (c *crew) begin(threads int) {
	if threads > cap(c.shares) {
		c.shares = make([]share, threads)
	}
	c.shares, c.helpers, c.end = c.shares[:threads], c.helpers[:0], c.first
	c.came.Store(0)
	c.left.Store(0)
	c.stop.Store(false)
	if c.total = 0; c.progress != nil {
		for phase := range c.task.phases() {
			c.total += int64(c.task.enter(phase, 0))
		}
	}
}

// work goes through the phases and does what there is to do for a slot. Slot 0 is the
// caller's. It returns the number after the last item's.
func (c *crew) work(slot int) (end int64) {
	first := c.first // the number of the phase's first item
	for phase := range c.task.phases() {
		n := c.task.enter(phase, slot)
		if end := first + int64(n); c.done.Load() < end {
			for i := range c.shares {
				if c.done.Load() >= end || !c.help(first, n, (slot+i)%len(c.shares), slot) {
					break
				}
			}
			c.await(end, slot)
		}
		if c.stop.Load() {
			break
		}
		first += int64(n)
	}
	return first
}

// help does what is left of share s of the n items of a phase, or reports false if all
// is to stop.
func (c *crew) help(first int64, n, s, slot int) bool {
	low, high := part(n, s, len(c.shares))
	var done int64
	for {
		item, ok := c.shares[s].draw(first+int64(low), first+int64(high))
		if !ok {
			break
		}
		c.trace.begin(slot)
		c.task.do(int(item-first), slot)
		c.trace.end(slot, s)
		done++
		if slot == 0 {
			c.attend(done)
		}
		if c.stop.Load() {
			return false
		}
	}
	if done > 0 {
		c.done.Add(done)
	}
	return true
}

// draw takes the next item of a share that reaches from low to high in this phase.
func (s *share) draw(low, high int64) (item int64, ok bool) {
	for {
		next := s.next.Load()
		item = max(next, low) // the first to come in a phase finds the count of the one before
		if item >= high {
			return 0, false
		}
		if s.next.CompareAndSwap(next, item+1) {
			return item, true
		}
	}
}

// attend is what the caller does between items, of which that many are not counted as
// done yet.
func (c *crew) attend(uncounted int64) {
	if c.ctx != nil && c.ctx.Err() != nil {
		c.stop.Store(true)
	}
	if c.progress != nil {
		c.progress(c.done.Load()-c.first+uncounted, c.total)
	}
}

// await returns when n items are done, or all is to stop.
func (c *crew) await(n int64, slot int) {
	if c.done.Load() >= n {
		return
	}
	c.trace.begin(slot)
	for w := (wait{}); c.done.Load() < n && !c.stop.Load(); w.pause() {
	}
	c.trace.waited(slot)
}

// dismiss takes the task back from helpers that have not begun, and returns when the
// others have left.
func (c *crew) dismiss() {
	undone := c.end == c.first
	if undone {
		c.stop.Store(true)
	}
	came := c.came.Load()
	if came < int64(len(c.helpers)) {
		came = 0
		for _, h := range c.helpers {
			if !h.job.CompareAndSwap(c, nil) {
				came++
			}
		}
	}
	for w := (wait{}); c.left.Load() < came; w.pause() {
	}
	release(c.helpers)
	if c.first = c.end; undone {
		c.first = 0
		c.done.Store(0)
		for i := range c.shares[:cap(c.shares)] {
			c.shares[:cap(c.shares)][i].next.Store(0)
		}
	}
	c.task, c.progress, c.ctx, c.trace = nil, nil, nil, nil
}

// wait is a wait for another goroutine, which is expected to take microseconds: it
// spins. After some tens of them it lets others have the processor now and then: the
// scheduler's lock is not to be fought for by all who wait, and [runtime.Gosched] wakes
// another thread where there is an idle processor.
type wait struct{ turns int }

func (w *wait) pause() {
	const patience = 64
	w.turns++
	asm.Pause(min(w.turns, pauses))
	if w.turns%patience == 0 {
		yieldThread()
		runtime.Gosched()
	}
}

// Share calls f(0) … f(n-1) from up to [Workers](threads) goroutines, the caller's
// included. When ctx ends, the rest is left out and its error returned.
func Share(ctx context.Context, n, threads int, f func(i int)) error {
	var c crew
	return c.execute(ctx, &calls{n, f}, Workers(threads), nil)
}

type calls struct {
	n int
	f func(i int)
}

func (c *calls) phases() int        { return 1 }
func (c *calls) enter(_, _ int) int { return c.n }
func (c *calls) do(item, _ int)     { c.f(item) }

// Workers is the number of goroutines that compute for a caller who allows that
// many: 0 or less is GOMAXPROCS, which is also the most.
func Workers(asked int) int {
	n := runtime.GOMAXPROCS(0)
	if asked > 0 {
		n = min(n, asked)
	}
	return n
}
