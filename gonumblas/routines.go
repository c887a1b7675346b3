package gonumblas

import (
	"sync"

	"gonum.org/v1/gonum/blas"

	"tilework/internal/cpu/block"
)

// routines holds gonum's routines, which handle small problems and invalid arguments.
type routines[T float32 | float64] struct {
	mul   func(tA, tB blas.Transpose, m, n, k int, alpha T, a []T, lda int, b []T, ldb int, beta T, c []T, ldc int)
	symm  func(s blas.Side, ul blas.Uplo, m, n int, alpha T, a []T, lda int, b []T, ldb int, beta T, c []T, ldc int)
	syrk  func(ul blas.Uplo, t blas.Transpose, n, k int, alpha T, a []T, lda int, beta T, c []T, ldc int)
	syr2k func(ul blas.Uplo, t blas.Transpose, n, k int, alpha T, a []T, lda int, b []T, ldb int, beta T, c []T,
		ldc int)
	trmm inPlace[T]
	trsm inPlace[T]
	gemv func(t blas.Transpose, m, n int, alpha T, a []T, lda int, x []T, incX int, beta T, y []T, incY int)
	ger  func(m, n int, alpha T, x []T, incX int, y []T, incY int, a []T, lda int)
	trmv inVector[T]
	trsv inVector[T]
	room *sync.Pool // of *scratch[T]

	blocks *block.Kernels[T]
}

// The methods below convert their arguments to views. If an argument is invalid or the problem is
// too small to benefit from splitting, they forward the call to gonum's routine.

// product implements GEMM.
func (r *routines[T]) product(tA, tB blas.Transpose, m, n, k int, alpha T, a []T, lda int, b []T, ldb int, beta T,
	c []T, ldc int) {
	v := &views{bad: terms(m, n, k) < minTerms}
	va, vb, vc := operand(v, tA, m, k, lda, a), operand(v, tB, k, n, ldb, b), view(v, m, n, ldc, c)
	if v.bad {
		r.mul(tA, tB, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc)
		return
	}
	gemm(alpha, va, vb, beta, vc)
}

// symmetric implements SYMM.
func (r *routines[T]) symmetric(s blas.Side, ul blas.Uplo, m, n int, alpha T, a []T, lda int, b []T, ldb int, beta T,
	c []T, ldc int) {
	v := &views{}
	side := v.side(s, m, n)
	va := triangle[T]{matrix: view(v, side, side, lda, a), lower: v.lower(ul)}
	vb, vc := view(v, m, n, ldb, b), view(v, m, n, ldc, c)
	if v.bad || alpha == 0 || terms(m, n, side) < minTerms {
		r.symm(s, ul, m, n, alpha, a, lda, b, ldb, beta, c, ldc)
		return
	}
	if s == blas.Right { // C = B·A is Cᵀ = A·Bᵀ
		vb, vc = vb.t(), vc.t()
	}
	room := r.room.Get().(*scratch[T])
	defer r.room.Put(room)
	symm(alpha, va, vb, beta, vc, room)
}

// rankK implements SYRK.
func (r *routines[T]) rankK(ul blas.Uplo, t blas.Transpose, n, k int, alpha T, a []T, lda int, beta T, c []T, ldc int) {
	v := &views{}
	va, vc := operand(v, t, n, k, lda, a), triangle[T]{matrix: view(v, n, n, ldc, c), lower: v.lower(ul)}
	if v.bad || alpha == 0 || terms(n, n, k) < minTerms {
		r.syrk(ul, t, n, k, alpha, a, lda, beta, c, ldc)
		return
	}
	room := r.room.Get().(*scratch[T])
	defer r.room.Put(room)
	rankUpdate(k, beta, vc, room, func(beta T, i, j, rows, cols int, c matrix[T]) {
		gemm(alpha, va.sub(i, 0, rows, k), va.sub(j, 0, cols, k).t(), beta, c)
	})
}

// rank2K implements SYR2K.
func (r *routines[T]) rank2K(ul blas.Uplo, t blas.Transpose, n, k int, alpha T, a []T, lda int, b []T, ldb int, beta T,
	c []T, ldc int) {
	v := &views{}
	va, vb := operand(v, t, n, k, lda, a), operand(v, t, n, k, ldb, b)
	vc := triangle[T]{matrix: view(v, n, n, ldc, c), lower: v.lower(ul)}
	if v.bad || alpha == 0 || terms(n, n, k) < minTerms {
		r.syr2k(ul, t, n, k, alpha, a, lda, b, ldb, beta, c, ldc)
		return
	}
	room := r.room.Get().(*scratch[T])
	defer r.room.Put(room)
	rankUpdate(k, beta, vc, room, func(beta T, i, j, rows, cols int, c matrix[T]) {
		gemm(alpha, va.sub(i, 0, rows, k), vb.sub(j, 0, cols, k).t(), beta, c)
		gemm(alpha, vb.sub(i, 0, rows, k), va.sub(j, 0, cols, k).t(), 1, c)
	})
}

// triangularProduct implements TRMM.
func (r *routines[T]) triangularProduct(s blas.Side, ul blas.Uplo, t blas.Transpose, d blas.Diag, m, n int, alpha T,
	a []T, lda int, b []T, ldb int) {
	inBlocks(r.multiply, r.trmm, s, ul, t, d, m, n, alpha, a, lda, b, ldb)
}

// triangularSolve implements TRSM.
func (r *routines[T]) triangularSolve(s blas.Side, ul blas.Uplo, t blas.Transpose, d blas.Diag, m, n int, alpha T,
	a []T, lda int, b []T, ldb int) {
	inBlocks(r.solve, r.trsm, s, ul, t, d, m, n, alpha, a, lda, b, ldb)
}

// matrixVector implements GEMV.
func (r *routines[T]) matrixVector(t blas.Transpose, m, n int, alpha T, a []T, lda int, x []T, incX int, beta T, y []T,
	incY int) {
	if m*n < minVectorTerms {
		r.gemv(t, m, n, alpha, a, lda, x, incX, beta, y, incY)
		return
	}
	v, rows, cols := &views{}, m, n
	if t != blas.NoTrans {
		rows, cols = n, m
	}
	va, vx, vy := operand(v, t, rows, cols, lda, a), view(v, cols, 1, incX, x), view(v, rows, 1, incY, y)
	if v.bad || alpha == 0 || m*n <= stridedTerms && (incX != 1 || incY != 1) {
		r.gemv(t, m, n, alpha, a, lda, x, incX, beta, y, incY)
		return
	}
	r.gemm(alpha, va, vx, beta, vy)
}

// outer implements GER.
func (r *routines[T]) outer(m, n int, alpha T, x []T, incX int, y []T, incY int, a []T, lda int) {
	if m*n < minVectorTerms || m*n <= stridedTerms && (incX != 1 || incY != 1) {
		r.ger(m, n, alpha, x, incX, y, incY, a, lda)
		return
	}
	v := &views{}
	vx, vy, va := view(v, m, 1, incX, x), view(v, n, 1, incY, y), view(v, m, n, lda, a)
	if v.bad || alpha == 0 {
		r.ger(m, n, alpha, x, incX, y, incY, a, lda)
		return
	}
	if incX == 1 && incY == 1 && m*n <= vectorTerms {
		r.blocks.Outer(alpha, x, y, va.block())
		return
	}
	gemm(alpha, vx, vy.t(), 1, va)
}

// triangularVector implements TRMV.
func (r *routines[T]) triangularVector(ul blas.Uplo, t blas.Transpose, d blas.Diag, n int, a []T, lda int, x []T,
	incX int) {
	r.onVector(r.multiply, r.trmv, minTrmvTerms, ul, t, d, n, a, lda, x, incX)
}

// triangularVectorSolve implements TRSV.
func (r *routines[T]) triangularVectorSolve(ul blas.Uplo, t blas.Transpose, d blas.Diag, n int, a []T, lda int, x []T,
	incX int) {
	r.onVector(r.solve, r.trsv, minVectorTerms, ul, t, d, n, a, lda, x, incX)
}

// onVector computes a routine with blocked, or with native if an argument is invalid or the matrix
// has fewer than least elements. It copies a vector whose elements are not contiguous.
func (r *routines[T]) onVector(blocked func(T, triangle[T], matrix[T]), native inVector[T], least int, ul blas.Uplo,
	t blas.Transpose, d blas.Diag, n int, a []T, lda int, x []T, incX int) {
	if n*n < least || n > len(scratch[T]{}) {
		native(ul, t, d, n, a, lda, x, incX)
		return
	}
	v := &views{bad: d != blas.NonUnit && d != blas.Unit}
	va := triangle[T]{operand(v, t, n, n, lda, a), v.lower(ul) != (t != blas.NoTrans), d}
	vx := view(v, n, 1, incX, x)
	switch {
	case v.bad:
		native(ul, t, d, n, a, lda, x, incX)
	case incX == 1:
		blocked(1, va, vx)
	default:
		room := r.room.Get().(*scratch[T])
		defer r.room.Put(room)
		column := dense(n, 1, room[:n])
		column.set(vx)
		blocked(1, va, column)
		vx.set(column)
	}
}

// inBlocks computes a routine with blocked, which takes A on the left. It forwards the call to
// native if an argument is invalid, alpha is 0 or the problem is small.
func inBlocks[T float32 | float64](blocked func(T, triangle[T], matrix[T]), native inPlace[T], s blas.Side,
	ul blas.Uplo, t blas.Transpose, d blas.Diag, m, n int, alpha T, a []T, lda int, b []T, ldb int) {
	isSmall := terms(m, m, n) < minTerms
	if s == blas.Right {
		isSmall = terms(n, n, m) < minTerms || m < fewRows && n <= block.MaxSize
	}
	if isSmall {
		native(s, ul, t, d, m, n, alpha, a, lda, b, ldb)
		return
	}
	va, vb, ok := triangular(s, ul, t, d, m, n, a, lda, b, ldb)
	if !ok || alpha == 0 {
		native(s, ul, t, d, m, n, alpha, a, lda, b, ldb)
		return
	}
	blocked(alpha, va, vb)
}

// triangular returns views of op(A) and B. If A is on the right, it returns their transposes, so
// that A is always on the left. It reports false if an argument is invalid.
func triangular[T float32 | float64](s blas.Side, ul blas.Uplo, t blas.Transpose, d blas.Diag, m, n int, a []T,
	lda int, b []T, ldb int) (triangle[T], matrix[T], bool) {
	v := &views{bad: d != blas.NonUnit && d != blas.Unit}
	side := v.side(s, m, n)
	va := triangle[T]{operand(v, t, side, side, lda, a), v.lower(ul) != (t != blas.NoTrans), d}
	vb := view(v, m, n, ldb, b)
	if s == blas.Right { // B·A is (Aᵀ·Bᵀ)ᵀ
		va, vb = va.t(), vb.t()
	}
	return va, vb, !v.bad
}

// views creates views of arguments and records whether one of them was invalid.
type views struct{ bad bool }

// view returns a row-major matrix with leading dimension ld.
func view[T float32 | float64](v *views, rows, cols, ld int, data []T) matrix[T] {
	if rows < 1 || cols < 1 || ld < cols || len(data) < cols || (len(data)-cols)/ld < rows-1 {
		v.bad = true // an empty matrix is valid, but gonum's routine handles it
		return matrix[T]{}
	}
	return matrix[T]{data, rows, cols, ld, 1}
}

// operand returns the rows×cols matrix op(X). The conjugate transpose of a real matrix is its
// transpose.
func operand[T float32 | float64](v *views, t blas.Transpose, rows, cols, ld int, data []T) matrix[T] {
	switch t {
	case blas.NoTrans:
		return view(v, rows, cols, ld, data)
	case blas.Trans, blas.ConjTrans:
		return view(v, cols, rows, ld, data).t()
	}
	v.bad = true
	return matrix[T]{}
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
