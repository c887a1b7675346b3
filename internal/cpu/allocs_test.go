//go:build !race

package cpu

import (
	"context"
	"testing"

	"tilework/dtype"
	"tilework/internal/backend"
)

// TestProductsAllocateNothing checks that split-K, dot products, and those whose finished sums a
// factor multiplies allocate no memory. It does not run under the race detector, where sync.Pool
// drops items at random.
func TestProductsAllocateNothing(t *testing.T) {
	for _, s := range []struct {
		m, n, k     int
		alpha, beta float64
	}{{1, 1, 1000, 1, 0}, {3, 4, 100_000, 1, 0}, {33, 1, 40_000, 1, 0}, {40, 40, 900, 2.5, 1}, {4, 900, 900, 2.5, 1},
		{90, 100, 900, 2.5, 0}} {
		p, b := random(t, dtype.F32, s.m, s.n, s.k)
		p.Alpha, p.Beta = complex(s.alpha, 0), complex(s.beta, 0)
		if n := testing.AllocsPerRun(20, func() {
			pl, err := NewPlan(&p, backend.Options{Threads: 1})
			if err != nil {
				t.Fatal(err)
			}
			if err := pl.Run(context.Background(), &b); err != nil {
				t.Fatal(err)
			}
		}); n != 0 {
			t.Errorf("%v: %v allocations, want none", &p, n)
		}
	}
}
