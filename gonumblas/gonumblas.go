// Package gonumblas makes gonum multiply with tilework: after [Use], gonum's mat,
// blas32, blas64 and lapack64 run their matrix products on tilework's kernels.
//
// GEMM goes to them whole. SYMM, SYRK, SYR2K, TRMM and TRSM are halved, and halved
// again, until most of their work is GEMM; what remains along the diagonal is small.
// Everything else is gonum's own [gonum.Implementation], and so are the panics: a call
// with bad arguments is handed to gonum's routine, which refuses it in its own words.
//
// A product of tilework propagates every NaN and infinity, where gonum's skips the
// terms whose element of A is zero: 0·NaN is NaN here and nothing there.
package gonumblas

import (
	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/blas32"
	"gonum.org/v1/gonum/blas/blas64"
	"gonum.org/v1/gonum/blas/gonum"
)

// Use puts an [Implementation] into blas32 and blas64. It may be called at any time
// that none of their routines runs.
func Use() {
	blas32.Use(Implementation{})
	blas64.Use(Implementation{})
}

// Implementation is gonum's BLAS with the level 3 of float32 and float64 on tilework.
// Its methods may be called from several goroutines at once.
type Implementation struct{ gonum.Implementation }

var (
	_ blas.Float32Level3 = Implementation{}
	_ blas.Float64Level3 = Implementation{}
)

var (
	single = routines[float32]{
		gonum.Implementation{}.Sgemm, gonum.Implementation{}.Ssymm, gonum.Implementation{}.Ssyrk,
		gonum.Implementation{}.Ssyr2k, gonum.Implementation{}.Strmm, gonum.Implementation{}.Strsm,
	}
	double = routines[float64]{
		gonum.Implementation{}.Dgemm, gonum.Implementation{}.Dsymm, gonum.Implementation{}.Dsyrk,
		gonum.Implementation{}.Dsyr2k, gonum.Implementation{}.Dtrmm, gonum.Implementation{}.Dtrsm,
	}
)

// Sgemm computes C ← α·op(A)·op(B) + β·C for a C of m×n.
func (Implementation) Sgemm(tA, tB blas.Transpose, m, n, k int, alpha float32, a []float32, lda int, b []float32, ldb int, beta float32, c []float32, ldc int) {
	single.product(tA, tB, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc)
}

// Dgemm computes C ← α·op(A)·op(B) + β·C for a C of m×n.
func (Implementation) Dgemm(tA, tB blas.Transpose, m, n, k int, alpha float64, a []float64, lda int, b []float64, ldb int, beta float64, c []float64, ldc int) {
	double.product(tA, tB, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc)
}

// Ssymm computes C ← α·A·B + β·C or C ← α·B·A + β·C for a symmetric A and a C of m×n.
func (Implementation) Ssymm(s blas.Side, ul blas.Uplo, m, n int, alpha float32, a []float32, lda int, b []float32, ldb int, beta float32, c []float32, ldc int) {
	single.symmetric(s, ul, m, n, alpha, a, lda, b, ldb, beta, c, ldc)
}

// Dsymm computes C ← α·A·B + β·C or C ← α·B·A + β·C for a symmetric A and a C of m×n.
func (Implementation) Dsymm(s blas.Side, ul blas.Uplo, m, n int, alpha float64, a []float64, lda int, b []float64, ldb int, beta float64, c []float64, ldc int) {
	double.symmetric(s, ul, m, n, alpha, a, lda, b, ldb, beta, c, ldc)
}

// Ssyrk computes a triangle of C ← α·op(A)·op(A)ᵀ + β·C for a C of n×n.
func (Implementation) Ssyrk(ul blas.Uplo, t blas.Transpose, n, k int, alpha float32, a []float32, lda int, beta float32, c []float32, ldc int) {
	single.rankK(ul, t, n, k, alpha, a, lda, beta, c, ldc)
}

// Dsyrk computes a triangle of C ← α·op(A)·op(A)ᵀ + β·C for a C of n×n.
func (Implementation) Dsyrk(ul blas.Uplo, t blas.Transpose, n, k int, alpha float64, a []float64, lda int, beta float64, c []float64, ldc int) {
	double.rankK(ul, t, n, k, alpha, a, lda, beta, c, ldc)
}

// Ssyr2k computes a triangle of C ← α·op(A)·op(B)ᵀ + α·op(B)·op(A)ᵀ + β·C for a C of n×n.
func (Implementation) Ssyr2k(ul blas.Uplo, t blas.Transpose, n, k int, alpha float32, a []float32, lda int, b []float32, ldb int, beta float32, c []float32, ldc int) {
	single.rank2K(ul, t, n, k, alpha, a, lda, b, ldb, beta, c, ldc)
}

// Dsyr2k computes a triangle of C ← α·op(A)·op(B)ᵀ + α·op(B)·op(A)ᵀ + β·C for a C of n×n.
func (Implementation) Dsyr2k(ul blas.Uplo, t blas.Transpose, n, k int, alpha float64, a []float64, lda int, b []float64, ldb int, beta float64, c []float64, ldc int) {
	double.rank2K(ul, t, n, k, alpha, a, lda, b, ldb, beta, c, ldc)
}

// Strmm computes B ← α·op(A)·B or B ← α·B·op(A) for a triangular A and a B of m×n.
func (Implementation) Strmm(s blas.Side, ul blas.Uplo, t blas.Transpose, d blas.Diag, m, n int, alpha float32, a []float32, lda int, b []float32, ldb int) {
	single.triangularProduct(s, ul, t, d, m, n, alpha, a, lda, b, ldb)
}

// Dtrmm computes B ← α·op(A)·B or B ← α·B·op(A) for a triangular A and a B of m×n.
func (Implementation) Dtrmm(s blas.Side, ul blas.Uplo, t blas.Transpose, d blas.Diag, m, n int, alpha float64, a []float64, lda int, b []float64, ldb int) {
	double.triangularProduct(s, ul, t, d, m, n, alpha, a, lda, b, ldb)
}

// Strsm solves op(A)·X = α·B or X·op(A) = α·B for a triangular A and a B of m×n, which
// becomes X.
func (Implementation) Strsm(s blas.Side, ul blas.Uplo, t blas.Transpose, d blas.Diag, m, n int, alpha float32, a []float32, lda int, b []float32, ldb int) {
	single.triangularSolve(s, ul, t, d, m, n, alpha, a, lda, b, ldb)
}

// Dtrsm solves op(A)·X = α·B or X·op(A) = α·B for a triangular A and a B of m×n, which
// becomes X.
func (Implementation) Dtrsm(s blas.Side, ul blas.Uplo, t blas.Transpose, d blas.Diag, m, n int, alpha float64, a []float64, lda int, b []float64, ldb int) {
	double.triangularSolve(s, ul, t, d, m, n, alpha, a, lda, b, ldb)
}
