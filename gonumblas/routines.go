package gonumblas

import (
	"gonum.org/v1/gonum/blas"

	"tilework"
)

// routines holds gonum's routines, which handle small problems and invalid arguments.
type routines[T float32 | float64] struct {
	gemm  func(tA, tB blas.Transpose, m, n, k int, alpha T, a []T, lda int, b []T, ldb int, beta T, c []T, ldc int)
	symm  func(s blas.Side, ul blas.Uplo, m, n int, alpha T, a []T, lda int, b []T, ldb int, beta T, c []T, ldc int)
	syrk  func(ul blas.Uplo, t blas.Transpose, n, k int, alpha T, a []T, lda int, beta T, c []T, ldc int)
	syr2k func(ul blas.Uplo, t blas.Transpose, n, k int, alpha T, a []T, lda int, b []T, ldb int, beta T, c []T,
		ldc int)
	trmm inPlace[T]
	trsm inPlace[T]
}

// The methods below convert their arguments to views. If an argument is invalid or the problem is
// too small to benefit from splitting, they forward the call to gonum's routine.

// product implements GEMM.
func (r *routines[T]) product(tA, tB blas.Transpose, m, n, k int, alpha T, a []T, lda int, b []T, ldb int, beta T,
	c []T, ldc int) {
	v := &views{bad: m*n*k < minTerms}
	va, vb, vc := operand(v, tA, m, k, lda, a), operand(v, tB, k, n, ldb, b), view(v, m, n, ldc, c)
	if v.bad {
		r.gemm(tA, tB, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc)
		return
	}
	gemm(alpha, va, vb, beta, vc)
}

// symmetric implements SYMM.
func (r *routines[T]) symmetric(s blas.Side, ul blas.Uplo, m, n int, alpha T, a []T, lda int, b []T, ldb int, beta T,
	c []T, ldc int) {
	v := &views{}
	side := v.side(s, m, n)
	va := triangle[T]{Matrix: view(v, side, side, lda, a), lower: v.lower(ul)}
	vb, vc := view(v, m, n, ldb, b), view(v, m, n, ldc, c)
	if v.bad || alpha == 0 || min(m, n) < 2*leaf {
		r.symm(s, ul, m, n, alpha, a, lda, b, ldb, beta, c, ldc)
		return
	}
	if s == blas.Right { // C = B·A is Cᵀ = A·Bᵀ
		vb, vc = vb.T(), vc.T()
	}
	symm(alpha, va, vb, beta, vc, scratch[T]())
}

// rankK implements SYRK.
func (r *routines[T]) rankK(ul blas.Uplo, t blas.Transpose, n, k int, alpha T, a []T, lda int, beta T, c []T, ldc int) {
	v := &views{}
	va, vc := operand(v, t, n, k, lda, a), triangle[T]{Matrix: view(v, n, n, ldc, c), lower: v.lower(ul)}
	if v.bad || alpha == 0 || n < 2*leaf || k < 1 {
		r.syrk(ul, t, n, k, alpha, a, lda, beta, c, ldc)
		return
	}
	rankUpdate(beta, vc, scratch[T](), func(beta T, i, j, rows, cols int, c tilework.Matrix[T]) {
		gemm(alpha, va.Sub(i, 0, rows, k), va.Sub(j, 0, cols, k).T(), beta, c)
	})
}

// rank2K implements SYR2K.
func (r *routines[T]) rank2K(ul blas.Uplo, t blas.Transpose, n, k int, alpha T, a []T, lda int, b []T, ldb int, beta T,
	c []T, ldc int) {
	v := &views{}
	va, vb := operand(v, t, n, k, lda, a), operand(v, t, n, k, ldb, b)
	vc := triangle[T]{Matrix: view(v, n, n, ldc, c), lower: v.lower(ul)}
	if v.bad || alpha == 0 || n < 2*leaf || k < 1 {
		r.syr2k(ul, t, n, k, alpha, a, lda, b, ldb, beta, c, ldc)
		return
	}
	rankUpdate(beta, vc, scratch[T](), func(beta T, i, j, rows, cols int, c tilework.Matrix[T]) {
		gemm(alpha, va.Sub(i, 0, rows, k), vb.Sub(j, 0, cols, k).T(), beta, c)
		gemm(alpha, vb.Sub(i, 0, rows, k), va.Sub(j, 0, cols, k).T(), 1, c)
	})
}

// triangularProduct implements TRMM.
func (r *routines[T]) triangularProduct(s blas.Side, ul blas.Uplo, t blas.Transpose, d blas.Diag, m, n int, alpha T,
	a []T, lda int, b []T, ldb int) {
	inBlocks(trmm[T], r.trmm, s, ul, t, d, m, n, alpha, a, lda, b, ldb)
}

// triangularSolve implements TRSM.
func (r *routines[T]) triangularSolve(s blas.Side, ul blas.Uplo, t blas.Transpose, d blas.Diag, m, n int, alpha T,
	a []T, lda int, b []T, ldb int) {
	inBlocks(trsm[T], r.trsm, s, ul, t, d, m, n, alpha, a, lda, b, ldb)
}

// inBlocks computes a routine with blocked, which takes A on the left and uses native for its
// smallest blocks. It calls native for the whole product if an argument is invalid or alpha is 0.
func inBlocks[T float32 | float64](blocked func(T, triangle[T], tilework.Matrix[T], inPlace[T]), native inPlace[T],
	s blas.Side, ul blas.Uplo, t blas.Transpose, d blas.Diag, m, n int, alpha T, a []T, lda int, b []T, ldb int) {
	va, vb, ok := triangular(s, ul, t, d, m, n, a, lda, b, ldb)
	if !ok || alpha == 0 {
		native(s, ul, t, d, m, n, alpha, a, lda, b, ldb)
		return
	}
	blocked(alpha, va, vb, native)
}

// triangular returns views of op(A) and B. If A is on the right, it returns their transposes, so
// that A is always on the left. It reports false if an argument is invalid.
func triangular[T float32 | float64](s blas.Side, ul blas.Uplo, t blas.Transpose, d blas.Diag, m, n int, a []T,
	lda int, b []T, ldb int) (triangle[T], tilework.Matrix[T], bool) {
	v := &views{bad: d != blas.NonUnit && d != blas.Unit}
	side := v.side(s, m, n)
	va := triangle[T]{operand(v, t, side, side, lda, a), v.lower(ul) != (t != blas.NoTrans), d}
	vb := view(v, m, n, ldb, b)
	if s == blas.Right { // B·A is (Aᵀ·Bᵀ)ᵀ
		va, vb = va.t(), vb.T()
	}
	return va, vb, !v.bad
}

// views creates views of arguments and records whether one of them was invalid.
type views struct{ bad bool }

// view returns a row-major matrix with leading dimension ld.
func view[T float32 | float64](v *views, rows, cols, ld int, data []T) tilework.Matrix[T] {
	if rows < 1 || cols < 1 || ld < cols {
		v.bad = true // an empty matrix is valid, but gonum's routine handles it
		return tilework.Matrix[T]{}
	}
	m := tilework.FromStrided(rows, cols, ld, data)
	v.bad = v.bad || m.Err() != nil
	return m
}

// operand returns the rows×cols matrix op(X). The conjugate transpose of a real matrix is its
// transpose.
func operand[T float32 | float64](v *views, t blas.Transpose, rows, cols, ld int, data []T) tilework.Matrix[T] {
	switch t {
	case blas.NoTrans:
		return view(v, rows, cols, ld, data)
	case blas.Trans, blas.ConjTrans:
		return view(v, cols, rows, ld, data).T()
	}
	v.bad = true
	return tilework.Matrix[T]{}
}

// side returns the size of a square matrix that multiplies an m×n matrix from side s.
func (v *views) side(s blas.Side, m, n int) int {
	switch s {
	case blas.Left:
		return m
	case blas.Right:
		return n
	}
	v.bad = true
	return 0
}

// lower reports whether ul selects the lower triangle.
func (v *views) lower(ul blas.Uplo) bool {
	v.bad = v.bad || ul != blas.Lower && ul != blas.Upper
	return ul == blas.Lower
}
