package gonumblas

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/gonum"
)

// BenchmarkLevel3 times each routine beside gonum's.
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
