// Package gonumblas provides gonum with BLAS and LAPACK routines that use tilework. After [Use],
// gonum's mat, blas32, blas64 and lapack64 run their matrix products on tilework's CPU kernels.
//
// GEMM calls map directly to tilework. SYMM, SYRK, SYR2K, TRMM and TRSM, and the factorisations LU,
// Cholesky and QR, are split until most of their work is GEMM. Package internal/cpu/block computes
// the blocks on the diagonal, small products, and GEMV, GER, TRMV and TRSV of matrices that fit in
// a cache; those of larger matrices are products with one column or one step of K. All other
// routines are gonum's. Calls with invalid arguments are forwarded to gonum, so the panics are the
// same, and so are small calls of GEMV without a transposition, GER with positive increments, TRMV
// and TRSV, and small factorisations.
//
// Results do not depend on the number of threads, to the last bit.
//
// Every NaN and infinity propagates: 0·NaN is NaN in a product, where gonum's own routines skip
// zeros. With α = 0, A and B are not read, and with β = 0, C is not. Elements outside a triangle
// are never read. A factorisation calls the routines that are registered with blas64, so this holds
// for its products after [Use].
package gonumblas

import (
	"sync"

	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/blas32"
	"gonum.org/v1/gonum/blas/blas64"
	"gonum.org/v1/gonum/blas/gonum"
	"gonum.org/v1/gonum/lapack/lapack64"

	"tilework/internal/cpu/block"
)

// Use registers an [Implementation] with blas32 and blas64, and a [LAPACK] with lapack64. It must
// not be called while their routines run.
func Use() {
	blas32.Use(Implementation{})
	blas64.Use(Implementation{})
	lapack64.Use(LAPACK{})
}

// Implementation is gonum's BLAS with the level 3 routines and GEMV, GER, TRMV and TRSV for float32
// and float64 replaced. Its methods are safe for concurrent use.
type Implementation struct{ gonum.Implementation }

var (
	_ blas.Float32 = Implementation{}
	_ blas.Float64 = Implementation{}
)

var (
	single = routines[float32]{
		gonum.Implementation{}.Sgemm, gonum.Implementation{}.Ssymm, gonum.Implementation{}.Ssyrk,
		gonum.Implementation{}.Ssyr2k, gonum.Implementation{}.Strmm, gonum.Implementation{}.Strsm,
		gonum.Implementation{}.Sgemv, gonum.Implementation{}.Sger, gonum.Implementation{}.Strmv,
		gonum.Implementation{}.Strsv,
		block.New[float32](),
		&sync.Pool{New: func() any { return new([]float32) }},
	}
	double = routines[float64]{
		gonum.Implementation{}.Dgemm, gonum.Implementation{}.Dsymm, gonum.Implementation{}.Dsyrk,
		gonum.Implementation{}.Dsyr2k, gonum.Implementation{}.Dtrmm, gonum.Implementation{}.Dtrsm,
		gonum.Implementation{}.Dgemv, gonum.Implementation{}.Dger, gonum.Implementation{}.Dtrmv,
		gonum.Implementation{}.Dtrsv,
		block.New[float64](),
		&sync.Pool{New: func() any { return new([]float64) }},
	}
)

// Sgemm computes C ← α·op(A)·op(B) + β·C for an m×n matrix C.
func (Implementation) Sgemm(tA, tB blas.Transpose, m, n, k int, alpha float32, a []float32, lda int, b []float32,
	ldb int, beta float32, c []float32, ldc int) {
	single.product(tA, tB, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc)
}

// Dgemm computes C ← α·op(A)·op(B) + β·C for an m×n matrix C.
func (Implementation) Dgemm(tA, tB blas.Transpose, m, n, k int, alpha float64, a []float64, lda int, b []float64,
	ldb int, beta float64, c []float64, ldc int) {
	double.product(tA, tB, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc)
}

// Ssymm computes C ← α·A·B + β·C or C ← α·B·A + β·C for a symmetric A and an m×n matrix C.
func (Implementation) Ssymm(s blas.Side, ul blas.Uplo, m, n int, alpha float32, a []float32, lda int, b []float32,
	ldb int, beta float32, c []float32, ldc int) {
	single.symmetric(s, ul, m, n, alpha, a, lda, b, ldb, beta, c, ldc)
}

// Dsymm computes C ← α·A·B + β·C or C ← α·B·A + β·C for a symmetric A and an m×n matrix C.
func (Implementation) Dsymm(s blas.Side, ul blas.Uplo, m, n int, alpha float64, a []float64, lda int, b []float64,
	ldb int, beta float64, c []float64, ldc int) {
	double.symmetric(s, ul, m, n, alpha, a, lda, b, ldb, beta, c, ldc)
}

// Ssyrk computes a triangle of C ← α·op(A)·op(A)ᵀ + β·C for an n×n matrix C.
func (Implementation) Ssyrk(ul blas.Uplo, t blas.Transpose, n, k int, alpha float32, a []float32, lda int,
	beta float32, c []float32, ldc int) {
	single.rankK(ul, t, n, k, alpha, a, lda, beta, c, ldc)
}

// Dsyrk computes a triangle of C ← α·op(A)·op(A)ᵀ + β·C for an n×n matrix C.
func (Implementation) Dsyrk(ul blas.Uplo, t blas.Transpose, n, k int, alpha float64, a []float64, lda int,
	beta float64, c []float64, ldc int) {
	double.rankK(ul, t, n, k, alpha, a, lda, beta, c, ldc)
}

// Ssyr2k computes a triangle of C ← α·op(A)·op(B)ᵀ + α·op(B)·op(A)ᵀ + β·C for an n×n matrix C.
func (Implementation) Ssyr2k(ul blas.Uplo, t blas.Transpose, n, k int, alpha float32, a []float32, lda int,
	b []float32, ldb int, beta float32, c []float32, ldc int) {
	single.rank2K(ul, t, n, k, alpha, a, lda, b, ldb, beta, c, ldc)
}

// Dsyr2k computes a triangle of C ← α·op(A)·op(B)ᵀ + α·op(B)·op(A)ᵀ + β·C for an n×n matrix C.
func (Implementation) Dsyr2k(ul blas.Uplo, t blas.Transpose, n, k int, alpha float64, a []float64, lda int,
	b []float64, ldb int, beta float64, c []float64, ldc int) {
	double.rank2K(ul, t, n, k, alpha, a, lda, b, ldb, beta, c, ldc)
}

// Strmm computes B ← α·op(A)·B or B ← α·B·op(A) for a triangular A and an m×n matrix B.
func (Implementation) Strmm(s blas.Side, ul blas.Uplo, t blas.Transpose, d blas.Diag, m, n int, alpha float32,
	a []float32, lda int, b []float32, ldb int) {
	single.triangularProduct(s, ul, t, d, m, n, alpha, a, lda, b, ldb)
}

// Dtrmm computes B ← α·op(A)·B or B ← α·B·op(A) for a triangular A and an m×n matrix B.
func (Implementation) Dtrmm(s blas.Side, ul blas.Uplo, t blas.Transpose, d blas.Diag, m, n int, alpha float64,
	a []float64, lda int, b []float64, ldb int) {
	double.triangularProduct(s, ul, t, d, m, n, alpha, a, lda, b, ldb)
}

// Strsm solves op(A)·X = α·B or X·op(A) = α·B for a triangular A and an m×n matrix B. X
// overwrites B.
func (Implementation) Strsm(s blas.Side, ul blas.Uplo, t blas.Transpose, d blas.Diag, m, n int, alpha float32,
	a []float32, lda int, b []float32, ldb int) {
	single.triangularSolve(s, ul, t, d, m, n, alpha, a, lda, b, ldb)
}

// Dtrsm solves op(A)·X = α·B or X·op(A) = α·B for a triangular A and an m×n matrix B. X
// overwrites B.
func (Implementation) Dtrsm(s blas.Side, ul blas.Uplo, t blas.Transpose, d blas.Diag, m, n int, alpha float64,
	a []float64, lda int, b []float64, ldb int) {
	double.triangularSolve(s, ul, t, d, m, n, alpha, a, lda, b, ldb)
}

// Sgemv computes y ← α·op(A)·x + β·y for an m×n matrix A.
func (Implementation) Sgemv(t blas.Transpose, m, n int, alpha float32, a []float32, lda int, x []float32, incX int,
	beta float32, y []float32, incY int) {
	single.matrixVector(t, m, n, alpha, a, lda, x, incX, beta, y, incY)
}

// Sger computes A ← α·x·yᵀ + A for an m×n matrix A.
func (Implementation) Sger(m, n int, alpha float32, x []float32, incX int, y []float32, incY int, a []float32,
	lda int) {
	single.outer(m, n, alpha, x, incX, y, incY, a, lda)
}

// Strmv computes x ← op(A)·x for a triangular n×n matrix A.
func (Implementation) Strmv(ul blas.Uplo, t blas.Transpose, d blas.Diag, n int, a []float32, lda int, x []float32,
	incX int) {
	single.triangularVector(ul, t, d, n, a, lda, x, incX)
}

// Strsv solves op(A)·x = b for a triangular n×n matrix A. x overwrites b.
func (Implementation) Strsv(ul blas.Uplo, t blas.Transpose, d blas.Diag, n int, a []float32, lda int, x []float32,
	incX int) {
	single.triangularVectorSolve(ul, t, d, n, a, lda, x, incX)
}

// Dgemv computes y ← α·op(A)·x + β·y for an m×n matrix A.
func (Implementation) Dgemv(t blas.Transpose, m, n int, alpha float64, a []float64, lda int, x []float64, incX int,
	beta float64, y []float64, incY int) {
	double.matrixVector(t, m, n, alpha, a, lda, x, incX, beta, y, incY)
}

// Dger computes A ← α·x·yᵀ + A for an m×n matrix A.
func (Implementation) Dger(m, n int, alpha float64, x []float64, incX int, y []float64, incY int, a []float64,
	lda int) {
	double.outer(m, n, alpha, x, incX, y, incY, a, lda)
}

// Dtrmv computes x ← op(A)·x for a triangular n×n matrix A.
func (Implementation) Dtrmv(ul blas.Uplo, t blas.Transpose, d blas.Diag, n int, a []float64, lda int, x []float64,
	incX int) {
	double.triangularVector(ul, t, d, n, a, lda, x, incX)
}

// Dtrsv solves op(A)·x = b for a triangular n×n matrix A. x overwrites b.
func (Implementation) Dtrsv(ul blas.Uplo, t blas.Transpose, d blas.Diag, n int, a []float64, lda int, x []float64,
	incX int) {
	double.triangularVectorSolve(ul, t, d, n, a, lda, x, incX)
}
