//go:build !race

package cpu

import (
	"context"
	"testing"
	"tilework/internal/backend"

	"tilework/dtype"
)

// TestSmallCAllocatesNothing checks that split-K and dot products allocate no memory. It does not
// run under the race detector, where sync.Pool drops items at random.
func TestSmallCAllocatesNothing(t *testing.T) {
	for _, s := range [][3]int{{1, 1, 1000}, {3, 4, 100_000}, {33, 1, 40_000}} {
		p, b := random(t, dtype.F32, s[0], s[1], s[2])
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
