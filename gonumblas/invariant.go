package gonumblas

import (
	"slices"

	"gonum.org/v1/gonum/blas"

	"tilework"
)

// RowInvariant is an [Implementation] whose Sgemm and Dgemm have the option
// [tilework.WithRowInvariance]: a row of C has the same bits for every number of rows, at every
// position and for every transposition and stride. Register it with blas32.Use and blas64.Use.
// Small products are not forwarded to gonum.
type RowInvariant struct{ Implementation }

var (
	_ blas.Float32 = RowInvariant{}
	_ blas.Float64 = RowInvariant{}
)

var rowInvariant = append(slices.Clip(onCPU), tilework.WithRowInvariance())

// Sgemm computes C ← α·op(A)·op(B) + β·C for an m×n matrix C.
func (RowInvariant) Sgemm(tA, tB blas.Transpose, m, n, k int, alpha float32, a []float32, lda int, b []float32,
	ldb int, beta float32, c []float32, ldc int) {
	single.invariantProduct(tA, tB, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc)
}

// Dgemm computes C ← α·op(A)·op(B) + β·C for an m×n matrix C.
func (RowInvariant) Dgemm(tA, tB blas.Transpose, m, n, k int, alpha float64, a []float64, lda int, b []float64,
	ldb int, beta float64, c []float64, ldc int) {
	double.invariantProduct(tA, tB, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc)
}

// invariantProduct implements GEMM of [RowInvariant].
func (r *routines[T]) invariantProduct(tA, tB blas.Transpose, m, n, k int, alpha T, a []T, lda int, b []T, ldb int,
	beta T, c []T, ldc int) {
	v := &views{bad: m == 0 || n == 0}
	va, vb, vc := operand(v, tA, m, k, lda, a), operand(v, tB, k, n, ldb, b), view(v, m, n, ldc, c)
	if v.bad {
		r.mul(tA, tB, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc)
		return
	}
	multiply(rowInvariant, alpha, va, vb, beta, vc)
}
