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
	*micro[T]
	l, s, k     int        // rows of x and of y
	x           operand[T] // along k
	small       operand[T] // y as it lies,
	layout      gemm.Layout
	y           strided[T] // and along k
	c           target[T]  // element (i, j) is x's row i times y's row j
	alpha, beta T
	lc          int // rows of x for an item
	kc          int // steps of k in one call
	threads     int
	memory      []T // for each slot: the sums of four rows, and of a part of K, and more; see room
}

const (
	dotsRows    = 16       // the most rows of y
	dotsColumns = 8        // the same where they are columns of B: tiles read A where it lies as well
	dotsLength  = 64 << 10 // bytes of a row of a small C's factors
	dotsReach   = 4 << 10  // bytes of a row in one call: four of x's and of y's stay in L1 until y is through
)

// isLong reports whether p is a small C of long rows times long rows, which tiles would have
// to turn for that: as long as the rows of four stay in L1 and L2.
func isLong(p *gemm.Problem) bool {
	few, many := min(p.M, p.N), max(p.M, p.N)
	return !p.A.Trans && p.B.Trans && few <= dotsRows && asm.DotRows <= many && many <= 4*dotsRows &&
		p.K >= 16*many && p.K*p.A.Type.Size() <= dotsLength
}

func newDots[T scalar](pl *Plan, mk *micro[T], b *gemm.Buffers, xIsA bool) dots[T] {
	p, threads := pl.Problem, pl.Threads
	d := dots[T]{
		micro: mk, k: p.K,
		x: mk.asItLies(p.A, b.A), small: mk.asItLies(p.B, b.B), layout: p.B.T(),
		c: newTarget(pl, mk, b, !xIsA),
		l: p.M, s: p.N,
		alpha: T(p.Alpha), threads: threads,
		kc: dotsReach / dtype.Of[T]().Size(),
	}
	d.beta = d.c.old(T(p.Beta))
	if !xIsA {
		d.x, d.small, d.layout, d.l, d.s = d.small, d.x, p.A, d.s, d.l
	}
	d.lc = equalParts(d.l, max(64, d.l/(8*threads)), asm.DotRows)
	return d
}

// slotSums is how many sums a slot has memory for.
const slotSums = 2 * dotsRows * asm.DotRows

// room is what a slot has memory for: sums, and rows of x that are widened, which is also
// enough to finish a C of halves with.
func (d *dots[T]) room() int {
	if d.x.widen == nil {
		return slotSums
	}
	return slotSums + asm.DotRows*d.kc
}

// bytes is what the slots take, and y where it must be copied to lie along k.
func (d *dots[T]) bytes() int {
	n := besideBytes[T](d.layout) + d.c.bytes(d.l, d.s) + bytesFor[T](d.threads*d.room())
	if d.layout.Trans {
		n += bytesFor[T](d.s * d.k)
	}
	return n
}

func (d *dots[T]) use(m *memory, _ []place) {
	d.y = d.small.beside(d.layout, m)
	d.c.use(m, d.l, d.s)
	d.memory = take[T](m, d.threads*d.room())
	if d.layout.Trans {
		d.y = d.y.packed(d.s, d.k, take[T](m, d.s*d.k))
	}
}

// packed is the matrix of rows×cols, copied so that rows lie along memory.
func (s strided[T]) packed(rows, cols int, to []T) strided[T] {
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
func (d *dots[T]) enter(_, _ int) (items int) { return ceilDiv(d.l, d.lc) }

func (d *dots[T]) do(item, slot int) {
	memory := d.memory[slot*d.room():][:d.room()]
	first := item * d.lc
	rows := min(d.lc, d.l-first)
	for i := first; i < first+rows; i += asm.DotRows {
		d.four(min(i, d.l-asm.DotRows), i, memory[:slotSums], memory[slotSums:])
	}
	d.c.done(first, 0, rows, d.s, memory[slotSums:])
}

// four computes the elements of C for the rows of x from i on. Those before from belong to
// the four before: the last ones overlap them. Sums of K's first part come to the first half
// of memory, those of the others to the second, to be added. piece is for rows of x that are
// widened.
func (d *dots[T]) four(i, from int, memory, piece []T) {
	sums, part := memory[:slotSums/2], memory[slotSums/2:]
	for p := 0; p < d.k; p += d.kc {
		k := min(d.kc, d.k-p)
		x, ldx := d.x.piece(i, p, asm.DotRows, k, piece)
		to := part
		if p == 0 {
			to = sums
		}
		for j := 0; j < d.s; j += len(d.Dot) {
			d.Dot[min(len(d.Dot), d.s-j)-1](k, x, ldx, d.y.at(j, p), d.y.rs, &to[j*asm.DotRows])
		}
		if p > 0 {
			for x := range sums[:d.s*asm.DotRows] {
				sums[x] += part[x]
			}
		}
	}
	for j := range d.s {
		d.c.t().add(j, from, sums[j*asm.DotRows+from-i:][:min(asm.DotRows-(from-i), d.l-from)], d.alpha, d.beta)
	}
}
