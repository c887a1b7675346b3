package gonumblas

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/lapack/lapack64"
	"gonum.org/v1/gonum/mat"
)

// BenchmarkBLAS compares this package with gonum, routine by routine. Each iteration measures
// both, one right after the other. The benchmark reports the times that a tenth of the iterations
// do not exceed, and their ratio: other programs on the machine only add time, and more to several
// threads.
func BenchmarkBLAS(b *testing.B) {
	for _, n := range []int{2, 10, 50, 200, 1000, 2000} {
		blasRatios(b, "float64", n, &double)
		blasRatios(b, "float32", n, &single)
	}
}

func blasRatios[T float32 | float64](b *testing.B, typ string, n int, r *routines[T]) {
	rng := rand.New(rand.NewPCG(1, 0))
	x, y, z := values[T](rng, n), values[T](rng, n), values[T](rng, n)
	l := make([]T, n*n) // repeated products and solutions with l neither grow nor vanish
	for i := range l {
		l[i] = x[i] * 1e-6
	}
	for i := range n {
		l[i*n+i] = 1
	}
	const left, right, lower, upper = blas.Left, blas.Right, blas.Lower, blas.Upper
	const not, trans, unit = blas.NoTrans, blas.Trans, blas.NonUnit
	own := r.methods()
	for _, op := range []struct {
		name string
		call func(r *routines[T])
	}{
		{"gemm", func(r *routines[T]) { r.mul(not, not, n, n, n, 1, x, n, y, n, 0, z, n) }},
		{"gemm-inner", func(r *routines[T]) { r.mul(not, not, 1, 1, n*n, 1, x, n*n, y, 1, 0, z, 1) }},
		{"gemm-outer", func(r *routines[T]) { r.mul(not, not, n*n, 1, 1, 1, x, 1, y, 1, 0, z, 1) }},
		{"symm", func(r *routines[T]) { r.symm(left, lower, n, n, 1, x, n, y, n, 0, z, n) }},
		{"symm-right-upper", func(r *routines[T]) { r.symm(right, upper, n, n, 1, x, n, y, n, 0, z, n) }},
		{"syrk", func(r *routines[T]) { r.syrk(lower, not, n, n, 1, x, n, 0, z, n) }},
		{"syrk-upper-trans", func(r *routines[T]) { r.syrk(upper, trans, n, n, 1, x, n, 0, z, n) }},
		{"syr2k", func(r *routines[T]) { r.syr2k(lower, not, n, n, 1, x, n, y, n, 0, z, n) }},
		{"trmm", func(r *routines[T]) { r.trmm(left, lower, not, unit, n, n, 1, l, n, z, n) }},
		{"trmm-right-upper", func(r *routines[T]) { r.trmm(right, upper, not, unit, n, n, 1, l, n, z, n) }},
		{"trsm", func(r *routines[T]) { r.trsm(left, lower, not, unit, n, n, 1, l, n, z, n) }},
		{"trsm-upper", func(r *routines[T]) { r.trsm(left, upper, not, unit, n, n, 1, l, n, z, n) }},
		{"trsm-right-lower", func(r *routines[T]) { r.trsm(right, lower, not, unit, n, n, 1, l, n, z, n) }},
		{"trsm-right-upper-trans", func(r *routines[T]) { r.trsm(right, upper, trans, unit, n, n, 1, l, n, z, n) }},
		{"gemv", func(r *routines[T]) { r.gemv(not, n, n, 1, x, n, y, 1, 0, z, 1) }},
		{"gemv-trans", func(r *routines[T]) { r.gemv(trans, n, n, 1, x, n, y, 1, 0, z, 1) }},
		{"ger", func(r *routines[T]) { r.ger(n, n, 1e-6, x, 1, y, 1, z, n) }},
		{"trmv", func(r *routines[T]) { r.trmv(lower, not, unit, n, l, n, z, 1) }},
		{"trsv", func(r *routines[T]) { r.trsv(lower, not, unit, n, l, n, z, 1) }},
		{"trsv-trans", func(r *routines[T]) { r.trsv(lower, trans, unit, n, l, n, z, 1) }},
	} {
		b.Run(fmt.Sprintf("%s/%d/%s", op.name, n, typ), func(b *testing.B) {
			compare(b, func() { op.call(r) }, func() { op.call(own) })
		})
	}
}

// BenchmarkMat compares operations of gonum's mat before and after [Use] as [BenchmarkBLAS] does.
func BenchmarkMat(b *testing.B) {
	for _, n := range []int{50, 200, 1000, 2000} {
		rng := rand.New(rand.NewPCG(1, 0))
		x, y := mat.NewDense(n, n, values[float64](rng, n)), mat.NewDense(n, n, values[float64](rng, n))
		var spd mat.SymDense
		spd.SymOuterK(1, x)
		for i := range n {
			spd.SetSym(i, i, spd.At(i, i)+float64(n))
		}
		var z mat.Dense
		var lu mat.LU
		var chol mat.Cholesky
		var qr mat.QR
		f, u, pivots := mat.NewDense(n, n, nil), mat.NewSymDense(n, nil), make([]int, n)
		tau, work := make([]float64, n), make([]float64, 64*n)
		for _, op := range []struct {
			name string
			call func()
		}{
			{"mul", func() { z.Mul(x, y) }},
			{"getrf", func() { f.Copy(x); lapack64.Getrf(f.RawMatrix(), pivots) }},
			{"potrf", func() { copy(u.RawSymmetric().Data, spd.RawSymmetric().Data); lapack64.Potrf(u.RawSymmetric()) }},
			{"geqrf", func() { f.Copy(x); lapack64.Geqrf(f.RawMatrix(), tau, work, len(work)) }},
			{"lu", func() { lu.Factorize(x) }},
			{"lu-solve", func() { lu.Factorize(x); must(b, lu.SolveTo(&z, false, y)) }},
			{"cholesky", func() { chol.Factorize(&spd) }},
			{"cholesky-solve", func() { chol.Factorize(&spd); must(b, chol.SolveTo(&z, y)) }},
			{"qr", func() { qr.Factorize(x) }},
			{"qr-solve", func() { qr.Factorize(x); must(b, qr.SolveTo(&z, false, y)) }},
		} {
			b.Run(fmt.Sprintf("%s/%d", op.name, n), func(b *testing.B) {
				defer useGonum()
				compare(b, func() { useGonum(); op.call() }, func() { Use(); op.call() })
			})
		}
	}
}

func must(b *testing.B, err error) {
	if err != nil {
		b.Fatal(err)
	}
}

// compare measures before and after by turns and reports their times and the ratio. It repeats a
// short call until it takes minBatch.
func compare(b *testing.B, before, after func()) {
	const minBatch = 100 * time.Microsecond
	measure := func(f func(), times int) time.Duration {
		start := time.Now()
		for range times {
			f()
		}
		return time.Since(start) / time.Duration(times)
	}
	measure(before, 1)
	measure(after, 1)
	times := 1 + int(minBatch/measure(before, 1))
	var of [2][]time.Duration
	for b.Loop() {
		of[0] = append(of[0], measure(before, times))
		of[1] = append(of[1], measure(after, times))
	}
	var best [2]float64
	for i, all := range of {
		slices.Sort(all)
		best[i] = float64(all[len(all)/10].Nanoseconds()) / 1e3
	}
	b.ReportMetric(best[0], "us/gonum")
	b.ReportMetric(best[1], "us/tilework")
	b.ReportMetric(best[0]/best[1], "x")
	b.ReportMetric(0, "ns/op")
}
