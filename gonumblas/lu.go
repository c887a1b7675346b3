package gonumblas

import (
	"gonum.org/v1/gonum/blas"

	"tilework/internal/cpu/block"
	"tilework/internal/ints"
)

// factorLU computes A = P·L·U. Row i was exchanged with row pivots[i] ≥ i, for one i after the
// other. It reports whether all pivots are non-zero. It splits the columns as in S. Toledo,
// "Locality of reference in LU decomposition with partial pivoting", 1997.
func factorLU(a matrix[float64], pivots []int) (ok bool) {
	n := len(pivots)
	if n <= block.MaxColumns {
		return double.blocks.LU(a.block(), pivots)
	}
	h := ints.RoundUp(n/2, wholeRows)
	left, right := a.sub(0, 0, a.rows, h), a.sub(0, h, a.rows, a.cols-h)
	top, bottom := left.split(h)
	ok = factorLU(left, pivots[:h])
	block.ExchangeRows(right.block(), pivots[:h])
	u, rest := right.split(h)
	double.solve(1, triangle[float64]{top, true, blas.Unit}, u)
	double.gemm(-1, bottom, u, 1, rest)
	ok = factorLU(rest, pivots[h:]) && ok
	block.ExchangeRows(bottom.block(), pivots[h:])
	for i := range pivots[h:] {
		pivots[h+i] += h
	}
	return ok
}
