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
	small       operand[T] // A as it lies,
	layout      gemm.Layout
	a           strided[T] // and all of it as numbers
	b           operand[T]
	alpha, beta T
	c           target[T]
	nc          int // columns of C for an item
	threads     int
	memory      []T // for each slot; see room
}

const (
	sweepRows  = 16        // the most rows of C that B is read for
	sweepFirst = 4         // and up to which nothing else is faster, where B is not small
	sweepDepth = 8         // the steps of k between two visits of an element of C
	sweepReach = 256 << 10 // bytes of C that an item goes over again and again: they stay in L2
	sweepSums  = 4096      // elements of C that are summed beside it
	sweepWide  = 2048      // elements of a row of B that are widened at once: with the other rows they stay in L2
	wordRows   = 8         // sweepRows where the other way packs words of several values
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

// prepare lays out the product, or with flipped its transpose, for a d of zeros.
func (d *sweep[T]) prepare(pl *Plan, mk *micro[T], b *gemm.Buffers, flipped bool) {
	p, threads := pl.Problem, pl.Threads
	d.micro, d.k, d.alpha, d.threads = mk, p.K, alphaOf[T](p), threads
	small, large := &d.small, &d.b
	d.m, d.n, d.layout = p.M, p.N, p.A
	if flipped {
		small, large = large, small
		d.m, d.n, d.layout = p.N, p.M, p.B.T()
	}
	mk.asItLies(small, p.A, b.A)
	mk.asItLies(large, p.B, b.B)
	d.c.prepare(pl, mk, b, flipped)
	d.beta = d.c.old(T(p.Beta))
	d.nc = equalParts(d.n, sweepReach/(d.m*dtype.Of[T]().Size()), d.NR)
	if d.c.cs != 1 {
		d.nc = equalParts(d.n, sweepSums/d.m, d.NR)
	}
	if d.b.widen != nil {
		d.nc = equalParts(d.n, min(d.nc, sweepWide), d.NR)
	}
	if threads > 1 {
		d.nc = equalParts(d.n, min(d.nc, max(d.n/(4*threads), 512)), d.NR)
	}
}

func (d *sweep[T]) reset() { *d = sweep[T]{} }

func (d *sweep[T]) phases() int                { return 1 }
func (d *sweep[T]) enter(_, _ int) (items int) { return ceilDiv(d.n, d.nc) }

// room is what a slot has memory for: sums whose places in C are not neighbours, a piece of
// B that is widened, and what finishing takes.
func (d *sweep[T]) room() (sums, piece, spare int) {
	if d.c.cs != 1 {
		sums = sweepSums
	}
	if d.b.widen != nil {
		piece = sweepDepth * d.nc
	}
	if d.c.sums {
		spare = finishing
	}
	return sums, piece, spare
}

func (d *sweep[T]) bytes() int {
	sums, piece, spare := d.room()
	return besideBytes[T](d.layout) + d.c.bytes(d.m, d.n) + bytesFor[T](d.threads*(sums+piece+spare))
}

func (d *sweep[T]) use(m *memory, _ []place) {
	sums, piece, spare := d.room()
	d.a = d.small.beside(d.layout, m)
	d.c.use(m, d.m, d.n)
	d.memory = take[T](m, d.threads*(sums+piece+spare))
}

func (d *sweep[T]) do(item, slot int) {
	j0 := item * d.nc
	cols := min(d.nc, d.n-j0)
	ofSums, ofPiece, spare := d.room()
	memory := d.memory[slot*(ofSums+ofPiece+spare):][:ofSums+ofPiece+spare]
	sums, piece, tmp := memory[:ofSums], memory[ofSums:][:ofPiece], memory[ofSums+ofPiece:]
	if d.c.cs == 1 {
		d.sum(j0, cols, d.c.data[j0:], d.c.rs, d.alpha, d.beta, piece)
	} else {
		d.sum(j0, cols, sums, cols, 1, 0, piece)
		for i := range d.m {
			d.c.add(i, j0, sums[i*cols:][:cols], d.alpha, d.beta)
		}
	}
	d.c.done(0, j0, d.m, cols, tmp)
}

// sum adds the products of A and columns of B to c. piece is memory for some rows of B, if
// they are widened.
func (d *sweep[T]) sum(j0, cols int, c []T, ldc int, alpha, beta T, piece []T) {
	for p0 := 0; p0 < d.k; p0 += sweepDepth {
		depth := min(sweepDepth, d.k-p0)
		b, ldb := d.b.piece(p0, j0, depth, cols, piece)
		for i := 0; i < d.m; {
			x := min(bits.Len(uint(d.m-i)), len(d.Update)) - 1
			beta := beta
			for p := p0; p < p0+depth; {
				y := min(bits.Len(uint(p0+depth-p)), len(d.Update[x])) - 1
				d.Update[x][y](d.a.at(i, p), d.a.rs, d.a.cs, &slice(b, (depth-1)*ldb+cols)[(p-p0)*ldb], ldb,
					&c[i*ldc], ldc, cols, alpha, beta)
				beta = 1
				p += 1 << y
			}
			i += 1 << x
		}
		beta = 1
	}
}
