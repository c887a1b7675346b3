package block

import "math"

// luColumns is the number of columns that are factorised one by one. Their multiples are then
// subtracted from the other columns at once.
const luColumns = 8

// LU computes A = P·L·U with partial pivoting for a matrix of some columns and at least as many
// rows, whose rows are contiguous. Row i was exchanged with row pivots[i] ≥ i, for one i after the
// other. It reports whether all pivots are non-zero.
//
// It works on the transpose, so that a column of A is contiguous: the pivot is found and the
// multiples are subtracted along it.
func (k *Kernels[T]) LU(a Matrix[T], pivots []int) (ok bool) {
	m, n := a.Rows, a.Cols
	ld := roundUp(m, 8)
	if ld*sizeOf[T]()%4096 == 0 {
		ld += 8 // otherwise elements of a row of A evict each other from L1
	}
	room := k.borrow(n * ld)
	defer k.rooms.Put(room)
	f := panel[T]{k, m, n, ld, *room}
	k.transpose(m, n, f.data, ld, a.Data, a.Down)
	ok = true
	for first := 0; first < n; first += luColumns {
		end := min(first+luColumns, n)
		for j := first; j < end; j++ {
			ok = f.eliminate(j, end, pivots) && ok
		}
		if end < n {
			f.subtractBlock(first, end)
		}
	}
	k.transpose(n, m, a.Data, a.Down, f.data, ld)
	return ok
}

// panel holds columns of a matrix, one after the other: element (i, j) is data[j*ld+i].
type panel[T Float] struct {
	*Kernels[T]
	rows, cols, ld int
	data           []T
}

// column returns column j.
func (f *panel[T]) column(j int) []T { return f.data[j*f.ld:][:f.rows] }

// eliminate exchanges row j with that of the pivot, divides column j by the pivot, and subtracts
// its multiples from the columns up to end. It reports whether the pivot is not zero.
func (f *panel[T]) eliminate(j, end int, pivots []int) (ok bool) {
	column := f.column(j)
	p := j + largest(column[j:])
	pivots[j] = p
	pivot := column[p]
	if pivot == 0 {
		return false
	}
	if p != j {
		for q := range f.cols {
			c := f.column(q)
			c[j], c[p] = c[p], c[j]
		}
	}
	below := column[j+1:]
	if len(below) == 0 {
		return true
	}
	scale(below, pivot)
	if next := f.data[(j+1)*f.ld:]; j+1 < end {
		f.subtract(end-j-1, len(below), 1, next[j:], f.ld, 1, below, 0, next[j+1:], f.ld)
	}
	return true
}

// subtractBlock solves for the rows of U from first to end in the columns from end on, and
// subtracts the products of these rows with the columns from first to end.
func (f *panel[T]) subtractBlock(first, end int) {
	for j := end; j < f.cols; j++ {
		u := f.column(j)[first:end]
		for i, s := range u {
			l := f.column(first + i)[first:end]
			for r := i + 1; r < len(u); r++ {
				u[r] -= T(l[r] * s)
			}
		}
	}
	if rest := f.data[end*f.ld:]; end < f.rows {
		f.subtract(f.cols-end, f.rows-end, end-first, rest[first:], f.ld, 1, f.data[first*f.ld+end:], f.ld, rest[end:], f.ld)
	}
}

// largest returns the index of the first element with the largest absolute value.
func largest[T Float](x []T) (at int) {
	most := abs(x[0])
	for i, v := range x {
		if v = abs(v); v > most {
			at, most = i, v
		}
	}
	return at
}

func abs[T Float](v T) T { return T(math.Abs(float64(v))) }

// scale divides the elements of x by d. If the reciprocal of d is finite, it multiplies by it.
func scale[T Float](x []T, d T) {
	r := 1 / d
	if math.IsInf(float64(r), 0) {
		for i := range x {
			x[i] /= d
		}
		return
	}
	for i := range x {
		x[i] *= r
	}
}
