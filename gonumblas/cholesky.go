package gonumblas

import "tilework/internal/cpu/block"

// factorCholesky computes A = Uᵀ·U, or A = L·Lᵀ for a lower triangle. It reports whether A is
// positive definite.
func factorCholesky(a triangle[float64], room []float64) (ok bool) {
	if a.rows <= block.MaxSize {
		return double.blocks.Cholesky(a.block(), a.lower)
	}
	h, a1, a2, below := a.halves()
	if !factorCholesky(a1, room) {
		return false
	}
	u := below.t()
	if !a.lower {
		a1 = a1.t()
	}
	double.solve(1, a1, u)
	double.rankUpdate(h, 1, a2, room, func(beta float64, i, j, rows, cols int, c matrix[float64]) {
		double.gemm(-1, u.sub(0, i, h, rows).t(), u.sub(0, j, h, cols), beta, c)
	})
	return factorCholesky(a2, room)
}
