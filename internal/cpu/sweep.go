package cpu

import (
	"math/bits"

	"tilework/dtype"
	"tilework/internal/gemm"
)

// sweep is a product that takes as long as reading B takes, because M is small, or as
// long as writing C takes, because K is. It goes along the rows of B and C with a few
// steps of k at a time, so that memory is gone through a line after the other, and what
// those steps have of A stays in registers. Tiles of C, down a narrow piece of many rows
// of B, would touch another page with each step.
//
// A product with few columns is the transpose of one with few rows. B is then the
// transpose of A, and C's rows, whose elements are not neighbours, are summed beside it.
type sweep[T scalar] struct {
	*micro[T]
	m, n, k     int
	a           strided[T]
	b           []T
	ldb         int
	alpha, beta T
	c           target[T]
	mc, nc      int // an item's part of C
	threads     int
	beside      []T // for each slot, sums whose places in C are not neighbours
}

const (
	sweepRows  = 16        // the most rows of C that B is read for
	sweepDepth = 8         // the steps of k between two visits of an element of C
	sweepReach = 256 << 10 // bytes of C, or of B where K is small, that an item goes over again and again: they stay in L2
	sweepSums  = 4096      // elements of C that are summed beside it
)

// sweeps reports whether p goes along the rows of B and C.
func sweeps(p *gemm.Problem) bool {
	return !p.B.Trans &&
		(p.K <= sweepDepth && p.M >= 64 && p.N >= 64 || isThin(p.M, p.N, p.K, sweepRows))
}

// sweepsFlipped reports whether p's transpose goes along the columns of A as rows.
func sweepsFlipped(p *gemm.Problem) bool {
	return p.A.Trans && isThin(p.N, p.M, p.K, sweepRows)
}

// isThin reports whether few rows of C, at most limit, stand against so much of the large
// operand that reading it takes the time.
func isThin(few, many, k, limit int) bool {
	return few <= limit && many >= 8*few && many >= 64 && k >= 32
}

func newSweep[T scalar](pl *Plan, mk *micro[T], b gemm.Buffers, flipped bool) sweep[T] {
	p, threads := &pl.Problem, pl.Threads
	d := sweep[T]{
		micro: mk, m: p.M, n: p.N, k: p.K,
		a: stridedOf[T](p.A, b.A), c: newTarget(pl, mk, b, flipped),
		b: dtype.View[T](b.B), ldb: p.B.LD,
		alpha: T(p.Alpha), beta: T(p.Beta), threads: threads,
	}
	if flipped {
		d.m, d.n = p.N, p.M
		d.a = stridedOf[T](p.B, b.B).t()
		d.b, d.ldb = dtype.View[T](b.A), p.A.LD
	}
	again := min(d.m, sweepRows) // for each column
	if d.k <= sweepDepth {
		again = d.k
	}
	d.mc, d.nc = min(d.m, sweepRows), equalParts(d.n, sweepReach/(again*dtype.Of[T]().Size()), d.NR)
	if d.c.cs != 1 {
		d.nc = equalParts(d.n, sweepSums/d.m, d.NR)
	}
	if threads > 1 {
		d.nc = equalParts(d.n, min(d.nc, max(d.n/(4*threads), 512)), d.NR)
	}
	return d
}

func (d *sweep[T]) phases() int                { return 1 }
func (d *sweep[T]) enter(_, _ int) (items int) { return ceilDiv(d.m, d.mc) * ceilDiv(d.n, d.nc) }

func (d *sweep[T]) bytes() int {
	if d.c.cs == 1 {
		return 0
	}
	return bytesFor[T](d.threads * sweepSums)
}

func (d *sweep[T]) use(m *memory, _ []place) {
	if d.c.cs != 1 {
		d.beside = take[T](m, d.threads*sweepSums)
	}
}

func (d *sweep[T]) do(item, slot int) {
	down := ceilDiv(d.m, d.mc)
	i0, j0 := item%down*d.mc, item/down*d.nc
	rows, cols := min(d.mc, d.m-i0), min(d.nc, d.n-j0)
	if d.c.cs == 1 {
		d.sum(i0, j0, rows, cols, d.c.data[i0*d.c.rs+j0:], d.c.rs, d.alpha, d.beta)
	} else {
		sums := d.beside[slot*sweepSums:][:sweepSums]
		d.sum(i0, j0, rows, cols, sums, cols, 1, 0)
		for i := range rows {
			d.c.add(i0+i, j0, sums[i*cols:][:cols], d.alpha, d.beta)
		}
	}
	d.c.done(i0, j0, rows, cols)
}

// sum adds the products of rows of A and columns of B to c.
func (d *sweep[T]) sum(i0, j0, rows, cols int, c []T, ldc int, alpha, beta T) {
	for p0 := 0; p0 < d.k; p0 += sweepDepth {
		depth := min(sweepDepth, d.k-p0)
		for i := 0; i < rows; {
			x := min(bits.Len(uint(rows-i)), len(d.Update)) - 1
			beta := beta
			for p := p0; p < p0+depth; {
				y := min(bits.Len(uint(p0+depth-p)), len(d.Update[x])) - 1
				d.Update[x][y](d.a.at(i0+i, p), d.a.rs, d.a.cs, &d.b[p*d.ldb+j0], d.ldb,
					&c[i*ldc], ldc, cols, alpha, beta)
				beta = 1
				p += 1 << y
			}
			i += 1 << x
		}
		beta = 1
	}
}
