package gonumblas

import (
	"gonum.org/v1/gonum/blas"

	"tilework/internal/cpu/block"
)

// rankRoom returns the number of elements of scratch memory for a symmetric n×n matrix.
func rankRoom(n int) int { return min(n, symmBlock) * min(n, symmBlock) }

// multipliesParts reports whether α may multiply the parts of a sum: it cannot make one overflow.
func multipliesParts[T float32 | float64](alpha T) bool { return -1 <= alpha && alpha <= 1 }

// symmetricProduct computes C ← α·A·B + β·C for a symmetric A. room has the elements of A if α may
// not multiply parts, and otherwise rankRoom(a.rows) elements.
func (r *routines[T]) symmetricProduct(alpha T, a triangle[T], b matrix[T], beta T, c matrix[T], room []T) {
	n := a.rows
	if n <= symmBlock || !multipliesParts(alpha) {
		whole := room[:n*n]
		for i := range n {
			part, first := a.row(i)
			copy(whole[i*n+first:], part)
			for j, v := range part {
				whole[(first+j)*n+i] = v
			}
		}
		r.gemm(alpha, dense(n, n, whole), b, beta, c)
		return
	}
	h, a1, a2, below := a.halves()
	b1, b2 := b.split(h)
	c1, c2 := c.split(h)
	r.symmetricProduct(alpha, a1, b1, beta, c1, room)
	r.gemm(alpha, below.t(), b2, 1, c1)
	r.symmetricProduct(alpha, a2, b2, beta, c2, room)
	r.gemm(alpha, below, b1, 1, c2)
}

// rankUpdate computes a triangle of C ← P + β·C, where P is a symmetric product of rank k. part
// computes the rows×cols block of P at (i, j): c ← P(i, j) + β·c.
func (r *routines[T]) rankUpdate(k int, beta T, c triangle[T], room []T,
	part func(beta T, i, j, rows, cols int, c matrix[T])) {
	n := c.rows
	if n <= rankBlock || n <= symmBlock && terms(n, n, k) <= rankTerms {
		whole := room[:n*n]
		part(0, 0, 0, n, n, dense(n, n, whole))
		for i := range n {
			to, first := c.row(i)
			from := whole[i*n+first:][:len(to)]
			if beta == 0 {
				copy(to, from)
				continue
			}
			for j, v := range from {
				to[j] = v + beta*to[j]
			}
		}
		return
	}
	h, c1, c2, below := c.halves()
	r.rankUpdate(k, beta, c1, room, part)
	part(beta, h, 0, n-h, h, below)
	r.rankUpdate(k, beta, c2, room, func(beta T, i, j, rows, cols int, c matrix[T]) {
		part(beta, h+i, h+j, rows, cols, c)
	})
}

// multiply computes B ← α·A·B.
func (r *routines[T]) multiply(alpha T, a triangle[T], b matrix[T]) {
	switch {
	case !multipliesParts(alpha):
		r.multiply(1, a, b)
		b.scale(alpha)
		return
	case a.rows > block.MaxSize:
	case terms(a.rows, a.rows, b.cols) <= smallTriangle:
		smallMultiply(alpha, a, b)
		return
	case isVector(b) && alpha == 1:
		r.blocks.MultiplyVector(a.block(), a.lower, a.diag == blas.Unit, b.data)
		return
	default:
		r.blocks.Multiply(alpha, a.block(), a.lower, a.diag == blas.Unit, b.block())
		return
	}
	h, a1, a2, between := a.halves()
	b1, b2 := b.split(h)
	if a.lower {
		r.multiply(alpha, a2, b2)
		r.gemm(alpha, between, b1, 1, b2)
		r.multiply(alpha, a1, b1)
		return
	}
	r.multiply(alpha, a1, b1)
	r.gemm(alpha, between.t(), b2, 1, b1)
	r.multiply(alpha, a2, b2)
}

// solve computes B ← α·A⁻¹·B.
func (r *routines[T]) solve(alpha T, a triangle[T], b matrix[T]) {
	switch {
	case a.rows > block.MaxSize:
	case terms(a.rows, a.rows, b.cols) <= smallTriangle:
		smallSolve(alpha, a, b)
		return
	case isVector(b) && alpha == 1:
		r.blocks.SolveVector(a.block(), a.lower, a.diag == blas.Unit, b.data)
		return
	default:
		r.blocks.Solve(alpha, a.block(), a.lower, a.diag == blas.Unit, b.block())
		return
	}
	h, a1, a2, between := a.halves()
	b1, b2 := b.split(h)
	if a.lower {
		r.solve(alpha, a1, b1)
		r.gemm(-1, between, b1, alpha, b2)
		r.solve(1, a2, b2)
		return
	}
	r.solve(alpha, a2, b2)
	r.gemm(-1, between.t(), b2, alpha, b1)
	r.solve(1, a1, b1)
}

// inPlace is the type of gonum's TRMM and TRSM.
type inPlace[T float32 | float64] func(s blas.Side, ul blas.Uplo, t blas.Transpose, d blas.Diag, m, n int, alpha T,
	a []T, lda int, b []T, ldb int)

// inVector is the type of gonum's TRMV and TRSV.
type inVector[T float32 | float64] func(ul blas.Uplo, t blas.Transpose, d blas.Diag, n int, a []T, lda int, x []T,
	incX int)
