package program

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"

	"tilework/internal/device"
	"tilework/internal/device/timeline"
	"tilework/internal/relay"
)

// Queue executes the ops of a lane.
type Queue struct {
	Stream   device.Stream      // nil if each op has ended when the call for it returns
	Timeline *timeline.Timeline // records the work, unless it is nil
}

// Runner runs a program, again and again if need be. It is not safe for concurrent use.
type Runner struct {
	*Program
	Queues []Queue // by lane
	// Leaves makes Run leave the work in the queues to the caller after an error. Otherwise Run lets
	// the queues wait for all of it, so that the memory that it uses can be freed.
	Leaves bool
	do     func(context.Context, *Op) error

	ctx     context.Context // of the run
	cancel  func()          // ends it; nil unless other workers may be in calls that wait
	waits   bool            // whether some calls wait for the device
	workers []worker
	busy    sync.WaitGroup
	panics  relay.Panics
	stopped atomic.Bool
	events  []device.Event // at the ends of ops, until the end of the run

	failing sync.Once
	failed  *Op // the first, with its error
	err     error
}

// worker enqueues the ops of some lanes.
type worker struct {
	run      func()
	mu       sync.Mutex
	progress sync.Cond
	enqueued int // ops of the program up to the last one that this worker has enqueued
}

// Runner returns a runner with a queue for each lane. do enqueues the work of an op other than a
// Join in the queue of its lane. The goroutines of several workers call it at the same time.
func (p *Program) Runner(queues []Queue, do func(context.Context, *Op) error) *Runner {
	n := 1
	for _, l := range p.Lanes {
		n = max(n, l.Worker+1)
	}
	r := &Runner{Program: p, Queues: queues, do: do, workers: make([]worker, n), events: make([]device.Event, len(p.Ops))}
	waiting := []Kind{Load, Exchange, Store}
	r.waits = slices.ContainsFunc(p.Ops, func(op Op) bool { return slices.Contains(waiting, op.Kind) })
	for i := range r.workers {
		w := &r.workers[i]
		w.progress.L = &w.mu
		w.run = func() { r.work(i) }
	}
	return r
}

// Run enqueues the ops in the queues of their lanes. The first error ends the run and is returned
// with its op, or without one if ctx has ended.
func (r *Runner) Run(ctx context.Context) (failed *Op, err error) {
	r.ctx, r.failing, r.failed, r.err = ctx, sync.Once{}, nil, nil
	r.stopped.Store(false)
	ended := false
	defer func() { // also after a panic
		if !r.Leaves && (err != nil || !ended) {
			err = device.Join(err, r.settle(ctx))
		}
		op, e := r.free()
		if err == nil {
			failed = op
		}
		err = device.Join(err, e)
		r.ctx = nil
	}()
	r.runWorkers()
	ended = true
	if r.err != nil {
		return r.failed, r.err
	}
	return nil, ctx.Err()
}

// runWorkers runs all workers, the first on this goroutine.
func (r *Runner) runWorkers() {
	if len(r.workers) > 1 && r.waits {
		r.ctx, r.cancel = context.WithCancel(r.ctx)
		defer r.cancel()
	}
	for i := range r.workers {
		r.workers[i].enqueued = 0
	}
	r.busy.Add(len(r.workers))
	for i := range r.workers[1:] {
		go r.guard(&r.workers[1+i])
	}
	r.guard(&r.workers[0])
	r.busy.Wait()
	r.panics.Raise()
}

// guard runs a worker. A panic ends all workers.
func (r *Runner) guard(w *worker) {
	defer r.busy.Done()
	if !r.panics.Catch(w.run) {
		r.stop()
	}
}

// stop ends the work of all workers.
func (r *Runner) stop() {
	r.stopped.Store(true)
	if r.cancel != nil {
		r.cancel()
	}
	for i := range r.workers {
		w := &r.workers[i]
		w.mu.Lock()
		w.progress.Broadcast()
		w.mu.Unlock()
	}
}

// work enqueues the ops of a worker. An error ends the work of all.
func (r *Runner) work(worker int) {
	for i := range r.Ops {
		op := &r.Ops[i]
		if r.Lanes[op.Lane].Worker != worker {
			continue
		}
		if r.stopped.Load() {
			return
		}
		if err := r.enqueue(worker, i); err != nil {
			r.failing.Do(func() { r.failed, r.err = op, err })
			r.stop()
			return
		}
	}
}

// enqueue enqueues op i after the ops for which it waits. It does nothing if the run has ended.
func (r *Runner) enqueue(worker, i int) error {
	op := &r.Ops[i]
	q := r.Queues[op.Lane]
	for _, on := range op.After {
		if !r.await(worker, on) {
			return nil
		}
		if e := r.events[on]; e != nil {
			if err := q.Stream.Wait(e); err != nil {
				return err
			}
		}
	}
	if err := r.ctx.Err(); err != nil {
		return err
	}
	if kind, work := op.Kind.timed(); work {
		if err := q.Timeline.Do(q.Stream, kind, op.Bytes, func() error { return r.do(r.ctx, op) }); err != nil {
			return err
		}
	}
	if op.event && op.Kind != Store && q.Stream != nil { // a store has ended
		var err error
		if r.events[i], err = q.Stream.Record(); err != nil {
			return err
		}
	}
	if op.signal {
		w := &r.workers[worker]
		w.mu.Lock()
		w.enqueued = i + 1
		w.progress.Broadcast()
		w.mu.Unlock()
	}
	return nil
}

// await waits until another worker has enqueued an op, and reports whether the run goes on. No two
// workers wait for each other, because an op waits for earlier ones only.
func (r *Runner) await(worker, op int) bool {
	w := &r.workers[r.Lanes[r.Ops[op].Lane].Worker]
	if w == &r.workers[worker] {
		return true
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for w.enqueued <= op && !r.stopped.Load() {
		w.progress.Wait()
	}
	return w.enqueued > op
}

// settle makes all queues wait for all work that is enqueued, and waits for it until ctx ends, so
// that errors of this run do not fail the next one.
func (r *Runner) settle(ctx context.Context) error {
	var errs []error
	for _, q := range r.Queues {
		if q.Stream == nil {
			continue
		}
		e, err := q.Stream.Record()
		if err != nil {
			continue // the device is lost, and so is its work
		}
		for _, other := range r.Queues {
			if other.Stream != nil && other.Stream != q.Stream {
				errs = append(errs, other.Stream.Wait(e))
			}
		}
		errs = append(errs, e.Free())
	}
	for _, q := range r.Queues {
		if q.Stream != nil {
			_ = q.Stream.Sync(ctx) // its error has failed this run
		}
	}
	return device.Join(errs...)
}

// free frees the events. It returns the first op for which this fails.
func (r *Runner) free() (failed *Op, err error) {
	for i, e := range r.events {
		if e == nil {
			continue
		}
		r.events[i] = nil
		if e := e.Free(); e != nil {
			if err == nil {
				failed = &r.Ops[i]
			}
			err = device.Join(err, e)
		}
	}
	return failed, err
}
