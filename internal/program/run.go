package program

import (
	"context"
	"sync"

	"tilework/internal/device"
	"tilework/internal/device/timeline"
	"tilework/internal/relay"
)

// Queue executes the ops of a lane.
type Queue struct {
	Stream   device.Stream      // nil if each op has ended when the call for it returns
	Timeline *timeline.Timeline // records the work, unless it is nil
}

// Run enqueues the ops in the queues of their lanes. do enqueues the work of an op other than a
// Join in the queue of its lane. The goroutines of several workers call it at the same time.
//
// The first error ends the program and is returned with its op, or without one if ctx has ended.
// After an error the queues wait for all work of the program, so that the memory that it uses can
// be freed.
func (p *Program) Run(ctx context.Context, queues []Queue, do func(context.Context, *Op) error) (failed *Op,
	err error) {
	x := &execution{Program: p, queues: queues, do: do, events: make([]device.Event, len(p.Ops)),
		enqueued: make([]chan struct{}, len(p.Ops))}
	for i := range p.Ops {
		if p.Ops[i].signal {
			x.enqueued[i] = make(chan struct{})
		}
	}
	working, cancel := context.WithCancel(ctx)
	defer cancel()
	x.cancel = cancel
	ended := false
	defer func() { // also after a panic
		if err != nil || !ended {
			err = device.Join(err, x.settle(ctx))
		}
		op, e := x.free()
		if err == nil {
			failed = op
		}
		err = device.Join(err, e)
	}()
	x.workers(working)
	ended = true
	if x.err != nil {
		return x.failed, x.err
	}
	return nil, ctx.Err()
}

// execution is a run of a program.
type execution struct {
	*Program
	queues []Queue
	do     func(context.Context, *Op) error
	cancel func()

	events   []device.Event  // at the ends of ops, until the end of the run
	enqueued []chan struct{} // closed when the op is enqueued; nil if no other worker waits for it

	failing sync.Once
	failed  *Op // the first, with its error
	err     error
}

// workers runs all workers.
func (x *execution) workers(ctx context.Context) {
	n := 0
	for _, l := range x.Lanes {
		n = max(n, l.Worker+1)
	}
	if n == 1 {
		x.work(ctx, 0)
		return
	}
	all := relay.Group{Stop: x.cancel}
	for i := range n {
		all.Go(func() { x.work(ctx, i) })
	}
	all.Wait()
}

// work enqueues the ops of a worker. An error ends the work of all.
func (x *execution) work(ctx context.Context, worker int) {
	for i := range x.Ops {
		op := &x.Ops[i]
		if x.Lanes[op.Lane].Worker != worker {
			continue
		}
		if err := x.enqueue(ctx, i); err != nil {
			x.failing.Do(func() { x.failed, x.err = op, err })
			x.cancel()
			return
		}
	}
}

// enqueue enqueues op i after the ops for which it waits.
func (x *execution) enqueue(ctx context.Context, i int) error {
	op := &x.Ops[i]
	q := x.queues[op.Lane]
	for _, on := range op.After {
		if c := x.enqueued[on]; c != nil {
			select {
			case <-c:
			case <-ctx.Done():
			}
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		if e := x.events[on]; e != nil {
			if err := q.Stream.Wait(e); err != nil {
				return err
			}
		}
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := x.perform(ctx, op); err != nil {
		return err
	}
	if op.event && op.Kind != Store && q.Stream != nil { // a store has ended
		var err error
		if x.events[i], err = q.Stream.Record(); err != nil {
			return err
		}
	}
	if c := x.enqueued[i]; c != nil {
		close(c)
	}
	return nil
}

func (x *execution) perform(ctx context.Context, op *Op) error {
	kind, work := op.Kind.timed()
	if !work {
		return nil
	}
	q := x.queues[op.Lane]
	return q.Timeline.Do(q.Stream, kind, op.Bytes, func() error { return x.do(ctx, op) })
}

// settle makes all queues wait for all work that is enqueued, and waits for it until ctx ends, so
// that errors of this program do not fail the next one.
func (x *execution) settle(ctx context.Context) error {
	var errs []error
	for _, q := range x.queues {
		if q.Stream == nil {
			continue
		}
		e, err := q.Stream.Record()
		if err != nil {
			continue // the device is lost, and so is its work
		}
		for _, other := range x.queues {
			if other.Stream != nil && other.Stream != q.Stream {
				errs = append(errs, other.Stream.Wait(e))
			}
		}
		errs = append(errs, e.Free())
	}
	for _, q := range x.queues {
		if q.Stream != nil {
			_ = q.Stream.Sync(ctx) // its error has failed this program
		}
	}
	return device.Join(errs...)
}

// free frees the events. It returns the first op for which this fails.
func (x *execution) free() (failed *Op, err error) {
	for i, e := range x.events {
		if e == nil {
			continue
		}
		if e := e.Free(); e != nil {
			if err == nil {
				failed = &x.Ops[i]
			}
			err = device.Join(err, e)
		}
	}
	return failed, err
}
