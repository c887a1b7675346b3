package block

import "tilework/internal/ints"

const (
	// MaxColumns is the largest number of columns for [Kernels.LU]. With more, panels do too little
	// with each element that they change.
	MaxColumns = 1024
	// panelColumns is the number of columns of a panel. Between wholeColumns and smallColumns columns
	// a panel has half as many, so that threads share more of them.
	panelColumns = 64
	wholeColumns = 128
	smallColumns = 320
)

// LU computes A = P·L·U with partial pivoting for a matrix whose rows are contiguous. It eliminates
// as many columns as there are pivots, at most [MaxColumns] and the number of rows. Row i was
// exchanged with row pivots[i] ≥ i, for one i after the other. It reports whether all pivots are
// non-zero.
func (k *Kernels[T]) LU(a Matrix[T], pivots []int) (ok bool) {
	n, width := len(pivots), panelColumns
	if n > wholeColumns && n <= smallColumns {
		width = panelColumns / 2
	}
	panels, blocks := ints.CeilDiv(n, width), ints.CeilDiv(a.Cols, width)
	// Panels are slower than products, and wait for one another. So count half of the operations.
	x, rows, cols := float64(n), float64(a.Rows), float64(a.Cols)
	flops := x*rows*cols - x*x*(rows+cols)/2 + x*x*x/3
	ok = true
	eliminate(panels, blocks, flops, func(p, b int) {
		first, from := p*width, b*width
		end, to := min(first+width, n), min(from+width, a.Cols)
		columns := func(from, to int) Matrix[T] { return a.sub(first, from, a.Rows-first, to-from) }
		panel, exchanges := columns(first, end), pivots[first:end]
		switch {
		case b < p:
			exchangeRows(columns(from, to), exchanges)
			return
		case b == p:
			ok = k.factorPanel(panel, exchanges) && ok
			from = end // the block may be wider than the panel
		}
		if from < to {
			k.changeColumns(panel, exchanges, columns(from, to))
		}
	})
	for i := range pivots {
		pivots[i] += i / width * width
	}
	return ok
}

// changeColumns changes the columns right of a factorised panel: it exchanges their rows, solves
// for their rows of U, and subtracts the products of these rows with the panel.
func (k *Kernels[T]) changeColumns(panel Matrix[T], pivots []int, right Matrix[T]) {
	exchangeRows(right, pivots)
	n := panel.Cols
	u, rest := right.sub(0, 0, n, right.Cols), right.sub(n, 0, right.Rows-n, right.Cols)
	k.Solve(1, panel.sub(0, 0, n, n), true, true, u)
	if rest.Rows > 0 {
		l := panel.sub(n, 0, rest.Rows, n)
		k.subtract(rest.Rows, rest.Cols, n, l.Data, l.Down, 1, u.Data, u.Down, rest.Data, rest.Down)
	}
}

// exchangeWork is the number of operations that take as long as the exchange of an element.
const exchangeWork = 16

// ExchangeRows exchanges row i with row pivots[i], for one i after the other, in a matrix whose
// rows are contiguous.
func ExchangeRows[T Float](a Matrix[T], pivots []int) {
	inParts(a.Cols, panelColumns, 1, exchangeWork*float64(a.Cols)*float64(len(pivots)), func(first, cols int) {
		exchangeRows(a.sub(0, first, a.Rows, cols), pivots)
	})
}

// exchangeRows is ExchangeRows on one thread, for at most panelColumns columns.
func exchangeRows[T Float](a Matrix[T], pivots []int) {
	var old [panelColumns]T
	for i, p := range pivots {
		if i != p {
			x, y := a.Data[i*a.Down:][:a.Cols], a.Data[p*a.Down:][:a.Cols]
			copy(old[:], x)
			copy(x, y)
			copy(y, old[:])
		}
	}
}
