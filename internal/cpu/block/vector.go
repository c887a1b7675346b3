package block

import (
	"math/bits"

	"tilework/internal/cpu/asm"
	"tilework/internal/ints"
)

// MatrixVector computes y ← α·A·x + β·y. The elements of x and y are contiguous.
func (k *Kernels[T]) MatrixVector(alpha T, a Matrix[T], x []T, beta T, y []T) {
	switch {
	case a.Right == 1:
		k.multiplyRows(a.Rows, a.Cols, alpha, a.Data, a.Down, x, beta, y)
	case -1 <= alpha && alpha <= 1: // no sum of some columns times α overflows
		k.addColumns(a.Rows, a.Cols, a.Data, a.Right, x, y, alpha, beta)
	default:
		sums := k.borrow(a.Rows)
		clear(*sums) // for an A without columns
		k.addColumns(a.Rows, a.Cols, a.Data, a.Right, x, *sums, 1, 0)
		for i, s := range *sums {
			store(y, i, alpha*s, beta)
		}
		k.rooms.Put(sums)
	}
}

// multiplyRows computes y ← α·A·x + β·y for an A of contiguous rows.
func (k *Kernels[T]) multiplyRows(rows, cols int, alpha T, a []T, lda int, x []T, beta T, y []T) {
	var sums [asm.DotRows]T
	for i := 0; i < rows; i += asm.DotRows {
		for r, s := range k.dots(min(asm.DotRows, rows-i), cols, a[i*lda:], lda, x, &sums) {
			store(y, i+r, alpha*s, beta)
		}
	}
}

// Outer computes A ← α·x·yᵀ + A for the rows of A in a, which are contiguous and start lda elements
// apart. The elements of x and y are contiguous.
func (k *Kernels[T]) Outer(alpha T, x, y, a []T, lda int) {
	for i := 0; i < len(x); {
		if len(k.micro.Update) == 0 {
			s, row := alpha*x[i], a[i*lda:]
			for j, v := range y {
				row[j] += T(s * v)
			}
			i++
			continue
		}
		kernel := min(bits.Len(uint(len(x)-i)), len(k.micro.Update)) - 1
		k.micro.Update[kernel][0](&x[i], 1, 0, &y[0], 0, &a[i*lda], lda, len(y), alpha, 1)
		i += 1 << kernel
	}
}

// dots computes the products of 1 to [asm.DotRows] rows with x.
func (k *Kernels[T]) dots(rows, n int, a []T, lda int, x []T, sums *[asm.DotRows]T) []T {
	switch {
	case n == 0:
		*sums = [asm.DotRows]T{}
	case len(k.micro.Dot) > 0:
		k.micro.Dot[rows-1][0](1, n, &a[0], lda, &x[0], 0, &sums[0])
	default:
		for r := range rows {
			sums[r] = 0
			for j, v := range a[r*lda:][:n] {
				sums[r] += T(v * x[j])
			}
		}
	}
	return sums[:rows]
}

// addColumns computes y ← α·A·x + β·y for an A of contiguous columns.
func (k *Kernels[T]) addColumns(rows, cols int, a []T, lda int, x, y []T, alpha, beta T) {
	if rows == 0 {
		return
	}
	for j := 0; j < cols; {
		if len(k.micro.Update) > 0 {
			depth := min(bits.Len(uint(cols-j)), len(k.micro.Update[0])) - 1
			k.micro.Update[0][depth](&x[j], 0, 1, &a[j*lda], lda, &y[0], 0, rows, alpha, beta)
			j += 1 << depth
		} else {
			s := alpha * x[j]
			for i, v := range a[j*lda:][:rows] {
				if v = T(s * v); beta != 0 {
					v += T(beta * y[i])
				}
				y[i] = v
			}
			j++
		}
		beta = 1
	}
}

// SolveVector computes x ← A⁻¹·x for a triangle A. The elements of x are contiguous.
func (k *Kernels[T]) SolveVector(a Matrix[T], lower, unit bool, x []T) {
	t := vectorTriangle[T]{k, a, lower, unit, x}
	for i := range t.groups() {
		first, rows := t.group(i)
		if a.Right == 1 {
			t.addRows(first, rows, -1)
		}
		t.substitute(first, rows)
		if a.Right != 1 {
			t.addColumns(first, rows, -1)
		}
	}
}

// MultiplyVector computes x ← A·x for a triangle A. The elements of x are contiguous.
func (k *Kernels[T]) MultiplyVector(a Matrix[T], lower, unit bool, x []T) {
	t := vectorTriangle[T]{k, a, lower, unit, x}
	for i := t.groups() - 1; i >= 0; i-- {
		first, rows := t.group(i)
		if a.Right != 1 {
			t.addColumns(first, rows, 1)
		}
		t.multiply(first, rows)
		if a.Right == 1 {
			t.addRows(first, rows, 1)
		}
	}
}

// vectorTriangle is a triangle and a vector. It is divided into groups of rows, in the order of
// substitution: from the first row on if the triangle is lower, from the last row back if not.
type vectorTriangle[T Float] struct {
	*Kernels[T]
	a           Matrix[T]
	lower, unit bool
	x           []T
}

func (t *vectorTriangle[T]) groups() int { return ints.CeilDiv(t.a.Rows, asm.DotRows) }

// group returns the rows of group i.
func (t *vectorTriangle[T]) group(i int) (first, rows int) {
	n, done := t.a.Rows, i*asm.DotRows
	rows = min(asm.DotRows, n-done)
	if t.lower {
		return done, rows
	}
	return n - done - rows, rows
}

// addRows adds to the elements of a group s times the products with the elements of all groups
// before it. Rows of the triangle are contiguous.
func (t *vectorTriangle[T]) addRows(first, rows int, s T) {
	from, to := 0, first
	if !t.lower {
		from, to = first+rows, t.a.Rows
	}
	if from == to {
		return
	}
	var sums [asm.DotRows]T
	for r, sum := range t.dots(rows, to-from, t.a.Data[first*t.a.Down+from:], t.a.Down, t.x[from:], &sums) {
		t.x[first+r] += T(s * sum)
	}
}

// addColumns adds to the elements of all groups after a group s times the products with the
// elements of the group. Columns of the triangle are contiguous.
func (t *vectorTriangle[T]) addColumns(first, rows int, s T) {
	from, to := 0, first
	if t.lower {
		from, to = first+rows, t.a.Rows
	}
	if from < to {
		t.Kernels.addColumns(to-from, rows, t.a.Data[first*t.a.Right+from:], t.a.Right, t.x[first:], t.x[from:], s, 1)
	}
}

// substitute solves for the elements of a group, from which the products with other groups have
// been subtracted.
func (t *vectorTriangle[T]) substitute(first, rows int) {
	x := t.x[first:][:rows]
	for step := range rows {
		i, from, to := step, 0, step
		if !t.lower {
			i = rows - 1 - step
			from, to = i+1, rows
		}
		v := x[i]
		for j := from; j < to; j++ {
			v -= T(t.at(first+i, first+j) * x[j])
		}
		if !t.unit {
			v /= t.at(first+i, first+i)
		}
		x[i] = v
	}
}

// multiply multiplies the elements of a group by the block on the diagonal.
func (t *vectorTriangle[T]) multiply(first, rows int) {
	x := t.x[first:][:rows]
	for step := range rows {
		i := rows - 1 - step
		from, to := 0, i
		if !t.lower {
			i = step
			from, to = i+1, rows
		}
		v := x[i]
		if !t.unit {
			v *= t.at(first+i, first+i)
		}
		for j := from; j < to; j++ {
			v += T(t.at(first+i, first+j) * x[j])
		}
		x[i] = v
	}
}

// at returns an element of the triangle.
func (t *vectorTriangle[T]) at(i, j int) T { return t.a.Data[i*t.a.Down+j*t.a.Right] }
