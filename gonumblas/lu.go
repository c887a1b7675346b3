package gonumblas

import (
	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/lapack/gonum"
)

// factorLU computes A = P·L·U. Row i was exchanged with row pivots[i] ≥ i, for one i after the
// other. It reports whether all pivots are non-zero. It splits the columns as in S. Toledo,
// "Locality of reference in LU decomposition with partial pivoting", 1997.
func factorLU(a matrix[float64], pivots []int) (ok bool) {
	if len(pivots) <= luLeaf || a.rows*a.cols <= smallLU {
		return gonum.Implementation{}.Dgetf2(a.rows, a.cols, a.data, a.down, pivots)
	}
	h := (len(pivots)/2 + luLeaf - 1) / luLeaf * luLeaf
	left, right := a.sub(0, 0, a.rows, h), a.sub(0, h, a.rows, a.cols-h)
	ok = factorLU(left, pivots[:h])
	for i, p := range pivots[:h] {
		swapRows(right, i, p)
	}
	top, bottom := left.split(h)
	u, rest := right.split(h)
	double.solve(1, triangle[float64]{top, true, blas.Unit}, u)
	gemm(-1, bottom, u, 1, rest)
	ok = factorLU(rest, pivots[h:]) && ok
	for i, p := range pivots[h:] {
		swapRows(bottom, i, p)
		pivots[h+i] += h
	}
	return ok
}

// swapRows exchanges rows i and p.
func swapRows(a matrix[float64], i, p int) {
	if i == p {
		return
	}
	x, y := a.data[i*a.down:][:a.cols], a.data[p*a.down:][:a.cols]
	for j, v := range x {
		x[j], y[j] = y[j], v
	}
}
