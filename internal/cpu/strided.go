package cpu

import (
	"tilework/dtype"
	"tilework/internal/gemm"
)

// strided is a matrix whose element (i, j) is data[i·rs + j·cs].
type strided[T scalar] struct {
	data   []T
	rs, cs int
}

func stridedOf[T scalar](l gemm.Layout, b []byte) strided[T] {
	s := strided[T]{dtype.View[T](b), l.LD, 1}
	if l.Trans {
		return s.t()
	}
	return s
}

func (s strided[T]) t() strided[T]  { return strided[T]{s.data, s.cs, s.rs} }
func (s strided[T]) at(i, j int) *T { return &s.data[i*s.rs+j*s.cs] }

// add stores α·sums + β·s at row i from column j on; β = 0 leaves s unread.
func (s strided[T]) add(i, j int, sums []T, alpha, beta T) {
	at := i*s.rs + j*s.cs
	for _, v := range sums {
		v = T(alpha * v)
		if beta != 0 {
			v += T(beta * s.data[at])
		}
		s.data[at] = v
		at += s.cs
	}
}

// target is C, or with flipped its transpose, and what is done to a part that is summed.
type target[T scalar] struct {
	strided[T]
	flipped bool
	finish  finisher[T]
	tile    func(i, j, rows, cols int) // see product
}

func newTarget[T scalar](pl *Plan, mk *micro[T], b gemm.Buffers, flipped bool) target[T] {
	c := target[T]{strided: stridedOf[T](pl.Problem.C, b.C), flipped: flipped, tile: pl.tile}
	c.finish.prepare(&pl.Problem, b, mk)
	if flipped {
		c.strided = c.t()
	}
	return c
}

// done finishes rows×cols elements from (i, j) on, and tells of them.
func (c *target[T]) done(i, j, rows, cols int) {
	s := c.strided
	if c.flipped {
		s, i, j, rows, cols = s.t(), j, i, cols, rows
	}
	if c.finish.needed {
		c.finish.tile(s.data[i*s.rs+j:], s.rs, i, j, rows, cols, nil)
	}
	if c.tile != nil {
		c.tile(i, j, rows, cols)
	}
}
