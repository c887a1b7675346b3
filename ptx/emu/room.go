package emu

import (
	"fmt"
	"math"
	"sync/atomic"
)

// room asks [MemoryOptions].Room for memory of the host.
type room struct {
	ask     func(bytes int, name string) error
	unasked atomic.Int64
}

// Room is asked for each allocation from askedAlone bytes on, and for smaller ones together when
// they reach askedTogether bytes: asking can take longer than allocating.
const (
	askedAlone    = 64 << 10
	askedTogether = 64 << 20
)

// take asks for bytes, which can be more than an int holds. The error wraps ErrOutOfMemory.
func (r *room) take(bytes float64, name string) error {
	if r.ask == nil {
		return nil
	}
	n := int(min(bytes, math.MaxInt/2))
	if n < askedAlone {
		if n = int(r.unasked.Add(int64(n))); n < askedTogether {
			return nil
		}
		r.unasked.Add(-int64(n))
	}
	if err := r.ask(n, name); err != nil {
		return fmt.Errorf("%w: %w", ErrOutOfMemory, err)
	}
	return nil
}
