package team

import "context"

// transport moves parts of matrices between the ranks.
type transport interface {
	// exchange sends and receives parts, all at the same time, in the store's queue of copies. It
	// returns when they are at least enqueued there. All ranks call it equally often, and the
	// transfers between two ranks have the same order and sizes on both. The error is a *brokenError
	// or the context's, and the caller then aborts the transport.
	exchange(ctx context.Context, sends, receives []transfer) error
	// abort ends exchanges in flight. No other rank is waited for.
	abort()
	// close waits until the other ranks have received everything or ctx ends, and ends the transport.
	close(ctx context.Context) error
	// String describes the transport.
	String() string
}

// transfer is a part of a matrix that is sent to a rank, or received from it.
type transfer struct {
	rank int
	part part
}

// brokenError is the failure of an exchange. Another rank may be the reason.
type brokenError struct{ error }

func (e *brokenError) Unwrap() error { return e.error }
