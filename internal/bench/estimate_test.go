package bench

import (
	"testing"
	"time"

	"tilework/internal/gemm"
)

// TestEstimate checks the predictions of two jobs after each of their products.
func TestEstimate(t *testing.T) {
	cube := func(n int) gemm.Problem { return gemm.Problem{M: n, N: n, K: n} }
	e := NewEstimate([][]gemm.Problem{{cube(10), cube(20), cube(5), cube(30)}, {cube(10), cube(10)}})
	check := func(when string, want time.Duration) {
		t.Helper()
		if got := e.Remaining(); got != want {
			t.Errorf("%s: %v remaining, want %v", when, got, want)
		}
	}
	check("nothing measured", 0)
	e.Skip(0, 3)
	e.Done(0, 0, time.Second)
	check("one product measured", (8+1)*time.Second+2*time.Second) // the smaller product takes as long
	e.Done(0, 1, 9*time.Second)
	check("two products measured", 9*time.Second+2*5*time.Second)
	e.Skip(0, 2)
	e.Done(1, 0, 2*time.Second)
	check("both jobs measured", 2*time.Second)
	e.Done(1, 1, time.Second)
	check("no product left", 0)
}
