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

func stridedOf[T scalar](l *gemm.Layout, b []byte) strided[T] {
	if l.Trans {
		return strided[T]{dtype.View[T](b), 1, l.LD}
	}
	return strided[T]{dtype.View[T](b), l.LD, 1}
}

func (s strided[T]) t() strided[T]  { return strided[T]{s.data, s.cs, s.rs} }
func (s strided[T]) at(i, j int) *T { return &s.data[i*s.rs+j*s.cs] }

// add stores α·sums + β·s at row i from column j on. β = 0 leaves s unread.
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

// scale multiplies rows×cols elements, from row i on, by alpha.
func (s strided[T]) scale(i, rows, cols int, alpha T) {
	for x := range rows {
		at := (i + x) * s.rs
		for range cols {
			s.data[at] *= alpha
			at += s.cs
		}
	}
}

// describeStored describes a matrix as an operand that is read in blocks along its stored rows. o
// must be zero.
func (mk *microKernel[T]) describeStored(o *operand[T], l *gemm.Layout, b []byte) {
	o.describe(*l, b, !l.Trans, 0, 1, mk.wideners)
}

// widenedBytes returns the memory for a widened copy of a matrix, or 0 if it needs no widening.
func widenedBytes[T scalar](l *gemm.Layout) int {
	if l.Type == dtype.Of[T]() {
		return 0
	}
	return allocBytes[T](l.Rows * l.Cols)
}

// widenAll returns the whole matrix of layout l, widened if its type is not T.
func (o *operand[T]) widenAll(l *gemm.Layout, m *workspace) strided[T] {
	if o.widen == nil {
		return stridedOf[T](l, o.raw)
	}
	s := strided[T]{alloc[T](m, l.Rows*l.Cols), l.Cols, 1}
	rows, cols := l.Rows, l.Cols
	if cols == 1 && l.LD == 1 {
		rows, cols = 1, rows // a dense column is read as a row
	}
	o.readBlock(0, 0, rows, cols, s.data)
	if l.Trans {
		return s.t()
	}
	return s
}

// readBlock returns a pointer to rows×cols stored elements from (i, j) on, and their row stride. It
// widens them to tmp if their type is not T.
func (o *operand[T]) readBlock(i, j, rows, cols int, tmp []T) (*T, int) {
	at := i*o.ld + j
	if o.widen == nil {
		return &o.data[at], o.ld
	}
	whole := cols &^ 7
	if o.packer.CopyRows == nil {
		whole = 0
	}
	if whole > 0 {
		o.packer.CopyRows(rows, whole, wordAddr(tmp), cols, o.addr(at), o.from.Bytes(o.ld))
	}
	if whole < cols {
		for r := range rows {
			o.widen(tmp[r*cols+whole:(r+1)*cols], o.raw, at+r*o.ld+whole)
		}
	}
	return &tmp[0], cols
}

// target is C or its transpose, with the steps that follow the summation.
type target[T scalar] struct {
	strided[T]
	columns    []func(n int, dst *T, ldd int, src *T, lds int) // see asm.Kernels
	transposed bool
	scratch    bool // whether strided is scratch memory, from which the epilogue converts to C
	epilogue   epilogue[T]
	onTile     func(i, j, rows, cols int) // see blocked
}

// prepare sets up the C of a product, or with swapped its transpose. c must be zero.
func (c *target[T]) prepare(pl *Plan, mk *microKernel[T], b *gemm.Buffers, swapped bool) {
	p := pl.Problem
	c.transposed, c.scratch, c.onTile, c.columns = swapped, p.Out() != dtype.Of[T](), pl.onTile, mk.Columns
	c.epilogue.prepare(p, b, mk)
	if c.rs, c.cs = p.N, 1; !c.scratch {
		c.strided = stridedOf[T](p.C(), b[gemm.C])
	}
	if swapped {
		c.rs, c.cs = c.cs, c.rs
	}
}

// bytes returns the memory for m×n sums if they go to scratch memory.
func (c *target[T]) bytes(m, n int) int {
	if !c.scratch {
		return 0
	}
	return allocBytes[T](m * n)
}

func (c *target[T]) bind(m *workspace, rows, cols int) {
	if c.scratch {
		c.data = alloc[T](m, rows*cols)
	}
}

// betaForSums returns the β with which sums are added to the target. It is 0 for scratch memory,
// where the epilogue adds β·C.
func (c *target[T]) betaForSums(beta T) T {
	if c.scratch {
		return 0
	}
	return beta
}

// addRows stores sums + β·C in rows×cols elements of C from (i, j) on. Rows of sums are ld elements
// apart.
func (c *target[T]) addRows(i, j, rows, cols int, sums []T, ld int, beta T) {
	whole := 0
	if beta == 0 && c.rs == 1 && len(c.columns) > 0 {
		whole = cols &^ 7
		for x := 0; x < rows && whole > 0; x += len(c.columns) {
			n := min(rows-x, len(c.columns))
			c.columns[n-1](whole, c.at(i+x, j), c.cs, &sums[x*ld], ld)
		}
	}
	if c.rs != 1 {
		for x := range rows {
			c.add(i+x, j+whole, sums[x*ld:][whole:cols], 1, beta)
		}
		return
	}
	for y := whole; y < cols; y++ { // along C's rows or columns in memory
		at := y
		for x, old := range c.data[i+(j+y)*c.cs:][:rows] {
			v := sums[at]
			if beta != 0 {
				v += T(beta * old)
			}
			c.data[i+x+(j+y)*c.cs] = v
			at += ld
		}
	}
}

// finish runs the epilogue on rows×cols elements from (i, j) on and reports them with onTile. tmp
// is memory for [epilogueCols] elements if C is narrower than the sums.
func (c *target[T]) finish(i, j, rows, cols int, tmp []T) {
	if !c.epilogue.needed && c.onTile == nil {
		return
	}
	s := c.strided
	if c.transposed {
		s, i, j, rows, cols = s.t(), j, i, cols, rows
	}
	if c.epilogue.needed {
		c.epilogue.apply(s.data[i*s.rs+j:], s.rs, i, j, rows, cols, tmp)
	}
	if c.onTile != nil {
		c.onTile(i, j, rows, cols)
	}
}
