// Package testkit is what the tests of several packages share: the limits of what an
// input may cost, and a context that ends at any point of a call.
package testkit

import (
	"context"
	"sync"
	"time"
)

// Ending is a context that is cancelled by being looked at: at the n-th call of Err or
// Done. So it ends exactly where the code under test asks, and the same place each time.
type Ending struct {
	mu    sync.Mutex
	left  int // looks until it ends
	ended chan struct{}
}

// EndingAt is a context that ends at the n-th look, from 1 on.
func EndingAt(n int) *Ending { return &Ending{left: n, ended: make(chan struct{})} }

// look counts a look, and reports whether the context has ended.
func (e *Ending) look() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.left--; e.left == 0 {
		close(e.ended)
	}
	return e.left <= 0
}

// Ended reports whether it has ended, without looking.
func (e *Ending) Ended() bool {
	select {
	case <-e.ended:
		return true
	default:
		return false
	}
}

// Done implements [context.Context].
func (e *Ending) Done() <-chan struct{} { e.look(); return e.ended }

// Err implements [context.Context].
func (e *Ending) Err() error {
	if e.look() {
		return context.Canceled
	}
	return nil
}

// Deadline implements [context.Context]: there is none.
func (e *Ending) Deadline() (time.Time, bool) { return time.Time{}, false }

// Value implements [context.Context]: there are none.
func (e *Ending) Value(any) any { return nil }

// EveryLook runs f again and again with a context that ends at another look each time:
// the first, the second and so on, from the n-th on only some, ever rarer, until f looks
// so rarely that its context does not end.
func EveryLook(n int, f func(ctx *Ending)) {
	for at := 1; ; at++ {
		if at > n {
			at += at / 3
		}
		ctx := EndingAt(at)
		f(ctx)
		if !ctx.Ended() {
			ctx.end() // for what waits for its end and nothing else
			return
		}
	}
}

// end ends it now.
func (e *Ending) end() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.left > 0 {
		e.left = 0
		close(e.ended)
	}
}
