package block

import (
	"math"
	"math/bits"

	"tilework/internal/cpu/asm"
	"tilework/internal/ints"
)

// factorPanel computes A = P·L·U for a matrix of at most panelColumns columns and at least as many
// rows.
//
// It works on the transpose, so that a column of A is contiguous: the pivot is found and the
// multiples are subtracted along it. It halves the columns, so that most of the work is products.
func (k *Kernels[T]) factorPanel(a Matrix[T], pivots []int) (ok bool) {
	m, n := a.Rows, a.Cols
	ld := ints.RoundUp(m, 8)
	if ld*sizeOf[T]()%4096 == 0 {
		ld += 8 // otherwise elements of a row of A evict each other from L1
	}
	room := k.borrow(n * ld)
	defer k.rooms.Put(room)
	f := panel[T]{k, m, ld, *room}
	k.transpose(m, n, f.data, ld, a.Data, a.Down)
	ok = f.factor(0, n, pivots)
	k.transpose(n, m, a.Data, a.Down, f.data, ld)
	return ok
}

// panel holds columns of a matrix, one after the other: element (i, j) is data[j*ld+i].
type panel[T Float] struct {
	*Kernels[T]
	rows, ld int
	data     []T
}

// column returns column j.
func (f *panel[T]) column(j int) []T { return f.data[j*f.ld:][:f.rows] }

// factor factorises the columns from first to end, below row first, and exchanges the rows of all
// columns. It reports whether all pivots are non-zero.
func (f *panel[T]) factor(first, end int, pivots []int) (ok bool) {
	n := end - first
	if n == 1 {
		return f.pivot(first, pivots)
	}
	mid := first + 1<<(bits.Len(uint(n-1))-1)
	ok = f.factor(first, mid, pivots)
	f.update(first, mid, end)
	return f.factor(mid, end, pivots) && ok
}

// pivot exchanges row j with that of the pivot and divides column j by the pivot. It reports
// whether the pivot is not zero.
func (f *panel[T]) pivot(j int, pivots []int) (ok bool) {
	column := f.column(j)
	p := j + f.largest(column[j:])
	pivots[j] = p
	pivot := column[p]
	if pivot == 0 {
		return false
	}
	if p != j {
		for at := 0; at < len(f.data); at += f.ld {
			f.data[at+j], f.data[at+p] = f.data[at+p], f.data[at+j]
		}
	}
	f.divide(column[j:])
	return true
}

// solveDepth is the number of rows of U from which Solve is faster than a loop.
const solveDepth = 8

// update updates the columns from mid to end with those from first to mid: it solves for their rows
// of U, and subtracts the products of these rows with the factorised columns.
func (f *panel[T]) update(first, mid, end int) {
	depth, cols := mid-first, end-mid
	left, right := f.data[first*f.ld:], f.data[mid*f.ld:]
	l := Matrix[T]{left[first:], depth, depth, 1, f.ld}
	u := Matrix[T]{right[first:], depth, cols, 1, f.ld}
	if depth >= solveDepth {
		f.Solve(1, l, true, true, u)
	} else {
		substitute(l, u)
	}
	if mid < f.rows {
		f.subtract(cols, f.rows-mid, depth, u.Data, f.ld, 1, left[mid:], f.ld, right[mid:], f.ld)
	}
}

// substitute computes U ← L⁻¹·U for a unit lower triangle L. Columns are contiguous.
func substitute[T Float](l, u Matrix[T]) {
	for j := range u.Cols {
		x := u.Data[j*u.Right:][:u.Rows]
		for i, s := range x {
			column := l.Data[i*l.Right:][:l.Rows]
			for r := i + 1; r < len(x); r++ {
				x[r] -= T(column[r] * s)
			}
		}
	}
}

// largest returns the index of the first element with the largest absolute value.
func (k *Kernels[T]) largest(x []T) (at int) {
	if k.micro.Largest != nil && len(x) >= asm.LargestMin && x[0] == x[0] {
		return k.micro.Largest(len(x), &x[0])
	}
	most := abs(x[0])
	for i, v := range x {
		if v = abs(v); v > most {
			at, most = i, v
		}
	}
	return at
}

func abs[T Float](v T) T { return T(math.Abs(float64(v))) }

// divide divides the elements of x after the first by the first. If the reciprocal of that is
// finite, it multiplies by it.
func (k *Kernels[T]) divide(x []T) {
	d, rest := x[0], x[1:]
	r := 1 / d
	switch {
	case math.IsInf(float64(r), 0):
		for i := range rest {
			rest[i] /= d
		}
	case k.micro.Scale != nil && len(rest) > 0:
		x[0] = r // the kernel reads the factor from memory
		k.micro.Scale(1, len(rest), &rest[0], 0, &x[0])
		x[0] = d
	default:
		for i := range rest {
			rest[i] *= r
		}
	}
}
