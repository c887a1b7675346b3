package block

import (
	"math"

	"tilework/internal/ints"
)

// Cholesky computes A = Uᵀ·U, or A = L·Lᵀ if lower is set, for a symmetric positive definite A of
// at most [MaxSize] rows. It reads and writes one triangle of A. It reports whether A is positive
// definite; if not, A is unchanged.
func (k *Kernels[T]) Cholesky(a Matrix[T], lower bool) (ok bool) {
	n := a.Rows
	if lower { // L is the transpose of U
		a.Down, a.Right = a.Right, a.Down
	}
	ld := ints.RoundUp(n, k.micro.NR) + k.micro.NR // a tile may begin in the last column
	room := k.borrow(n*ld + 2*k.micro.MR*k.micro.MR)
	defer k.rooms.Put(room)
	u, memory := (*room)[:n*ld], (*room)[n*ld:]
	k.copyUpper(u, ld, a)
	if !k.factorUpper(n, u, ld, memory) {
		return false
	}
	k.copyUpperBack(a, u, ld)
	return true
}

// copyUpper copies the upper triangle of A, and clears the padding of each row.
func (k *Kernels[T]) copyUpper(u []T, ld int, a Matrix[T]) {
	n := a.Rows
	for i := range n {
		row := u[i*ld:][:ld]
		clear(row[n:])
		if a.Right == 1 {
			copy(row[i:n], a.Data[i*a.Down+i:])
		}
	}
	if a.Right == 1 {
		return
	}
	for j := 0; j < n; j += k.micro.NR { // the square blocks on the diagonal are copied whole
		cols := min(k.micro.NR, n-j)
		k.transpose(cols, j+cols, u[j:], ld, a.Data[j*a.Right:], a.Right)
	}
}

// copyUpperBack copies the upper triangle to A.
func (k *Kernels[T]) copyUpperBack(a Matrix[T], u []T, ld int) {
	n := a.Rows
	for i := range n {
		row := u[i*ld+i:][:n-i]
		if a.Right == 1 {
			copy(a.Data[i*a.Down+i:], row)
			continue
		}
		at := i*a.Down + i*a.Right
		for _, v := range row {
			a.Data[at] = v
			at += a.Right
		}
	}
}

// factorUpper computes A = Uᵀ·U, a few rows at a time: with the rows of U above them, it completes
// the block on the diagonal and then solves for the columns right of it. Each row has room for a
// tile right of the last column.
func (k *Kernels[T]) factorUpper(n int, u []T, ld int, memory []T) (ok bool) {
	mr := k.micro.MR
	square, l := memory[:mr*mr], memory[mr*mr:]
	for i, rows := 0, 0; i < n; i += rows {
		x := 0
		x, rows = k.rowsKernel(n - i)
		for r := range rows {
			copy(square[r*mr+r:][:rows-r], u[(i+r)*ld+i+r:])
		}
		k.subtract(rows, rows, i, u[i:], 1, ld, u[i:], ld, square, mr)
		if !factorSquare(rows, mr, square) {
			return false
		}
		for r := range rows {
			row := square[r*mr:][:rows]
			copy(u[(i+r)*ld+i+r:], row[r:])
			copy(l[r*mr+r:], row[r:])
			l[r*mr+r] = 1 / row[r]
		}
		if rest := n - i - rows; rest > 0 {
			k.micro.Solve[x](ints.CeilDiv(rest, k.micro.NR), i, &u[i], 1, ld, &l[0], &u[i+rows], ld, 1)
		}
	}
	return true
}

// factorSquare computes C = Uᵀ·U for a matrix of a few rows, ld elements apart. It reports whether
// C is positive definite.
func factorSquare[T Float](n, ld int, c []T) (ok bool) {
	for i := range n {
		row := c[i*ld:][:n]
		if !(row[i] > 0) {
			return false
		}
		d := T(math.Sqrt(float64(row[i])))
		row[i] = d
		for j := i + 1; j < n; j++ {
			row[j] *= 1 / d
		}
		for r := i + 1; r < n; r++ {
			to, s := c[r*ld:][:n], row[r]
			for j := r; j < n; j++ {
				to[j] -= T(s * row[j])
			}
		}
	}
	return true
}
