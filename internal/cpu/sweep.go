package cpu

import (
	"math/bits"

	"tilework/dtype"
	"tilework/internal/gemm"
)

// sweep is a product that takes as long as reading B takes, because M is small. It goes
// along the rows of B and C with a few steps of k at a time, so that memory is gone
// through a line after the other, and what those steps have of A stays in registers.
// Tiles of C, down a narrow piece of many rows of B, would touch another page with each
// step.
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
	nc          int // columns of C for an item
	threads     int
	beside      []T // for each slot, sums whose places in C are not neighbours
}

const (
	sweepRows  = 16        // the most rows of C that B is read for
	sweepDepth = 8         // the steps of k between two visits of an element of C
	sweepReach = 256 << 10 // bytes of C that an item goes over again and again: they stay in L2
	sweepSums  = 4096      // elements of C that are summed beside it
)

// sweeps reports whether p goes along the rows of B and C.
func sweeps(p *gemm.Problem) bool {
	return !p.B.Trans && isThin(p.M, p.N, p.K, sweepRows)
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
	d.nc = equalParts(d.n, sweepReach/(d.m*dtype.Of[T]().Size()), d.NR)
	if d.c.cs != 1 {
		d.nc = equalParts(d.n, sweepSums/d.m, d.NR)
	}
	if threads > 1 {
		d.nc = equalParts(d.n, min(d.nc, max(d.n/(4*threads), 512)), d.NR)
	}
	return d
}

func (d *sweep[T]) phases() int                { return 1 }
func (d *sweep[T]) enter(_, _ int) (items int) { return ceilDiv(d.n, d.nc) }

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
	j0 := item * d.nc
	cols := min(d.nc, d.n-j0)
	if d.c.cs == 1 {
		d.sum(j0, cols, d.c.data[j0:], d.c.rs, d.alpha, d.beta)
	} else {
		sums := d.beside[slot*sweepSums:][:sweepSums]
		d.sum(j0, cols, sums, cols, 1, 0)
		for i := range d.m {
			d.c.add(i, j0, sums[i*cols:][:cols], d.alpha, d.beta)
		}
	}
	d.c.done(0, j0, d.m, cols)
}

// sum adds the products of A and columns of B to c.
func (d *sweep[T]) sum(j0, cols int, c []T, ldc int, alpha, beta T) {
	for p0 := 0; p0 < d.k; p0 += sweepDepth {
		depth := min(sweepDepth, d.k-p0)
		for i := 0; i < d.m; {
			x := min(bits.Len(uint(d.m-i)), len(d.Update)) - 1
			beta := beta
			for p := p0; p < p0+depth; {
				y := min(bits.Len(uint(p0+depth-p)), len(d.Update[x])) - 1
				d.Update[x][y](d.a.at(i, p), d.a.rs, d.a.cs, &d.b[p*d.ldb+j0], d.ldb,
					&c[i*ldc], ldc, cols, alpha, beta)
				beta = 1
				p += 1 << y
			}
			i += 1 << x
		}
		beta = 1
	}
}
