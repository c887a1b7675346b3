package cpu

import (
	"context"

	"tilework/dtype"
	"tilework/internal/cpu/asm"
	"tilework/internal/gemm"
	"tilework/internal/ints"
)

// dots computes a product whose elements are dot products of rows of x and y, both stored along K.
// It suits products that take as long as reading one large matrix x: B transposed for small M, or A
// for small N.
type dots[T scalar] struct {
	mk *microKernel[T]
	dotTiles[T]
	k       int
	widens  bool                 // whether x and y have another type than T, and are
	wide    []asm.WideningDot[T] // the kernels for 1, 2, … rows of y that widen x, if there are any
	read    operand[T]           // x
	small   operand[T]           // and y as stored
	layout  *gemm.Layout         // of y as stored
	yIsB    bool                 // whether y is op(B)ᵀ, else op(A)
	copies  bool                 // whether y is copied, because it is not stored along K
	partial partial[T]
	target  target[T]
	beta    T
	lc      int // rows of x per task
	kc      int // steps of K per call of a kernel
	threads int
	scratch []T // for each worker; see scratchSize
}

// dotTiles computes columns of C, or of its transpose, in tiles whose elements are dot products of
// a few rows of x and all rows of y.
type dotTiles[T scalar] struct {
	dot    []asm.Dot[T] // the kernels for 1, 2, … rows of y
	height int          // rows of x in a tile
	apart  int          // sums of a row of y
	l, s   int          // rows of x and of y
	x      []T          // stored along K
	ldx    int
	y      strided[T] // stored along K
	c      strided[T] // element (i, j) is the dot product of rows i of x and j of y
	alpha  T
}

const (
	dotsRows        = 16       // the maximum number of rows of y
	dotsRowBytes    = 4 << 10  // bytes of a row per call: four rows of x and of y stay in L1 while y is read
	dotsBytes       = 16 << 10 // bytes of all rows of y per call if one call reads all of them: they stay in L1
	dotsMinK        = 24       // the minimum K: for fewer steps adding up the lanes takes most of the time
	dotsTallVectors = 4        // vectors of a row of x that tall tiles read
)

// alongK reports whether the rows of l, a layout of op(A), are stored along K. That holds for a
// transposed A that is a single dense column.
func alongK(l gemm.Layout) bool { return !l.Trans || l.Cols == 1 && l.LD == 1 }

// prepare sets up the product. x is op(A) with swapAB, else op(B). d must be zero.
func (d *dots[T]) prepare(pl *Plan, mk *microKernel[T], b *gemm.Buffers) {
	p, xIsA := pl.Problem, pl.method.swapAB
	x, y := gemm.A, gemm.B
	l, s := p.M, p.N
	if !xIsA {
		x, y = y, x
		l, s = s, l
	}
	d.mk, d.k, d.threads = mk, p.K, pl.Threads
	d.layout, d.yIsB = &p.Layouts[y], xIsA
	d.copies = d.layout.Trans != d.yIsB && !(d.layout.Cols == 1 && d.layout.LD == 1)
	if d.widens = p.In() != p.Accum(); d.widens {
		mk.describeStored(&d.read, &p.Layouts[x], b[x])
		mk.describeStored(&d.small, d.layout, b[y])
	} else {
		d.x, d.ldx, d.y = dtype.View[T](b[x]), p.Layouts[x].LD, stridedOf[T](d.layout, b[y])
	}
	d.dotTiles.prepare(mk, l, s, !d.widens && mk.dotsTall(l, s, d.k))
	if d.wide = mk.wideningDots(p.In(), l, d.k); d.wide != nil {
		d.dot, d.height = mk.Dot[asm.DotRows-1], asm.DotRows
	}
	d.alpha = alphaOf[T](p)
	d.target.prepare(pl, mk, b, !xIsA)
	d.beta = d.target.betaForSums(T(real(p.Beta)))
	if d.kc = dtype.Of[T]().Elements(dotsRowBytes); d.inTiles() {
		d.kc = equalParts(d.k, dtype.Of[T]().Elements(dotsBytes/d.s), mk.NR)
		d.partial.deferAlpha(p, d.k <= d.kc, &d.alpha, &d.beta)
	}
	d.lc = equalParts(d.l, max(64, d.l/(8*d.threads)), d.height)
}

// prepare sets the numbers of rows of x and y, and the height of a tile.
func (t *dotTiles[T]) prepare(mk *microKernel[T], l, s int, tall bool) {
	t.l, t.s = l, s
	if tall {
		t.dot, t.height, t.apart = mk.Tall, mk.lanes(), mk.lanes()
		return
	}
	t.height, t.apart = equalParts(l, asm.DotRows, 1), asm.DotRows
	t.dot = mk.Dot[t.height-1]
}

// dotsWideVectors is the least number of vectors of a row of x for kernels that widen x and leave
// some steps of K to another call.
const dotsWideVectors = 16

// wideningDots returns the kernels that widen elements of type t for l rows of x and k steps of K,
// if there are any and they are faster.
func (mk *microKernel[T]) wideningDots(t dtype.Type, l, k int) []asm.WideningDot[T] {
	switch {
	case l < asm.DotRows, k < dotsWideVectors*mk.lanes() && k%mk.lanes() > 0:
		return nil
	case t == dtype.F16:
		return mk.DotF16
	case t == dtype.BF16:
		return mk.DotBF16
	}
	return nil
}

// dotsTall reports whether the dot products of l rows of x and s of y are computed in tiles of as
// many rows as a vector has lanes.
func (mk *microKernel[T]) dotsTall(l, s, k int) bool {
	lanes := mk.lanes()
	return len(mk.Tall) > 0 && s == 1 && lanes <= l && 1 < k && k <= dotsTallVectors*lanes
}

// inTiles reports whether one call of a kernel reads all rows of y. C then has the sums.
func (d *dots[T]) inTiles() bool { return !d.widens && d.s <= d.mk.maxDotCols() }

func (d *dots[T]) reset() { *d = dots[T]{} }

// workerSums is the number of sums that a worker has memory for.
const workerSums = 2 * dotsRows * asm.DotRows

// scratchSize returns the elements of scratch memory per worker: sums, plus either widened rows of
// x or the columns of an epilogue, whichever are more.
func (d *dots[T]) scratchSize() int {
	spare := 0
	if d.target.scratch {
		spare = epilogueCols
	}
	if d.widens {
		spare = max(spare, asm.DotRows*d.kc)
	}
	return workerSums + spare
}

// bytes returns the size of the workspace: the scratch memory of all workers, and a copy of y if y
// is not stored along K.
func (d *dots[T]) bytes() int {
	n := widenedBytes[T](d.layout) + d.target.bytes(d.l, d.s) + allocBytes[T](d.threads*d.scratchSize())
	if d.copies {
		n += allocBytes[T](d.s * d.k)
	}
	return n
}

func (d *dots[T]) bind(m *workspace, _ []phaseState) {
	if d.widens {
		d.y = d.small.widenAll(d.layout, m)
	}
	if d.yIsB {
		d.y = d.y.t()
	}
	d.target.bind(m, d.l, d.s)
	d.c = d.target.strided
	d.scratch = alloc[T](m, d.threads*d.scratchSize())
	if d.copies {
		d.y = d.y.copyRows(d.s, d.k, alloc[T](m, d.s*d.k))
	}
}

// copyRows copies the rows×cols matrix to the given memory, row by row, and returns the copy. It
// reads four rows at a time if they are adjacent in memory.
func (s strided[T]) copyRows(rows, cols int, to []T) strided[T] {
	const few = 4
	i := 0
	for ; s.rs == 1 && i+few <= rows; i += few {
		a, b := to[i*cols:][:cols], to[(i+1)*cols:][:cols]
		c, d := to[(i+2)*cols:][:cols], to[(i+3)*cols:][:cols]
		for j, at := 0, i; j < cols; j, at = j+1, at+s.cs {
			x := (*[few]T)(s.data[at:])
			a[j], b[j], c[j], d[j] = x[0], x[1], x[2], x[3]
		}
	}
	for ; i < rows; i++ {
		row, at := to[i*cols:][:cols], i*s.rs
		for j := range row {
			row[j] = s.data[at]
			at += s.cs
		}
	}
	return strided[T]{to, cols, 1}
}

// runSerial computes the product on the calling goroutine, without an [execution].
func (d *dots[T]) runSerial(ctx context.Context) error {
	m := getWorkspace(d.bytes())
	defer m.put()
	d.bind(&m, nil)
	return runPhase(ctx, d.enter(0, 0), d.do)
}

func (d *dots[T]) phases() int                { return 1 }
func (d *dots[T]) enter(_, _ int) (tasks int) { return ints.CeilDiv(d.l, d.lc) }

func (d *dots[T]) do(task, worker int) {
	memory := d.scratch[worker*d.scratchSize():][:d.scratchSize()]
	first := task * d.lc
	rows := min(d.lc, d.l-first)
	if d.inTiles() {
		beta := d.beta
		for p := 0; p < d.k; p += d.kc {
			d.compute(first, first+rows, p, min(d.kc, d.k-p), beta, memory[:workerSums])
			beta = 1
		}
		if d.partial.deferred {
			d.c.scale(first, rows, d.s, d.partial.factor)
		}
	} else {
		for i := first; i < first+rows; i += d.height {
			d.computeRows(min(i, d.l-d.height), i, memory[:workerSums], memory[workerSums:])
		}
	}
	d.target.finish(first, 0, rows, d.s, memory[workerSums:])
}

// compute adds k steps of K, from p on, to β times the elements of C for rows first to end of x.
func (t *dotTiles[T]) compute(first, end, p, k int, beta T, sums []T) {
	dot, y, tile := t.dot[t.s-1], t.y.at(0, p), t.s*t.apart
	i := first
	whole := (end - first) / t.height          // tiles
	dense := whole == 1 || t.height == t.apart // whether their sums follow each other
	if whole > 0 && dense && t.s == 1 && t.c.rs == 1 && t.alpha == 1 && beta == 0 {
		dot(whole, k, &t.x[i*t.ldx+p], t.ldx, y, t.y.rs, t.c.at(i, 0))
		i += whole * t.height
	}
	for i < end {
		tiles, at := min(len(sums)/tile, (end-i)/t.height), i
		if tiles == 0 { // the last rows, which overlap those of the previous call
			tiles, at = 1, min(i, t.l-t.height)
		}
		dot(tiles, k, &t.x[at*t.ldx+p], t.ldx, y, t.y.rs, &sums[0])
		for n := range tiles {
			t.store(max(at, i), min(at+t.height, end), at, beta, sums[n*tile:])
			at += t.height
		}
		i = at
	}
}

// store stores α·sums + β·C for rows first to end of x. The sums begin with those of row i.
func (t *dotTiles[T]) store(first, end, i int, beta T, sums []T) {
	at := first * t.c.rs
	if beta == 0 && first == i && end == i+asm.DotRows {
		t.storeFour(at, sums)
		return
	}
	for j := range t.s {
		to := at
		for _, v := range sums[j*t.apart:][first-i : end-i] {
			v = T(t.alpha * v)
			if beta != 0 {
				v += T(beta * t.c.data[to])
			}
			t.c.data[to] = v
			to += t.c.rs
		}
		at += t.c.cs
	}
}

// storeFour stores α·sums for DotRows rows of x, at C's element at and below.
func (t *dotTiles[T]) storeFour(at int, sums []T) {
	c, rs := t.c.data, t.c.rs
	for j := range t.s {
		v := (*[asm.DotRows]T)(sums[j*t.apart:])
		c[at], c[at+rs], c[at+2*rs], c[at+3*rs] = t.alpha*v[0], t.alpha*v[1], t.alpha*v[2], t.alpha*v[3]
		at += t.c.cs
	}
}

// computeRows computes the elements of C for up to DotRows rows of x from row i on. Rows before
// from belong to the previous call, which the last call overlaps. The first half of memory holds
// the sums over the first steps of K. The sums over further steps are in the second half and are
// added. piece is memory for widened rows of x.
func (d *dots[T]) computeRows(i, from int, memory, piece []T) {
	sums, part := memory[:workerSums/2], memory[workerSums/2:]
	for p := d.sum(i, 0, sums, piece); p < d.k; {
		p += d.sum(i, p, part, piece)
		for x := range sums[:d.s*asm.DotRows] {
			sums[x] += part[x]
		}
	}
	d.store(from, min(i+d.height, d.l), i, d.beta, sums)
}

// sum stores sums over some steps of K, from p on, and returns their number. Kernels that widen x
// leave steps that do not fill a vector to those that do not.
func (d *dots[T]) sum(i, p int, sums, piece []T) (k int) {
	k = min(d.kc, d.k-p)
	if d.wide != nil && k >= d.mk.lanes() {
		k -= k % d.mk.lanes()
		x := &d.read.halves()[i*d.read.ld+p]
		for j := 0; j < d.s; j += len(d.wide) {
			d.wide[min(len(d.wide), d.s-j)-1](1, k, x, d.read.ld, d.y.at(j, p), d.y.rs, &sums[j*asm.DotRows])
		}
		return k
	}
	x, ldx := (*T)(nil), d.ldx
	if d.widens {
		x, ldx = d.read.readBlock(i, p, d.height, k, piece)
	} else {
		x = &d.x[i*ldx+p]
	}
	for j := 0; j < d.s; j += len(d.dot) {
		d.dot[min(len(d.dot), d.s-j)-1](1, k, x, ldx, d.y.at(j, p), d.y.rs, &sums[j*asm.DotRows])
	}
	return k
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
