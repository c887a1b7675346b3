package cpu

import (
	"tilework/dtype"
	"tilework/internal/cpu/asm"
	"tilework/internal/gemm"
)

// dots computes a product whose elements are dot products of rows of x and y, both stored along K.
// It suits products that take as long as reading one large matrix x: B transposed for small M, or A
// for small N.
type dots[T scalar] struct {
	*microKernel[T]
	l, s, k     int        // rows of x, rows of y, and K
	x           operand[T] // stored along K
	small       operand[T] // y as stored
	layout      gemm.Layout
	y           strided[T] // y along K
	c           target[T]  // element (i, j) is the dot product of rows i of x and j of y
	alpha, beta T
	rows        int // rows of x per call of a kernel
	lc          int // rows of x per task
	kc          int // steps of K per call of a kernel
	threads     int
	scratch     []T // for each worker; see scratchSize
}

const (
	dotsRows            = 16       // the maximum number of rows of y
	dotsRowBytes        = 4 << 10  // bytes of a row per call: four rows of x and of y stay in L1 while y is read
	dotsRowBytesOnePass = 64 << 10 // the same if one call computes all of C
	dotsMinK            = 24       // the minimum K: for fewer steps adding up the lanes takes most of the time
)

// alongK reports whether the rows of l, a layout of op(A), are stored along K.
func alongK(l gemm.Layout) bool { return !asRow(l).Trans }

// asRow returns the layout of a transposed row for a dense column. Both have the same elements in
// the same memory. It returns any other layout unchanged.
func asRow(l gemm.Layout) gemm.Layout {
	if l.Cols == 1 && l.LD == 1 {
		l.Rows, l.Cols, l.LD, l.Trans = 1, l.Rows, l.Rows, !l.Trans
	}
	return l
}

// prepare sets up the product. x is op(A) with swapAB, else op(B). d must be zero.
func (d *dots[T]) prepare(pl *Plan, mk *microKernel[T], b *gemm.Buffers) {
	p, xIsA := pl.Problem, pl.method.swapAB
	d.microKernel, d.k, d.alpha, d.threads = mk, p.K, alphaOf[T](p), pl.Threads
	x, ofX, ofY := asRow(p.Layouts[gemm.A]), b[gemm.A], b[gemm.B]
	d.l, d.s, d.layout = p.M, p.N, asRow(p.B().T())
	if !xIsA {
		x, ofX, ofY = asRow(p.B().T()), b[gemm.B], b[gemm.A]
		d.l, d.s, d.layout = p.N, p.M, asRow(p.Layouts[gemm.A])
	}
	mk.describeStored(&d.x, x, ofX)
	mk.describeStored(&d.small, d.layout, ofY)
	d.c.prepare(pl, mk, b, !xIsA)
	d.beta = d.c.betaForSums(T(real(p.Beta)))
	d.rows = min(d.l, asm.DotRows)
	d.kc = dtype.Of[T]().Elements(dotsRowBytes)
	if d.s <= mk.maxDotCols() && d.x.widen == nil {
		d.kc = min(d.k, dtype.Of[T]().Elements(dotsRowBytesOnePass))
	}
	d.lc = equalParts(d.l, max(64, d.l/(8*d.threads)), asm.DotRows)
}

func (d *dots[T]) reset() { *d = dots[T]{} }

// workerSums is the number of sums that a worker has memory for.
const workerSums = 2 * dotsRows * asm.DotRows

// scratchSize returns the elements of scratch memory per worker: sums, plus either widened rows of
// x or the columns of an epilogue, whichever are more.
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

// bytes returns the size of the workspace: the scratch memory of all workers, and a copy of y if y
// is not stored along K.
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

// copyRows copies the rows×cols matrix to the given memory, row by row, and returns the copy.
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
	if d.k <= d.kc && d.x.widen == nil && d.s <= d.maxDotCols() {
		d.computeTiles(first, first+rows, memory[:workerSums])
	} else {
		for i := first; i < first+rows; i += asm.DotRows {
			d.computeRows(min(i, d.l-d.rows), i, memory[:workerSums], memory[workerSums:])
		}
	}
	d.c.finish(first, 0, rows, d.s, memory[workerSums:])
}

// computeTiles computes the elements of C for rows first to end of x, if one call of a kernel
// computes those of DotRows rows. It stores the sums of several calls at a time.
func (d *dots[T]) computeTiles(first, end int, sums []T) {
	dot, y, tile := d.Dot[d.rows-1][d.s-1], d.y.at(0, 0), d.s*asm.DotRows
	for i := first; i < end; {
		tiles := min(len(sums)/tile, ceilDiv(end-i, asm.DotRows))
		for t := range tiles {
			at := min(i+t*asm.DotRows, d.l-d.rows)
			dot(d.k, &d.x.data[at*d.x.ld], d.x.ld, y, d.y.rs, &sums[t*tile])
		}
		for t := range tiles {
			from := i + t*asm.DotRows
			d.store(from, min(from, d.l-d.rows), sums[t*tile:])
		}
		i += tiles * asm.DotRows
	}
}

// computeRows computes the elements of C for up to DotRows rows of x from row i on. Rows before
// from belong to the previous call, which the last call overlaps. The first half of memory holds
// the sums over the first kc steps of K. Each further kc steps are summed in the second half and
// added. piece is memory for widened rows of x.
func (d *dots[T]) computeRows(i, from int, memory, piece []T) {
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
	d.store(from, i, sums)
}

// store stores α·sums + β·C for the rows of x from row i on that a kernel has summed. Rows before
// from belong to the previous call.
func (d *dots[T]) store(from, i int, sums []T) {
	skip := from - i
	n := min(d.rows-skip, d.l-from)
	at, beta := from*d.c.rs, d.beta
	for j := range d.s {
		to := at
		for _, v := range sums[j*asm.DotRows+skip:][:n] {
			v = T(d.alpha * v)
			if beta != 0 {
				v += T(beta * d.c.data[to])
			}
			d.c.data[to] = v
			to += d.c.rs
		}
		at += d.c.cs
	}
}

// maxDotCols returns the largest number of rows of y that a dot kernel reads at once.
func (mk *microKernel[T]) maxDotCols() int {
	if len(mk.Dot) == 0 {
		return 0
	}
	return len(mk.Dot[asm.DotRows-1])
}

// lanes returns the number of elements in a vector. Tiles are two vectors wide.
func (mk *microKernel[T]) lanes() int { return mk.NR / 2 }
