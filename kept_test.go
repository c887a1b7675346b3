package tilework

import (
	"testing"

	"tilework/dtype"
	"tilework/internal/cache"
	"tilework/internal/dispatch/tuned"
)

// keptCase is a product of small whole numbers, which every order of summation computes exactly.
type keptCase struct {
	m, n, k        int
	transA, transC bool
	alpha, beta    float64
	opts           []Option
	kept           bool // whether a call keeps its plan
}

// run computes the product and reports whether the call had kept its plan.
func (x *keptCase) run(t *testing.T) (kept bool) {
	t.Helper()
	whole := func(rows, cols, first int) Matrix[float32] {
		m := New[float32](rows, cols)
		for i := range m.data {
			m.data[i] = float32((i+first)%7 - 3)
		}
		return m
	}
	a, b, c := whole(x.m, x.k, 0), whole(x.k, x.n, 1), whole(x.m, x.n, 2)
	want := New[float32](x.m, x.n)
	for i := range x.m {
		for j := range x.n {
			sum := x.beta * float64(c.At(i, j))
			for p := range x.k {
				sum += x.alpha * float64(a.At(i, p)) * float64(b.At(p, j))
			}
			want.Set(i, j, float32(sum))
		}
	}
	if x.transA {
		a = transposedCopy(a)
	}
	if x.transC {
		c = transposedCopy(c)
	}
	call := newCall(x.alpha, a, b, x.beta, c, x.opts)
	kept = call.Kept()
	err := call.Run(t.Context())
	call.Release()
	if err != nil {
		t.Fatalf("%+v: %v", x, err)
	}
	for i := range x.m {
		for j := range x.n {
			if got := c.At(i, j); got != want.At(i, j) {
				t.Fatalf("%+v, plan kept %v: C[%d, %d] = %v, want %v", x, kept, i, j, got, want.At(i, j))
			}
		}
	}
	return kept
}

// transposedCopy returns a matrix equal to m that stores its columns.
func transposedCopy[T dtype.Element](m Matrix[T]) Matrix[T] {
	c := New[T](m.Cols(), m.Rows()).T()
	for i := range m.Rows() {
		for j := range m.Cols() {
			c.Set(i, j, m.At(i, j))
		}
	}
	return c
}

// TestKeptPlans repeats products that differ in a size, an operand, a factor or an option, and
// checks the results. The second of two equal calls takes the plan of the first one, if it was
// small and had no options besides settings, until a choice is tuned.
func TestKeptPlans(t *testing.T) {
	if raceEnabled {
		t.Skip("under the race detector, sync.Pool drops items at random")
	}
	one := []Option{WithThreads(1)}
	all := []keptCase{
		{m: 5, n: 6, k: 7, alpha: 1, kept: true},
		{m: 6, n: 5, k: 7, alpha: 1, kept: true},
		{m: 5, n: 6, k: 7, alpha: 1, transA: true, kept: true},
		{m: 5, n: 6, k: 7, alpha: 1, transC: true, kept: true},
		{m: 5, n: 6, k: 7, alpha: 2, kept: true},
		{m: 5, n: 6, k: 7, alpha: 1 + 0x1p-40, kept: true}, // 1 in float32
		{m: 5, n: 6, k: 7, beta: 1, kept: true},
		{m: 5, n: 6, k: 7, alpha: 1, beta: 1, opts: one, kept: true},
		{m: 5, n: 6, k: 7, alpha: 1, opts: []Option{WithKernel("portable")}, kept: true},
		{m: 5, n: 6, k: 7, alpha: 1, opts: []Option{WithVerify()}, kept: true},
		{m: 5, n: 6, k: 7, alpha: 1, opts: []Option{WithProgress(func(int64, int64) {})}},
		{m: 5, n: 6, k: 7, alpha: 1, opts: []Option{WithRowInvariance()}},
		{m: 101, n: 100, k: 100, alpha: 1, opts: one},
	}
	for i := range all {
		x, kept := &all[i], false
		for range 10 { // the goroutine may move to another processor, and a collection empties the pool
			kept = x.run(t) || kept
		}
		if kept != x.kept {
			t.Errorf("%+v: plan kept %v, want %v", x, kept, x.kept)
		}
	}
	for range 3 {
		for i := range all { // each may take the place of the one before
			all[i].run(t)
		}
	}
	x := &all[0]
	x.run(t)
	defer tuned.Substitute(cache.At(t.TempDir()))()
	if x.run(t) {
		t.Error("a plan was kept although a choice may have been tuned since")
	}
}
