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
type job interface {
	// phases is the number of phases.
	phases() int
	// enter brings a slot to a phase and returns how many items that has. A slot is a
	// number below the task's threads, which one goroutine has.
	enter(phase, worker int) (tasks int)
	// do carries out an item of the phase that the slot is in, numbered from 0. Items
	// that follow each other use the same memory: they go to one goroutine where that is
	// possible.
	do(task, worker int)
}

// crew is one task under way. A phase's items are cut into as many shares as there are
// slots, each of items that follow each other: whoever has the slot does that share,
// and then helps with the others', so that a helper who is late or never comes holds
// nobody up. Nobody waits but for items that somebody has begun.
type executor struct {
	job      job
	progress func(done, total int64)
	ctx      context.Context // nil if it never ends
	total    int64           // items of all phases; counted for progress alone
	queues   []taskQueue
	workers  []*poolWorker // helpers[i] has slot i+1, once it comes
	trace    *trace        // nil outside of tests

	// Items are numbered on from phase to phase and from task to task, so that no
	// counter that another core has written last must be set back.
	first, end int64 // the task's first number, and the next task's once this is done

	// What all write is kept on cache lines of its own.
	_            [cacheLine]byte
	done         atomic.Int64 // the items that are done, those of a share counted together
	_            [cacheLine]byte
	joined, left atomic.Int64 // helpers
	_            [cacheLine]byte
	stop         atomic.Bool // leave after the item in hand
}

// share is how far one share of the items has got: the number of its item that is next.
type taskQueue struct {
	next atomic.Int64
	_    [2*cacheLine - 8]byte // lines are fetched in pairs
}

// execute does the task with up to threads goroutines, the caller being one, and
// returns when nothing of it runs any more. progress, if any, is called from this
// goroutine with the items done and their total. When ctx ends, execute leaves what is
// undone and returns its error.
func (c *executor) run(ctx context.Context, t job, threads int, progress func(done, total int64)) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if threads == 1 && progress == nil && c.trace == nil {
		return runSerial(ctx, t)
	}
	c.job, c.progress = t, progress
	if ctx.Done() != nil {
		c.ctx = ctx
	}
	c.start(threads)
	defer c.finish() // also if progress panics
	c.workers = acquireWorkers(c.workers, threads-1)
	for i, h := range c.workers {
		h.index = i + 1
		h.assigned.Store(c)
	}
	wakeChildren(c.workers, 0)
	end := c.runPhases(0)
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
func runSerial(ctx context.Context, t job) error {
	ends := ctx.Done() != nil
	for phase := range t.phases() {
		for task := range t.enter(phase, 0) {
			t.do(task, 0)
			if ends && ctx.Err() != nil {
				return ctx.Err()
			}
		}
	}
	return nil
}

// begin readies the counters.
func (c *executor) start(threads int) {
	if threads > cap(c.queues) {
		c.queues = make([]taskQueue, threads)
	}
	c.queues, c.workers, c.end = c.queues[:threads], c.workers[:0], c.first
	c.joined.Store(0)
	c.left.Store(0)
	c.stop.Store(false)
	if c.total = 0; c.progress != nil {
		for phase := range c.job.phases() {
			c.total += int64(c.job.enter(phase, 0))
		}
	}
}

// work goes through the phases and does what there is to do for a slot. Slot 0 is the
// caller's. It returns the number after the last item's.
func (c *executor) runPhases(worker int) (end int64) {
	first := c.first // the number of the phase's first item
	for phase := range c.job.phases() {
		n := c.job.enter(phase, worker)
		if end := first + int64(n); c.done.Load() < end {
			for i := range c.queues {
				if c.done.Load() >= end || !c.drain(first, n, (worker+i)%len(c.queues), worker) {
					break
				}
			}
			c.await(end, worker)
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
func (c *executor) drain(first int64, n, s, worker int) bool {
	low, high := part(n, s, len(c.queues))
	var done int64
	for {
		task, ok := c.queues[s].pop(first+int64(low), first+int64(high))
		if !ok {
			break
		}
		c.trace.begin(worker)
		c.job.do(int(task-first), worker)
		c.trace.end(worker, s)
		done++
		if worker == 0 {
			c.poll(done)
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
func (s *taskQueue) pop(low, high int64) (task int64, ok bool) {
	for {
		next := s.next.Load()
		task = max(next, low) // the first to come in a phase finds the count of the one before
		if task >= high {
			return 0, false
		}
		if s.next.CompareAndSwap(next, task+1) {
			return task, true
		}
	}
}

// attend is what the caller does between items, of which that many are not counted as
// done yet.
func (c *executor) poll(uncounted int64) {
	if c.ctx != nil && c.ctx.Err() != nil {
		c.stop.Store(true)
	}
	if c.progress != nil {
		c.progress(c.done.Load()-c.first+uncounted, c.total)
	}
}

// await returns when n items are done, or all is to stop.
func (c *executor) await(n int64, worker int) {
	if c.done.Load() >= n {
		return
	}
	c.trace.begin(worker)
	for w := (spinWait{}); c.done.Load() < n && !c.stop.Load(); w.pause() {
	}
	c.trace.waited(worker)
}

// dismiss takes the task back from helpers that have not begun, and returns when the
// others have left.
func (c *executor) finish() {
	undone := c.end == c.first
	if undone {
		c.stop.Store(true)
	}
	came := c.joined.Load()
	if came < int64(len(c.workers)) {
		came = 0
		for _, h := range c.workers {
			if !h.assigned.CompareAndSwap(c, nil) {
				came++
			}
		}
	}
	for w := (spinWait{}); c.left.Load() < came; w.pause() {
	}
	releaseWorkers(c.workers)
	if c.first = c.end; undone {
		c.first = 0
		c.done.Store(0)
		for i := range c.queues[:cap(c.queues)] {
			c.queues[:cap(c.queues)][i].next.Store(0)
		}
	}
	c.job, c.progress, c.ctx, c.trace = nil, nil, nil, nil
}

// wait is a wait for another goroutine, which is expected to take microseconds: it
// spins. After some tens of them it lets others have the processor now and then: the
// scheduler's lock is not to be fought for by all who wait, and [runtime.Gosched] wakes
// another thread where there is an idle processor.
type spinWait struct{ turns int }

func (w *spinWait) pause() {
	const patience = 64
	w.turns++
	asm.Pause(min(w.turns, spinPauses))
	if w.turns%patience == 0 {
		yieldThread()
		runtime.Gosched()
	}
}

// Share calls f(0) … f(n-1) from up to [Workers](threads) goroutines, the caller's
// included. When ctx ends, the rest is left out and its error returned.
func ParallelFor(ctx context.Context, n, threads int, f func(i int)) error {
	var c executor
	return c.run(ctx, &forLoop{n, f}, Workers(threads), nil)
}

type forLoop struct {
	n int
	f func(i int)
}

func (c *forLoop) phases() int        { return 1 }
func (c *forLoop) enter(_, _ int) int { return c.n }
func (c *forLoop) do(task, _ int)     { c.f(task) }

// Workers is the number of goroutines that compute for a caller who allows that
// many: 0 or less is GOMAXPROCS, which is also the most.
func Workers(asked int) int {
	n := runtime.GOMAXPROCS(0)
	if asked > 0 {
		n = min(n, asked)
	}
	return n
}
