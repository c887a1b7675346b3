package gonumblas

import (
	"math/bits"
	"sync"

	"gonum.org/v1/gonum/blas"

	"tilework/internal/cpu/block"
)

// routines holds gonum's routines, which handle invalid arguments and empty matrices.
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

	blocks *block.Kernels[T]
	rooms  *sync.Pool // of *[]T, scratch memory
}

// borrow returns n elements of scratch memory. Return it to r.rooms.
func (r *routines[T]) borrow(n int) *[]T {
	room := r.rooms.Get().(*[]T)
	if cap(*room) < n {
		*room = make([]T, n)
	}
	*room = (*room)[:n]
	return room
}

// The methods below convert their arguments to views. If an argument is invalid or a matrix is
// empty, they forward the call to gonum's routine, which panics or has nothing to multiply.
//
// They forward small problems only of GEMV without a transposition, of GER with positive
// increments, and of TRMV and TRSV. In those gonum is faster. Its other routines skip zeros,
// multiply terms by α instead of sums, read C for β = 0, or read or clear elements outside a
// vector.

// product implements GEMM.
func (r *routines[T]) product(tA, tB blas.Transpose, m, n, k int, alpha T, a []T, lda int, b []T, ldb int, beta T,
	c []T, ldc int) {
	v := &views{}
	rsa, csa := v.strides(tA, m, k, lda, len(a))
	rsb, csb := v.strides(tB, k, n, ldb, len(b))
	v.strides(blas.NoTrans, m, n, ldc, len(c))
	switch {
	case v.bad:
		r.mul(tA, tB, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc)
	case terms(m, n, k) <= r.blocks.MaxTerms():
		r.blocks.Product(m, n, k, alpha, a, rsa, csa, b, rsb, csb, beta, c, ldc, 1)
	default:
		multiply(onCPU, alpha, matrix[T]{a, m, k, rsa, csa}, matrix[T]{b, k, n, rsb, csb}, beta, matrix[T]{c, m, n, ldc, 1})
	}
}

// symmetric implements SYMM.
func (r *routines[T]) symmetric(s blas.Side, ul blas.Uplo, m, n int, alpha T, a []T, lda int, b []T, ldb int, beta T,
	c []T, ldc int) {
	v := &views{}
	side := v.side(s, m, n)
	va := triangle[T]{matrix: view(v, side, side, lda, a), lower: v.lower(ul)}
	vb, vc := view(v, m, n, ldb, b), view(v, m, n, ldc, c)
	if v.bad {
		r.symm(s, ul, m, n, alpha, a, lda, b, ldb, beta, c, ldc)
		return
	}
	if s == blas.Right { // C = B·A is Cᵀ = A·Bᵀ
		vb, vc = vb.t(), vc.t()
	}
	size := rankRoom(side)
	if !multipliesParts(alpha) {
		size = side * side
	}
	room := r.borrow(size)
	r.symmetricProduct(alpha, va, vb, beta, vc, *room)
	r.rooms.Put(room)
}

// rankK implements SYRK.
func (r *routines[T]) rankK(ul blas.Uplo, t blas.Transpose, n, k int, alpha T, a []T, lda int, beta T, c []T, ldc int) {
	v := &views{}
	va, vc := operand(v, t, n, k, lda, a), triangle[T]{matrix: view(v, n, n, ldc, c), lower: v.lower(ul)}
	if v.bad {
		if k == 0 {
			alpha = 0 // otherwise gonum reads C for β = 0
		}
		r.syrk(ul, t, n, k, alpha, a, lda, beta, c, ldc)
		return
	}
	if terms(n, n, k) <= smallRank {
		smallRankUpdate(alpha, va, va, false, beta, vc)
		return
	}
	room := r.borrow(rankRoom(n))
	defer r.rooms.Put(room)
	r.rankUpdate(k, beta, vc, *room, func(beta T, i, j, rows, cols int, c matrix[T]) {
		r.gemm(alpha, va.sub(i, 0, rows, k), va.sub(j, 0, cols, k).t(), beta, c)
	})
}

// rank2K implements SYR2K.
func (r *routines[T]) rank2K(ul blas.Uplo, t blas.Transpose, n, k int, alpha T, a []T, lda int, b []T, ldb int, beta T,
	c []T, ldc int) {
	v := &views{}
	va, vb := operand(v, t, n, k, lda, a), operand(v, t, n, k, ldb, b)
	vc := triangle[T]{matrix: view(v, n, n, ldc, c), lower: v.lower(ul)}
	if v.bad {
		if k == 0 {
			alpha = 0 // otherwise gonum reads C for β = 0
		}
		r.syr2k(ul, t, n, k, alpha, a, lda, b, ldb, beta, c, ldc)
		return
	}
	if terms(n, n, k) <= smallRank {
		smallRankUpdate(alpha, va, vb, true, beta, vc)
		return
	}
	room := r.borrow(rankRoom(n))
	defer r.rooms.Put(room)
	if !multipliesParts(alpha) { // a single product, of [A B] and [B A]ᵀ
		operands := r.borrow(4 * n * k)
		defer r.rooms.Put(operands)
		ab, ba := beside(va, vb, (*operands)[:2*n*k]), beside(vb, va, (*operands)[2*n*k:])
		r.rankUpdate(2*k, beta, vc, *room, func(beta T, i, j, rows, cols int, c matrix[T]) {
			r.gemm(alpha, ab.sub(i, 0, rows, 2*k), ba.sub(j, 0, cols, 2*k).t(), beta, c)
		})
		return
	}
	r.rankUpdate(k, beta, vc, *room, func(beta T, i, j, rows, cols int, c matrix[T]) {
		r.gemm(alpha, va.sub(i, 0, rows, k), vb.sub(j, 0, cols, k).t(), beta, c)
		r.gemm(alpha, vb.sub(i, 0, rows, k), va.sub(j, 0, cols, k).t(), 1, c)
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
	rows, cols := m, n
	switch {
	case t != blas.NoTrans:
		rows, cols = n, m
	case m*n < minVectorTerms:
		r.gemv(t, m, n, alpha, a, lda, x, incX, beta, y, incY)
		return
	}
	v := &views{}
	down, right := v.strides(t, rows, cols, lda, len(a))
	v.elements(cols, incX, len(x))
	v.elements(rows, incY, len(y))
	switch {
	case v.bad:
		r.gemv(t, m, n, alpha, a, lda, x, incX, beta, y, incY)
	case incX != 1 || incY != 1:
		room := r.borrow(rows + cols)
		from, to := (*room)[:cols], (*room)[cols:]
		vx, vy := vector[T]{x, cols, incX}, vector[T]{y, rows, incY}
		vx.copyTo(from)
		vy.copyTo(to)
		r.timesVector(rows, cols, alpha, a, down, right, from, beta, to)
		vy.set(to)
		r.rooms.Put(room)
	default:
		r.timesVector(rows, cols, alpha, a, down, right, x, beta, y)
	}
}

// timesVector computes y ← α·A·x + β·y.
func (r *routines[T]) timesVector(rows, cols int, alpha T, a []T, down, right int, x []T, beta T, y []T) {
	if terms(rows, cols, 1) <= r.blocks.MaxTerms() {
		r.blocks.Product(rows, 1, cols, alpha, a, down, right, x, 1, 1, beta, y, 1, 1)
		return
	}
	r.gemm(alpha, matrix[T]{a, rows, cols, down, right}, dense(cols, 1, x), beta, dense(rows, 1, y))
}

// outer implements GER.
func (r *routines[T]) outer(m, n int, alpha T, x []T, incX int, y []T, incY int, a []T, lda int) {
	if m*n < minVectorTerms && incX > 0 && incY > 0 {
		r.ger(m, n, alpha, x, incX, y, incY, a, lda)
		return
	}
	v := &views{}
	v.strides(blas.NoTrans, m, n, lda, len(a))
	v.elements(m, incX, len(x))
	v.elements(n, incY, len(y))
	switch {
	case v.bad:
		r.ger(m, n, alpha, x, incX, y, incY, a, lda)
	case incX != 1 || incY != 1:
		room := r.borrow(m + n)
		left, right := (*room)[:m], (*room)[m:]
		vector[T]{x, m, incX}.copyTo(left)
		vector[T]{y, n, incY}.copyTo(right)
		r.addOuter(alpha, left, right, a, lda)
		r.rooms.Put(room)
	default:
		r.addOuter(alpha, x[:m], y[:n], a, lda)
	}
}

// addOuter computes A ← α·x·yᵀ + A.
func (r *routines[T]) addOuter(alpha T, x, y, a []T, lda int) {
	m, n := len(x), len(y)
	switch {
	case alpha == 0:
	case m*n <= vectorTerms:
		r.blocks.Outer(alpha, x, y, a, lda)
	default:
		multiply(onCPU, alpha, dense(m, 1, x), dense(1, n, y), 1, matrix[T]{a, m, n, lda, 1})
	}
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
	if n*n < least {
		native(ul, t, d, n, a, lda, x, incX)
		return
	}
	v := &views{bad: d != blas.NonUnit && d != blas.Unit}
	va := triangle[T]{operand(v, t, n, n, lda, a), v.lower(ul) != (t != blas.NoTrans), d}
	v.elements(n, incX, len(x))
	vx := vector[T]{x, n, incX}
	switch {
	case v.bad:
		native(ul, t, d, n, a, lda, x, incX)
	case incX == 1:
		blocked(1, va, dense(n, 1, x))
	default:
		room := r.borrow(n)
		vx.copyTo(*room)
		blocked(1, va, dense(n, 1, *room))
		vx.set(*room)
		r.rooms.Put(room)
	}
}

// inBlocks computes a routine with blocked, which takes A on the left. It forwards the call to
// native if an argument is invalid.
func inBlocks[T float32 | float64](blocked func(T, triangle[T], matrix[T]), native inPlace[T], s blas.Side,
	ul blas.Uplo, t blas.Transpose, d blas.Diag, m, n int, alpha T, a []T, lda int, b []T, ldb int) {
	va, vb, ok := triangular(s, ul, t, d, m, n, a, lda, b, ldb)
	switch {
	case !ok:
		native(s, ul, t, d, m, n, alpha, a, lda, b, ldb)
	case alpha == 0:
		for i := range m {
			clear(b[i*ldb:][:n])
		}
	default:
		blocked(alpha, va, vb)
	}
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

// strides checks an operand of rows×cols elements with leading dimension ld, in memory of size
// elements, and returns the distances of its rows and columns. The conjugate transpose of a real
// matrix is its transpose. An empty matrix is valid, but gonum's routine handles it.
func (v *views) strides(t blas.Transpose, rows, cols, ld, size int) (down, right int) {
	down, right = ld, 1
	if t != blas.NoTrans {
		v.bad = v.bad || t != blas.Trans && t != blas.ConjTrans
		down, right, rows, cols = 1, ld, cols, rows
	}
	v.bad = v.bad || rows < 1 || cols < 1 || ld < cols || !spans(rows, ld, cols, size)
	return down, right
}

// elements checks a vector of n elements that are inc apart, in memory of size elements.
func (v *views) elements(n, inc, size int) {
	v.bad = v.bad || n < 1 || inc == 0 || !spans(n, max(inc, -inc), 1, size)
}

// spans reports whether n ≥ 1 runs of the given length that are stride apart fit in size elements.
func spans(n, stride, length, size int) bool {
	more, offset := bits.Mul64(uint64(n-1), uint64(stride))
	return more == 0 && length <= size && offset <= uint64(size-length)
}

// vector is a view of n elements that are inc apart. If inc is negative, the last element in memory
// is the first one.
type vector[T float32 | float64] struct {
	data   []T
	n, inc int
}

// first returns the position of the first element.
func (v vector[T]) first() int { return max(0, (1-v.n)*v.inc) }

// copyTo copies the elements to contiguous ones.
func (v vector[T]) copyTo(to []T) {
	at := v.first()
	for i := range to {
		to[i] = v.data[at]
		at += v.inc
	}
}

// set copies contiguous elements to those of the vector.
func (v vector[T]) set(from []T) {
	at := v.first()
	for _, x := range from {
		v.data[at] = x
		at += v.inc
	}
}

// operand returns the rows×cols matrix op(X).
func operand[T float32 | float64](v *views, t blas.Transpose, rows, cols, ld int, data []T) matrix[T] {
	down, right := v.strides(t, rows, cols, ld, len(data))
	return matrix[T]{data, rows, cols, down, right}
}

// view returns a row-major matrix with leading dimension ld.
func view[T float32 | float64](v *views, rows, cols, ld int, data []T) matrix[T] {
	return operand(v, blas.NoTrans, rows, cols, ld, data)
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
