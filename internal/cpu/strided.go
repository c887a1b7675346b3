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

// asItLies describes a matrix as an operand that is read in pieces, along its rows in memory. o is
// of zeros.
func (mk *micro[T]) asItLies(o *operand[T], l gemm.Layout, b []byte) {
	o.describe(l, b, !l.Trans, 0, 1, mk.wide)
}

// besideBytes is the memory for all of a matrix beside it, where that must be widened.
func besideBytes[T scalar](l gemm.Layout) int {
	if l.Type == dtype.Of[T]() {
		return 0
	}
	return bytesFor[T](l.Rows * l.Cols)
}

// beside is all of the matrix of layout l: where it lies, or widened.
func (o *operand[T]) beside(l gemm.Layout, m *memory) strided[T] {
	if o.widen == nil {
		return stridedOf[T](l, o.raw)
	}
	s := strided[T]{take[T](m, l.Rows*l.Cols), l.Cols, 1}
	o.piece(0, 0, l.Rows, l.Cols, s.data)
	if l.Trans {
		return s.t()
	}
	return s
}

// piece is rows×cols elements as they stand in memory, in row i and column j there the
// first, and how far its rows are apart: where they lie, or widened to tmp.
func (o *operand[T]) piece(i, j, rows, cols int, tmp []T) (*T, int) {
	at := i*o.ld + j
	if o.widen == nil {
		return &o.data[at], o.ld
	}
	whole := cols &^ 7
	if o.form.Lay == nil {
		whole = 0
	}
	if whole > 0 {
		o.form.Lay(rows, whole, word(tmp), cols, o.bytes(at), o.ld*o.from.Size())
	}
	if whole < cols {
		for r := range rows {
			o.widen(tmp[r*cols+whole:(r+1)*cols], o.raw, at+r*o.ld+whole)
		}
	}
	return &tmp[0], cols
}

// target is C, or with flipped its transpose, and what is done to a part that is summed.
type target[T scalar] struct {
	strided[T]
	flipped bool
	sums    bool // it is memory beside a C of halves, which finish fills
	finish  finisher[T]
	tile    func(i, j, rows, cols int) // see product
}

// prepare readies a c of zeros for the C of a product, or with flipped for its transpose.
func (c *target[T]) prepare(pl *Plan, mk *micro[T], b *gemm.Buffers, flipped bool) {
	p := pl.Problem
	c.flipped, c.sums, c.tile = flipped, p.C.Type != dtype.Of[T](), pl.tile
	c.finish.prepare(p, b, mk)
	if c.sums {
		c.strided = strided[T]{nil, p.N, 1}
	} else {
		c.strided = stridedOf[T](p.C, b.C)
	}
	if flipped {
		c.strided = c.t()
	}
}

// bytes is what m×n sums take beside C, if that is where they are.
func (c *target[T]) bytes(m, n int) int {
	if !c.sums {
		return 0
	}
	return bytesFor[T](m * n)
}

func (c *target[T]) use(m *memory, rows, cols int) {
	if c.sums {
		c.data = take[T](m, rows*cols)
	}
}

// old is β, for what is added to sums: finish adds a C of halves.
func (c *target[T]) old(beta T) T {
	if c.sums {
		return 0
	}
	return beta
}

// done finishes rows×cols elements from (i, j) on, and tells of them. tmp is memory for
// [finishing] elements where C is of halves.
func (c *target[T]) done(i, j, rows, cols int, tmp []T) {
	s := c.strided
	if c.flipped {
		s, i, j, rows, cols = s.t(), j, i, cols, rows
	}
	if c.finish.needed {
		c.finish.tile(s.data[i*s.rs+j:], s.rs, i, j, rows, cols, tmp)
	}
	if c.tile != nil {
		c.tile(i, j, rows, cols)
	}
}
