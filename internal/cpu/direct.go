package cpu

import (
	"context"

	"tilework/dtype"
	"tilework/internal/gemm"
)

// direct is a product without packing: the micro-kernels read A and B where they
// lie. It is for small products, whose packing would cost as much as their
// arithmetic, and for those with so few rows that B is read only once. B must
// have its columns side by side (not transposed); A may lie either way.
type direct[T scalar] struct {
	*micro[T]
	m, n, k     int
	a, b, c     []T
	rsa, csa    int // A's strides from row to row and along K
	ldb, ldc    int
	alpha, beta T
	finish      finisher[T]
	tile        func(i, j, rows, cols int) // see product
	mc, nc      int                        // an item's tile of C
}

// directLimit is the largest M·N·K that is not packed.
const directLimit = 96 * 96 * 96

// goesDirect reports whether p is better not packed. It looks at the shape and
// the types alone.
func (mk *micro[T]) goesDirect(p *gemm.Problem) bool {
	t := dtype.Of[T]()
	if len(mk.Direct) == 0 || p.A.Type != t || p.C.Type != t || p.B.Trans || !p.ReadsAB() {
		return false
	}
	return p.M <= len(mk.Direct) || float64(p.M)*float64(p.N)*float64(p.K) <= directLimit
}

func newDirect[T scalar](pl *Plan, mk *micro[T], b gemm.Buffers) direct[T] {
	p, threads := &pl.Problem, pl.Threads
	d := direct[T]{
		micro: mk, m: p.M, n: p.N, k: p.K,
		a: dtype.View[T](b.A), b: dtype.View[T](b.B), c: dtype.View[T](b.C),
		rsa: p.A.LD, csa: 1, ldb: p.B.LD, ldc: p.C.LD,
		alpha: T(p.Alpha), beta: T(p.Beta),
		finish: newFinisher(p, b, mk), tile: pl.tile,
		mc: p.M, nc: p.N,
	}
	if p.A.Trans {
		d.rsa, d.csa = 1, p.A.LD
	}
	if threads > 1 {
		d.nc = equalParts(d.n, max(d.n/(4*threads), 1), mk.NR)
		d.mc = equalParts(d.m, max(d.m*ceilDiv(d.n, d.nc)/(4*threads), 1), len(mk.Direct))
	}
	return d
}

// A direct product is one phase, whose items are tiles of C.

func (d *direct[T]) phases() int                { return 1 }
func (d *direct[T]) enter(_, _ int) (items int) { return ceilDiv(d.m, d.mc) * ceilDiv(d.n, d.nc) }
func (d *direct[T]) bytes() int                 { return 0 }
func (d *direct[T]) use(*memory, []place)       {}

// alone does all items, and allocates nothing even where d is on a stack.
func (d *direct[T]) alone(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	for item := range d.enter(0, 0) {
		d.do(item, 0)
	}
	return nil
}

func (d *direct[T]) do(item, _ int) {
	across := ceilDiv(d.n, d.nc)
	i0, j0 := item/across*d.mc, item%across*d.nc
	rows, cols := min(d.mc, d.m-i0), min(d.nc, d.n-j0)
	beta, kc := d.beta, equalParts(d.k, d.kc, 8) // as where B is packed, so that the bits are the same
	for p := 0; p < d.k; p += kc {
		k := min(kc, d.k-p)
		for j := j0; j < j0+cols; j += d.NR {
			n := min(d.NR, j0+cols-j)
			for i := i0; i < i0+rows; i += len(d.Direct) {
				kernel := d.Direct[min(len(d.Direct), i0+rows-i)-1]
				b := &d.b[p*d.ldb+j]
				kernel(k, &d.a[i*d.rsa+p*d.csa], d.rsa, d.csa, b, d.ldb, &d.c[i*d.ldc+j], b, d.ldc, n, d.alpha, beta)
			}
		}
		beta = 1
	}
	if d.finish.needed {
		d.finish.tile(d.c[i0*d.ldc+j0:], d.ldc, i0, j0, rows, cols, nil)
	}
	if d.tile != nil {
		d.tile(i0, j0, rows, cols)
	}
}
