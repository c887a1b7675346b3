package verify

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"tilework/dtype"
	"tilework/internal/gemm"
	"tilework/internal/ref"
	"tilework/internal/testkit"
)

// TestThresholdConstants measures the errors of a row, relative to its norm or that of its terms,
// in the arithmetic of each kind of kernel, and compares them with the threshold. For uniform and
// normal data, every threshold at which a product is accepted is at least 3.6 times the norm of the
// errors, so fewer than one residual in 10⁹ exceeds it. docs/results/verification.md has the
// figures of the long test.
func TestThresholdConstants(t *testing.T) {
	rng := rand.New(rand.NewPCG(23, 24))
	all := fills(rng)
	var names []string
	for name := range all {
		names = append(names, name)
	}
	slices.Sort(names)
	depths := []int{128, 1024, 4096, 16384, 65536}
	if !testkit.Long() {
		depths = depths[:3]
	}
	for _, how := range arithmetics {
		for _, in := range how.in {
			if in.Info().Accum != dtype.F32 {
				continue
			}
			layouts := gemm.Layouts{gemm.A: gemm.Dense(in, 1, 1), gemm.B: gemm.Dense(in, 1, 1)}
			acc := how.acc.OrDefault(&gemm.Problem{Layouts: layouts})
			for _, name := range names {
				var row []float64
				for _, k := range depths {
					errors, threshold := rowErrors(t, acc, in, k, name, all[name])
					row = append(row, 100*errors)
					if typical := name == "uniform" || name == "normal"; typical && threshold < min(3.6*errors, defaultWithin) {
						t.Errorf("%s, %v, %s, K = %d: threshold %.3g, and errors of %.3g", how.name, in, name, k, threshold, errors)
					}
				}
				t.Logf("| %s | %v | %s | %.2g |", how.name, in, name, row)
			}
		}
	}
}

// rowErrors returns the norm of the errors of a row of 16 elements, and its threshold. Both are
// relative to the larger one of the norms of the row and of its terms.
func rowErrors(
	t *testing.T, acc gemm.Accuracy, in dtype.Type, k int, name string,
	fill func() float64) (errors, threshold float64) {
	const n = 16
	p, _, err := gemm.New(1, gemm.Dense(in, 1, k), gemm.Dense(in, k, n), 0, gemm.Dense(dtype.F32, 1, n), gemm.Epilogue{})
	if err != nil {
		t.Fatal(err)
	}
	a, b := make([]float64, k), make([]float64, k)
	for q := range a {
		a[q] = in.Round(fill())
		if name == "blocks" && q/64%2 == 1 {
			a[q] = -a[q]
		}
	}
	var squares, terms, norm float64
	for range n {
		exact := ref.DoubleDouble{}
		for q := range b {
			b[q] = in.Round(fill())
			exact = exact.Plus(ref.DoubleDouble{High: a[q] * b[q]})
			terms += a[q] * b[q] * a[q] * b[q]
		}
		e := KernelSums(acc, dtype.F32, a, b)[0] - exact.High - exact.Low
		squares += e * e
		norm += exact.High * exact.High
	}
	l := newThreshold(&p, acc)
	terms, norm = math.Sqrt(terms), math.Sqrt(norm)
	whole := max(terms, norm)
	if whole == 0 {
		return 0, 0
	}
	return math.Sqrt(squares) / whole, l.of(terms, norm) / whole
}
