package gonumblas

import "gonum.org/v1/gonum/blas"

// factorLU computes A = P·L·U. Row i was exchanged with row pivots[i] ≥ i, for one i after the
// other. It reports whether all pivots are non-zero. It splits the columns as in S. Toledo,
// "Locality of reference in LU decomposition with partial pivoting", 1997.
func factorLU(a matrix[float64], pivots []int) (ok bool) {
	if len(pivots) <= luLeaf && len(pivots) == a.cols {
		return double.blocks.LU(a.block(), pivots)
	}
	h := len(pivots)
	if h > luLeaf {
		h = (h/2 + luLeaf - 1) / luLeaf * luLeaf
	}
	left, right := a.sub(0, 0, a.rows, h), a.sub(0, h, a.rows, a.cols-h)
	ok = factorLU(left, pivots[:h])
	for i, p := range pivots[:h] {
		swapRows(right, i, p)
	}
	top, bottom := left.split(h)
	u, rest := right.split(h)
	double.solve(1, triangle[float64]{top, true, blas.Unit}, u)
	if h == len(pivots) {
		return ok
	}
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
	var old [256]float64
	for len(x) > 0 {
		n := copy(old[:], x)
		copy(x, y[:n])
		copy(y, old[:n])
		x, y = x[n:], y[n:]
	}
}
