package gonumblas

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/blas64"
	"gonum.org/v1/gonum/blas/gonum"
	"gonum.org/v1/gonum/mat"
)

// BenchmarkLevel3 measures each routine and gonum's version of it.
func BenchmarkLevel3(b *testing.B) {
	rng := rand.New(rand.NewPCG(1, 0))
	for _, n := range []int{4, 8, 16, 32, 64, 128, 256, 1024} {
		x, y, z := values[float64](rng, n), values[float64](rng, n), values[float64](rng, n)
		for i := range n {
			x[i*n+i] = float64(n)
		}
		for _, impl := range []struct {
			name string
			blas.Float64Level3
		}{{"gonum", gonum.Implementation{}}, {"tilework", Implementation{}}} {
			for _, op := range []struct {
				name string
				call func()
			}{
				{"gemm", func() { impl.Dgemm(blas.NoTrans, blas.NoTrans, n, n, n, 1, x, n, y, n, 0, z, n) }},
				{"symm", func() { impl.Dsymm(blas.Left, blas.Lower, n, n, 1, x, n, y, n, 0, z, n) }},
				{"syrk", func() { impl.Dsyrk(blas.Lower, blas.NoTrans, n, n, 1, x, n, 0, z, n) }},
				{"trmm", func() { impl.Dtrmm(blas.Left, blas.Lower, blas.NoTrans, blas.NonUnit, n, n, 1e-3, x, n, z, n) }},
				{"trsm", func() { impl.Dtrsm(blas.Left, blas.Lower, blas.NoTrans, blas.NonUnit, n, n, 1, x, n, z, n) }},
			} {
				b.Run(fmt.Sprintf("%s/%d/%s", op.name, n, impl.name), func(b *testing.B) {
					b.ReportAllocs()
					for b.Loop() {
						op.call()
					}
				})
			}
		}
	}
}

// BenchmarkDense measures mat.Dense.Mul of 2048×2048 matrices, alternating between gonum's routines
// and this package, and reports the speedup.
func BenchmarkDense(b *testing.B) {
	const n = 2048
	rng := rand.New(rand.NewPCG(1, 0))
	x, y := mat.NewDense(n, n, values[float64](rng, n)), mat.NewDense(n, n, values[float64](rng, n))
	var z mat.Dense
	defer blas64.Use(blas64.Implementation())
	least := func(impl blas.Float64, old float64) float64 {
		blas64.Use(impl)
		start := time.Now()
		z.Mul(x, y)
		return min(old, time.Since(start).Seconds())
	}
	before, after := math.Inf(1), math.Inf(1)
	for b.Loop() {
		before, after = least(gonum.Implementation{}, before), least(Implementation{}, after)
	}
	b.ReportMetric(before/after, "x")
	b.ReportMetric(before*1e3, "ms/gonum")
	b.ReportMetric(after*1e3, "ms/tilework")
	b.ReportMetric(0, "ns/op")
}
