package stream

import (
	"context"
	"sync/atomic"

	"tilework/internal/program"
)

// Work returns the amount of work of the plan: the number of multiply-adds, or of the elements of C
// if K is 0.
func (pl *Plan) Work() int64 { return work(pl.rows, pl.cols, program.First(pl.host.K)) }

func work(rows, cols, depth program.Span) int64 {
	return int64(rows.Len()) * int64(cols.Len()) * int64(max(depth.Len(), 1))
}

// counted returns a function for [exec.Plan.Counted] that passes the work of the step to finished,
// divided among the blocks.
func (s *step) counted(finished func(work int64)) func(ended, blocks int64) {
	all := float64(work(s.rows, s.cols, s.depth))
	return func(ended, blocks int64) {
		until := func(n int64) int64 { return int64(all * (float64(n) / float64(blocks))) }
		finished(until(ended) - until(ended-1))
	}
}

// RunReported calls run, which runs plans on emulated devices, and reports the finished and the
// total work of all plans: from time to time, and at the end unless run fails. It calls run on a
// goroutine of its own and report on that of the caller, and returns when both have ended.
func RunReported(ctx context.Context, plans []*Plan, report func(done, total int64),
	run func(context.Context) error) (err error) {
	var done atomic.Int64
	total, more := int64(0), make(chan struct{}, 1)
	for _, pl := range plans {
		total += pl.Work()
		pl.Finished = func(work int64) {
			done.Add(work)
			select {
			case more <- struct{}{}:
			default: // the next report includes this work
			}
		}
	}
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		err = run(ctx)
	}()
	defer func() { <-ended }() // also if report panics
	defer cancel()
	for last := int64(0); ; {
		select {
		case <-more:
			if now := done.Load(); now > last && now < total {
				report(now, total)
				last = now
			}
		case <-ended:
			if err == nil {
				report(total, total)
			}
			return err
		}
	}
}
