package gonumblas

import (
	"gonum.org/v1/gonum/blas"

	"tilework/internal/cpu/block"
)

// factorLU computes A = P·L·U. Row i was exchanged with row pivots[i] ≥ i, for one i after the
// other. It reports whether all pivots are non-zero. It splits the columns as in S. Toledo,
// "Locality of reference in LU decomposition with partial pivoting", 1997. If serial is set, it
// uses one thread.
func factorLU(a matrix[float64], pivots []int, serial bool) (ok bool) {
	n := len(pivots)
	switch {
	case n <= luLeaf && n == a.cols:
		return double.blocks.LU(a.block(), pivots)
	case n <= luWide && !serial:
		return factorPanels(a, pivots)
	}
	h := (n/2 + luLeaf - 1) / luLeaf * luLeaf
	left, right := a.sub(0, 0, a.rows, h), a.sub(0, h, a.rows, a.cols-h)
	ok = factorLU(left, pivots[:h], serial)
	updateLU(left, pivots[:h], right, serial)
	ok = factorLU(right.sub(h, 0, a.rows-h, right.cols), pivots[h:], serial) && ok
	for i := range pivots[h:] {
		pivots[h+i] += h
	}
	exchangeRows(left, h, pivots, serial)
	return ok
}

// factorPanels is factorLU panel by panel. The strips of columns right of a panel are updated in
// parallel. The first of them is the next panel, which is factorised while the others are updated.
func factorPanels(a matrix[float64], pivots []int) (ok bool) {
	n, width := len(pivots), luPanel
	if n <= luSmall {
		width = luLeaf
	}
	each := 2 * width // columns of a strip
	next := min(width, n)
	ok = factorLU(a.sub(0, 0, a.rows, next), pivots[:next], true)
	for first, end := 0, 0; end < n; first = end {
		end = next
		next = min(end+width, n)
		panel := a.sub(first, first, a.rows-first, end-first)
		update := func(from, to int) {
			updateLU(panel, pivots[first:end], a.sub(first, from, a.rows-first, to-from), true)
		}
		strips := (a.cols - next + each - 1) / each
		work := 2 * float64(a.rows-first) * float64(end-first) * float64(a.cols-end)
		block.Parallel(1+strips, work, func(strip int) {
			if strip > 0 {
				update(next+(strip-1)*each, min(next+strip*each, a.cols))
			} else if end < next {
				update(end, next)
				ok = factorLU(a.sub(end, end, a.rows-end, next-end), pivots[end:next], true) && ok
			}
		})
	}
	for first := width; first < n; first += width {
		for i := range pivots[first:min(first+width, n)] {
			pivots[first+i] += first
		}
	}
	panels := (n + width - 1) / width
	block.Parallel(panels-1, exchangeWork/2*float64(n)*float64(n), func(i int) {
		permuteRows(a.sub(0, i*width, a.rows, width), (i+1)*width, pivots)
	})
	return ok
}

// updateLU updates the columns right of the factorised columns left.
func updateLU(left matrix[float64], pivots []int, right matrix[float64], serial bool) {
	exchangeRows(right, 0, pivots, serial)
	top, bottom := left.split(left.cols)
	u, rest := right.split(left.cols)
	double.solve(1, triangle[float64]{top, true, blas.Unit}, u)
	if rest.rows == 0 {
		return
	}
	threads := allThreads
	if serial {
		threads = oneThread
	}
	gemmWith(threads, -1, bottom, u, 1, rest)
}

// exchangeWork is the number of operations that take as long as the exchange of an element.
const exchangeWork = 16

// exchangeRows exchanges row i with row pivots[i], for one i after the other from first on. If
// serial is set, it uses one thread.
func exchangeRows(a matrix[float64], first int, pivots []int, serial bool) {
	if !serial {
		strips := (a.cols + luPanel - 1) / luPanel
		block.Parallel(strips, exchangeWork*float64(a.cols)*float64(len(pivots)-first), func(i int) {
			permuteRows(a.sub(0, i*luPanel, a.rows, min(luPanel, a.cols-i*luPanel)), first, pivots)
		})
		return
	}
	var old [luPanel]float64
	for i := first; i < len(pivots); i++ {
		p := pivots[i]
		if i == p {
			continue
		}
		x, y := a.data[i*a.down:][:a.cols], a.data[p*a.down:][:a.cols]
		for len(x) > 0 {
			n := copy(old[:], x)
			copy(x, y[:n])
			copy(y, old[:n])
			x, y = x[n:], y[n:]
		}
	}
}

// permuteRows is exchangeRows for at most luPanel columns. It moves each row once, to its last
// place.
func permuteRows(a matrix[float64], first int, pivots []int) {
	from := make([]int, a.rows) // row i receives row from[i]
	for i := range from {
		from[i] = i
	}
	for i := first; i < len(pivots); i++ {
		p := pivots[i]
		from[i], from[p] = from[p], from[i]
	}
	row := func(i int) []float64 { return a.data[i*a.down:][:a.cols] }
	var old [luPanel]float64
	for start := first; start < a.rows; start++ {
		i := start
		if from[i] == i {
			continue
		}
		copy(old[:], row(start))
		for from[i] != start {
			next := from[i]
			copy(row(i), row(next))
			from[i] = i
			i = next
		}
		copy(row(i), old[:])
		from[i] = i
	}
}
