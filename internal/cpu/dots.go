package cpu

import (
	"tilework/dtype"
	"tilework/internal/cpu/asm"
	"tilework/internal/gemm"
)

// dots is a product that takes as long as reading a large matrix takes whose rows lie
// along k: B transposed where M is small, A where N is. Each element of C is the product
// of two rows.
type dots[T scalar] struct {
	*microKernel[T]
	l, s, k     int        // rows of x and of y
	x           operand[T] // along k
	small       operand[T] // y as it lies,
	layout      gemm.Layout
	y           strided[T] // and along k
	c           target[T]  // element (i, j) is x's row i times y's row j
	alpha, beta T
	rows        int // rows of x for a call
	lc          int // rows of x for an item
	kc          int // steps of k in one call
	threads     int
	scratch     []T // for each slot: the sums of four rows, and of a part of K, and more; see room
}

const (
	dotsRows            = 16       // the most rows of y
	dotsCols            = 8        // the same where they are columns of B: tiles read A where it lies as well
	dotsRowBytes        = 4 << 10  // bytes of a row in one call: four of x's and of y's stay in L1 until y is through
	dotsRowBytesOnePass = 64 << 10 // the same where one call computes all of C
	copyCostLanes       = 24       // lanes of multiply-adds in the time that copying an element along K takes
	dotsDepth           = 256      // of K at least: fewer steps cost less than laying out the product
)

// goesByDots reports whether p is computed fastest as dot products of rows of op(A) and columns of
// op(B), and whether the rows of op(A) are x. That is so where C is small and both are stored along
// K, and where C or its transpose has too few columns to fill the lanes of a tile.
func (mk *microKernel[T]) usesDots(p *gemm.Problem) (yes, xIsA bool) {
	if len(mk.Dot) == 0 || !p.ReadsAB() || p.BlockScaled() || p.A.Type != p.Accum() && mk.wideners.of(p.A.Type).Lay == nil {
		return false, false
	}
	switch a, b := alongK(p.A), alongK(p.B.T()); {
	case a && b:
		return mk.hasLongK(p) || mk.wastesLanes(max(p.M, p.N), min(p.M, p.N), p.K), p.M >= p.N
	case a:
		return mk.wastesLanes(p.M, p.N, p.K), true
	case b:
		return mk.wastesLanes(p.N, p.M, p.K), false
	}
	return false, false
}

// idles reports whether the lanes that a tile of few columns leaves idle in many rows cost more
// time than a copy of the columns in which they run along K.
func (mk *microKernel[T]) wastesLanes(many, few, k int) bool {
	return few < mk.lanes() && k >= dotsDepth && many*(mk.lanes()-few) > copyCostLanes*few
}

// alongK reports whether the rows of l, a layout of op(A), are stored along K.
func alongK(l gemm.Layout) bool { return !asRow(l).Trans }

// asRow returns the layout of a transposed row for a dense column, which has the same elements in
// the same memory. It returns any other layout unchanged.
func asRow(l gemm.Layout) gemm.Layout {
	if l.Cols == 1 && l.LD == 1 {
		l.Rows, l.Cols, l.LD, l.Trans = 1, l.Rows, l.Rows, !l.Trans
	}
	return l
}

// isLong reports whether p has a small C and a long K. Both operands are stored along K, so that
// tiles would have to transpose one of them.
func (mk *microKernel[T]) hasLongK(p *gemm.Problem) bool {
	few, many, most := min(p.M, p.N), max(p.M, p.N), dotsRows
	if mk.Group > 1 {
		most = axpyRowsGrouped
	}
	return few <= most && many <= 4*dotsRows && p.K >= max(dotsDepth, 16*many)
}

// prepare lays out the product for a d of zeros.
func (d *dots[T]) prepare(pl *Plan, mk *microKernel[T], b *gemm.Buffers, xIsA bool) {
	p := pl.Problem
	size := dtype.Of[T]().Size()
	d.microKernel, d.k, d.alpha, d.threads = mk, p.K, alphaOf[T](p), pl.Threads
	x, ofX, ofY := asRow(p.A), b.A, b.B
	d.l, d.s, d.layout = p.M, p.N, asRow(p.B.T())
	if !xIsA {
		x, ofX, ofY = asRow(p.B.T()), b.B, b.A
		d.l, d.s, d.layout = p.N, p.M, asRow(p.A)
	}
	mk.describeStored(&d.x, x, ofX)
	mk.describeStored(&d.small, d.layout, ofY)
	d.c.prepare(pl, mk, b, !xIsA)
	d.beta = d.c.beta(T(p.Beta))
	d.rows = min(d.l, asm.DotRows)
	d.kc = dotsRowBytes / size
	if d.s <= mk.maxDotCols() && d.x.widen == nil {
		d.kc = min(d.k, dotsRowBytesOnePass/size)
	}
	d.lc = equalParts(d.l, max(64, d.l/(8*d.threads)), asm.DotRows)
}

func (d *dots[T]) reset() { *d = dots[T]{} }

// slotSums is how many sums a slot has memory for.
const workerSums = 2 * dotsRows * asm.DotRows

// room returns the size of a slot's memory: for sums, and for widened rows of x or the
// elements that a tile is finished with, whichever are more.
func (d *dots[T]) scratchSize() int {
	spare := 0
	if d.c.scratch {
		spare = epilogueCols
	}
	if d.x.widen != nil {
		spare = max(spare, asm.DotRows*d.kc)
	}
	return workerSums + spare
}

// bytes is what the slots take, and y where it must be copied to lie along k.
func (d *dots[T]) bytes() int {
	n := widenedBytes[T](d.layout) + d.c.bytes(d.l, d.s) + allocBytes[T](d.threads*d.scratchSize())
	if d.layout.Trans {
		n += allocBytes[T](d.s * d.k)
	}
	return n
}

func (d *dots[T]) bind(m *workspace, _ []phaseState) {
	d.y = d.small.widenAll(d.layout, m)
	d.c.bind(m, d.l, d.s)
	d.scratch = alloc[T](m, d.threads*d.scratchSize())
	if d.layout.Trans {
		d.y = d.y.copyRows(d.s, d.k, alloc[T](m, d.s*d.k))
	}
}

// packed is the matrix of rows×cols, copied so that rows lie along memory.
func (s strided[T]) copyRows(rows, cols int, to []T) strided[T] {
	for i := range rows {
		row, at := to[i*cols:][:cols], i*s.rs
		for j := range row {
			row[j] = s.data[at]
			at += s.cs
		}
	}
	return strided[T]{to, cols, 1}
}

func (d *dots[T]) phases() int                { return 1 }
func (d *dots[T]) enter(_, _ int) (tasks int) { return ceilDiv(d.l, d.lc) }

func (d *dots[T]) do(task, worker int) {
	memory := d.scratch[worker*d.scratchSize():][:d.scratchSize()]
	first := task * d.lc
	rows := min(d.lc, d.l-first)
	for i := first; i < first+rows; i += asm.DotRows {
		d.four(min(i, d.l-d.rows), i, memory[:workerSums], memory[workerSums:])
	}
	d.c.finish(first, 0, rows, d.s, memory[workerSums:])
}

// four computes the elements of C for up to DotRows rows of x from row i on. Rows before from
// belong to the previous call, which the last call overlaps. The first half of memory holds the sums
// over the first kc steps of K. Each further kc steps are summed in the second half and added. piece
// is memory for rows of x that are widened.
func (d *dots[T]) four(i, from int, memory, piece []T) {
	sums, part, dot := memory[:workerSums/2], memory[workerSums/2:], d.Dot[d.rows-1]
	for p := 0; p < d.k; p += d.kc {
		k := min(d.kc, d.k-p)
		x, ldx := d.x.readBlock(i, p, d.rows, k, piece)
		to := part
		if p == 0 {
			to = sums
		}
		for j := 0; j < d.s; j += len(dot) {
			dot[min(len(dot), d.s-j)-1](k, x, ldx, d.y.at(j, p), d.y.rs, &to[j*asm.DotRows])
		}
		if p > 0 {
			for x := range sums[:d.s*asm.DotRows] {
				sums[x] += part[x]
			}
		}
	}
	for j := range d.s {
		d.c.t().add(j, from, sums[j*asm.DotRows+from-i:][:min(d.rows-(from-i), d.l-from)], d.alpha, d.beta)
	}
}

// dotted returns the largest number of rows of y that a dot kernel reads at once.
func (mk *microKernel[T]) maxDotCols() int {
	if len(mk.Dot) == 0 {
		return 0
	}
	return len(mk.Dot[asm.DotRows-1])
}

// lanes returns the number of elements in a vector: tiles are two vectors wide.
func (mk *microKernel[T]) lanes() int { return mk.NR / 2 }
