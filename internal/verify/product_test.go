package verify

import (
	"math"
	"testing"

	"tilework/internal/testkit/testrand"
)

// TestDots checks that dots agrees with dotsGo up to rounding, at every length, and that the norm
// is not finite if an element is not, at any index.
func TestDots(t *testing.T) {
	rng := testrand.New(t)
	for n := range 70 {
		var y [4][]float64
		x, w := make([]float64, n), make([]float64, n)
		for k := range y {
			y[k] = make([]float64, n+k)
		}
		for j := range n {
			x[j], w[j] = rng.NormFloat64(), rng.Float64()
			for k := range y {
				y[k][j] = rng.NormFloat64()
			}
		}
		for _, w := range [][]float64{w, nil} {
			got, want := dots(x, y, w), dotsGo(x, y, w)
			for k := range got {
				if math.Abs(got[k]-want[k]) > 1e-13*float64(n) {
					t.Errorf("%d elements, sum %d: %v, want %v", n, k, got[k], want[k])
				}
			}
			for j := range x {
				was := x[j]
				x[j] = []float64{math.Inf(1), math.Inf(-1), math.NaN()}[j%3]
				if got := dots(x, y, w); isFinite(got[4]) {
					t.Errorf("%v at %d of %d has a finite norm: %v", x[j], j, n, got)
				}
				x[j] = was
			}
		}
	}
}
