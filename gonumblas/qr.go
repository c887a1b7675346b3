package gonumblas

import (
	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/lapack"
	"gonum.org/v1/gonum/lapack/gonum"

	"tilework/internal/ints"
)

// A product of n reflectors I - tau[j]·v[j]·v[j]ᵀ is I - V·T·Vᵀ with an upper triangular n×n matrix
// T. V is unit lower trapezoidal and stored below the diagonal of the factorised matrix. See R.
// Schreiber and C. Van Loan, "A storage-efficient WY representation for products of Householder
// transformations", 1989.

// panelColumns returns the number of columns of the panels for n reflectors.
func panelColumns(n int) int {
	if n <= qrWide {
		return qrLeaf
	}
	return qrBlock
}

// factorQR computes A = Q·R. It leaves R on and above the diagonal of A and V below it.
func factorQR(a matrix[float64], tau []float64) {
	block := panelColumns(len(tau))
	w := double.borrow(block * (block + a.cols))
	defer double.rooms.Put(w)
	for j := 0; j < len(tau); j += block {
		n := min(block, len(tau)-j)
		v, t, room := a.sub(j, j, a.rows-j, n), dense(n, n, *w), (*w)[n*n:]
		rest := a.sub(j, j+n, a.rows-j, a.cols-j-n)
		factorPanel(v, tau[j:j+n], t, room, rest.cols > 0)
		if rest.cols > 0 {
			reflect(true, v, t, rest, room)
		}
	}
}

// multiplyQ computes C ← Q·C or C ← Qᵀ·C.
func multiplyQ(trans bool, v matrix[float64], tau []float64, c matrix[float64]) {
	block := panelColumns(len(tau))
	w := double.borrow(block * (block + c.cols))
	defer double.rooms.Put(w)
	panels := ints.CeilDiv(len(tau), block)
	for p := range panels {
		if !trans {
			p = panels - 1 - p
		}
		j := p * block
		n := min(block, len(tau)-j)
		panel, t := v.sub(j, j, v.rows-j, n), dense(n, n, *w)
		compact(panel, tau[j:j+n], t)
		reflect(trans, panel, t, c.sub(j, 0, c.rows-j, c.cols), (*w)[n*n:])
	}
}

// factorPanel computes A = Q·R for an A with at least as many rows as columns. If all is set, it
// computes all of T, otherwise parts of it. room holds as many elements as T. It splits the columns
// as in E. Elmroth and F. G. Gustavson, "Applying recursion to serial and parallel QR factorization
// leads to better performance", 2000.
func factorPanel(a matrix[float64], tau []float64, t matrix[float64], room []float64, all bool) {
	n := a.cols
	if n <= qrLeaf {
		gonum.Implementation{}.Dgeqr2(a.rows, n, a.data, a.down, tau, room)
		if all {
			compact(a, tau, t)
		}
		return
	}
	h := n / 2
	left, right, t1 := a.sub(0, 0, a.rows, h), a.sub(0, h, a.rows, n-h), t.sub(0, 0, h, h)
	factorPanel(left, tau[:h], t1, room, true)
	reflect(true, left, t1, right, room)
	factorPanel(right.sub(h, 0, a.rows-h, n-h), tau[h:], t.sub(h, h, n-h, n-h), room, all)
	if all {
		join(a, t, h)
	}
}

// compact computes T.
func compact(v matrix[float64], tau []float64, t matrix[float64]) {
	n := v.cols
	if n <= qrLeaf {
		gonum.Implementation{}.Dlarft(lapack.Forward, lapack.ColumnWise, v.rows, n, v.data, v.down, tau, t.data, t.down)
		return
	}
	h := n / 2
	compact(v.sub(0, 0, v.rows, h), tau[:h], t.sub(0, 0, h, h))
	compact(v.sub(h, h, v.rows-h, n-h), tau[h:], t.sub(h, h, n-h, n-h))
	join(v, t, h)
}

// join completes T from the T1 of the first h reflectors and the T2 of the others. The block right
// of T1 is -T1·V1ᵀ·V2·T2.
func join(v, t matrix[float64], h int) {
	n := v.cols
	x := t.sub(0, h, h, n-h)
	x.set(v.sub(h, 0, n-h, h).t())
	double.multiply(1, triangle[float64]{v.sub(h, h, n-h, n-h), true, blas.Unit}.t(), x.t())
	if below := v.sub(n, 0, v.rows-n, n); below.rows > 0 {
		double.gemm(1, below.sub(0, 0, below.rows, h).t(), below.sub(0, h, below.rows, n-h), 1, x)
	}
	double.multiply(-1, triangle[float64]{t.sub(0, 0, h, h), false, blas.NonUnit}, x)
	double.multiply(1, triangle[float64]{t.sub(h, h, n-h, n-h), false, blas.NonUnit}.t(), x.t())
}

// reflect computes C ← Q·C or C ← Qᵀ·C for Q = I - V·T·Vᵀ. room holds as many elements as V has
// columns times those of C.
func reflect(trans bool, v, t, c matrix[float64], room []float64) {
	v1, v2 := v.split(v.cols)
	c1, c2 := c.split(v.cols)
	unit, upper := triangle[float64]{v1, true, blas.Unit}, triangle[float64]{t, false, blas.NonUnit}
	if trans {
		upper = upper.t()
	}
	w := dense(v.cols, c.cols, room)
	w.set(c1)
	double.multiply(1, unit.t(), w)
	if v2.rows > 0 {
		double.gemm(1, v2.t(), c2, 1, w)
	}
	double.multiply(1, upper, w)
	if v2.rows > 0 {
		double.gemm(-1, v2, w, 1, c2)
	}
	double.multiply(1, unit, w)
	for i := range w.rows {
		to := c1.data[i*c1.down:]
		for j, v := range w.data[i*w.down:][:w.cols] {
			to[j*c1.right] -= v
		}
	}
}
