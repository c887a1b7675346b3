package cpu

import (
	"tilework/dtype"
	"tilework/internal/gemm"
)

// textbook is the single-threaded triple loop: for each element of C, a sum along
// K. It reads B down its columns, which is what makes it slow: one element of every
// cache line, M·N·K times.
//
// It is a task of one phase, whose items are the rows of C.
type naive[T scalar] struct {
	m, n, k     int
	a, b        operand[T]
	c           []T // nil where C holds another type; finish converts then
	ldc         int
	alpha, beta T
	epilogue    epilogue[T]
	onTile      func(i, j, rows, cols int) // see product
	sums        []T                        // a row of C
	old         []T                        // what was there, for finish
}

func newNaive[T scalar](pl *Plan, b *gemm.Buffers) naive[T] {
	p := pl.Problem
	t := naive[T]{
		m: p.M, n: p.N, k: p.K,
		a: newOperand[T](p.A, b.A, !p.A.Trans, p.K, 1, nil), b: newOperand[T](p.B, b.B, p.B.Trans, p.K, 1, nil),
		alpha: alphaOf[T](p), beta: T(p.Beta),
		onTile: pl.onTile,
	}
	t.a.scales, t.b.scales = p.ScalesOf(b)
	t.epilogue.prepare(p, b, nil)
	if !p.ReadsAB() {
		t.k, t.alpha = 0, 0
	}
	if p.C.Type == dtype.Of[T]() {
		t.c, t.ldc = dtype.View[T](b.C), p.C.LD
	}
	return t
}

func (t *naive[T]) reset() { *t = naive[T]{} }

func (t *naive[T]) phases() int                { return 1 }
func (t *naive[T]) enter(_, _ int) (tasks int) { return t.m }
func (t *naive[T]) bytes() int                 { return allocBytes[T](t.n) + allocBytes[T](epilogueCols) }

func (t *naive[T]) bind(m *workspace, _ []phaseState) {
	t.sums, t.old = alloc[T](m, t.n), alloc[T](m, epilogueCols)
}

func (t *naive[T]) do(i, _ int) {
	for j := range t.sums {
		t.sums[j] = T(t.alpha * t.dot(i, j))
	}
	if t.c != nil && t.beta != 0 {
		for j, old := range t.c[i*t.ldc:][:t.n] {
			t.sums[j] += T(t.beta * old)
		}
	}
	if t.epilogue.needed {
		t.epilogue.apply(t.sums, t.n, i, 0, 1, t.n, t.old)
	}
	if t.c != nil {
		copy(t.c[i*t.ldc:], t.sums)
	}
	if t.onTile != nil {
		t.onTile(i, 0, 1, t.n)
	}
}

// dot is the sum over p of op(A)'s element (i, p) times op(B)'s element (p, j).
func (t *naive[T]) dot(i, j int) T {
	var sum T
	if t.a.widen != nil {
		for p := range t.k {
			sum += T(t.a.at(i, p) * t.b.at(j, p))
		}
		return sum
	}
	x, y := t.a.index(i, 0), t.b.index(j, 0)
	dx, dy := t.a.index(0, 1), t.b.index(0, 1)
	for range t.k {
		sum += T(t.a.data[x] * t.b.data[y])
		x += dx
		y += dy
	}
	return sum
}
