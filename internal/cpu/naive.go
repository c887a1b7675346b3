package cpu

import (
	"tilework/dtype"
	"tilework/internal/gemm"
)

// naive is the single-threaded triple loop: a dot product along K for each element of C. It reads B
// by columns and is slow because each of its M·N·K loads of B touches another cache line.
//
// It is a job with one phase, whose tasks are the rows of C.
type naive[T scalar] struct {
	m, n, k     int
	a, b        operand[T]
	c           []T // nil if C has another type; the epilogue then converts
	ldc         int
	alpha, beta T
	epilogue    epilogue[T]
	onTile      func(i, j, rows, cols int) // see blocked
	sums        []T                        // a row of C
	row         []T                        // a row of op(A), if its elements are widened
	old         []T                        // scratch memory for the epilogue
}

func newNaive[T scalar](pl *Plan, b *gemm.Buffers) naive[T] {
	p := pl.Problem
	d := naive[T]{
		m: p.M, n: p.N, k: p.K,
		a:     newOperand[T](p.Layouts[gemm.A], b[gemm.A], !p.A().Trans, p.K, 1, nil),
		b:     newOperand[T](p.Layouts[gemm.B], b[gemm.B], p.B().Trans, p.K, 1, nil),
		alpha: alphaOf[T](p), beta: T(real(p.Beta)),
		onTile: pl.onTile,
	}
	d.a.scales, d.b.scales = p.ScalesOf(b)
	d.epilogue.prepare(p, b, nil)
	if !p.ReadsAB() {
		d.k, d.alpha = 0, 0
	}
	if p.Out() == dtype.Of[T]() {
		d.c, d.ldc = dtype.View[T](b[gemm.C]), p.C().LD
	}
	return d
}

func (d *naive[T]) reset() { *d = naive[T]{} }

func (d *naive[T]) phases() int                { return 1 }
func (d *naive[T]) enter(_, _ int) (tasks int) { return d.m }
func (d *naive[T]) bytes() int {
	return allocBytes[T](d.n) + allocBytes[T](epilogueCols) + allocBytes[T](d.widened())
}

// widened returns the number of elements of A that are widened at a time.
func (d *naive[T]) widened() int {
	if d.a.widen == nil {
		return 0
	}
	return d.k
}

func (d *naive[T]) bind(m *workspace, _ []phaseState) {
	d.sums, d.old, d.row = alloc[T](m, d.n), alloc[T](m, epilogueCols), alloc[T](m, d.widened())
}

func (d *naive[T]) do(i, _ int) {
	for p := range d.row {
		d.row[p] = d.a.at(i, p)
	}
	for j := range d.sums {
		d.sums[j] = T(d.alpha * d.dot(i, j))
	}
	if d.c != nil && d.beta != 0 {
		for j, old := range d.c[i*d.ldc:][:d.n] {
			d.sums[j] += T(d.beta * old)
		}
	}
	if d.epilogue.needed {
		d.epilogue.apply(d.sums, d.n, i, 0, 1, d.n, d.old)
	}
	if d.c != nil {
		copy(d.c[i*d.ldc:], d.sums)
	}
	if d.onTile != nil {
		d.onTile(i, 0, 1, d.n)
	}
}

// dot returns the dot product of row i of op(A) and column j of op(B).
func (d *naive[T]) dot(i, j int) T {
	var sum T
	if d.a.widen != nil {
		for p, v := range d.row {
			sum += T(v * d.b.at(j, p))
		}
		return sum
	}
	x, y := d.a.index(i, 0), d.b.index(j, 0)
	dx, dy := d.a.index(0, 1), d.b.index(0, 1)
	for range d.k {
		sum += T(d.a.data[x] * d.b.data[y])
		x += dx
		y += dy
	}
	return sum
}
