package emu

import (
	"math"
	"sync/atomic"
)

// room requests memory of the host with [MemoryOptions].Room.
type room struct {
	request func(bytes int, name string) error
	small   atomic.Int64 // bytes of small allocations since the last request
}

// Each allocation of largeBytes or more is a request of its own. Smaller ones are requested
// together when they reach batchBytes, as a request can take longer than an allocation.
const (
	largeBytes = 64 << 10
	batchBytes = 64 << 20
)

// take requests bytes, which can be more than an int holds. The error wraps ErrOutOfMemory.
func (r *room) take(bytes float64, name string) error {
	if r.request == nil {
		return nil
	}
	n := int(min(bytes, math.MaxInt/2))
	if n < largeBytes {
		if n = int(r.small.Add(int64(n))); n < batchBytes {
			return nil
		}
		r.small.Add(-int64(n))
	}
	if err := r.request(n, name); err != nil {
		return &noRoom{err}
	}
	return nil
}

// noRoom is the error of a request, which also is ErrOutOfMemory.
type noRoom struct{ error }

func (e *noRoom) Unwrap() []error { return []error{e.error, ErrOutOfMemory} }
