// Package testkit contains helpers for the tests of several packages: limits on the time and memory
// that an input may take, a context that is cancelled at any point of a call, and comparisons of
// pages of the documentation with computed text.
package testkit

import (
	"context"
	"sync"
	"time"
)

// CountdownContext is a context that is cancelled at the n-th call of its methods Err or Done. It
// is therefore cancelled at a reproducible place in the code under test.
type CountdownContext struct {
	mu    sync.Mutex
	left  int // number of calls until the context is cancelled
	ended chan struct{}
}

// NewCountdown returns a context that is cancelled at the n-th call, for n of 1 or more.
func NewCountdown(n int) *CountdownContext {
	return &CountdownContext{left: n, ended: make(chan struct{})}
}

// count counts a call, and reports whether the context is cancelled.
func (e *CountdownContext) count() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.left--; e.left == 0 {
		close(e.ended)
	}
	return e.left <= 0
}

// Ended reports whether the context is cancelled. It does not count as a call.
func (e *CountdownContext) Ended() bool {
	select {
	case <-e.ended:
		return true
	default:
		return false
	}
}

// Done implements [context.Context].
func (e *CountdownContext) Done() <-chan struct{} { e.count(); return e.ended }

// Err implements [context.Context].
func (e *CountdownContext) Err() error {
	if e.count() {
		return context.Canceled
	}
	return nil
}

// Deadline implements [context.Context]. There is no deadline.
func (e *CountdownContext) Deadline() (time.Time, bool) { return time.Time{}, false }

// Value implements [context.Context]. There are no values.
func (e *CountdownContext) Value(any) any { return nil }

// CancelEverywhere runs f repeatedly, with contexts that are cancelled at the first call, the
// second call and so on. After the n-th, the steps grow by a third each time. It stops after the
// first run in which the context is not cancelled.
func CancelEverywhere(n int, f func(ctx *CountdownContext)) {
	for at := 1; ; at++ {
		if at > n {
			at += at / 3
		}
		ctx := NewCountdown(at)
		f(ctx)
		if !ctx.Ended() {
			ctx.cancel() // for goroutines that still wait for it
			return
		}
	}
}

// cancel cancels the context.
func (e *CountdownContext) cancel() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.left > 0 {
		e.left = 0
		close(e.ended)
	}
}
