package ref

import (
	"math"
	"testing"
)

// TestDots: sums in vectors are those of the loop, to rounding, at every length and with
// what is not finite at every place.
func TestDots(t *testing.T) {
	rng := newRand(t)
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
				if got := dots(x, y, w); finite(got[4]) {
					t.Errorf("%v at %d of %d is not seen: %v", x[j], j, n, got)
				}
				x[j] = was
			}
		}
	}
}
