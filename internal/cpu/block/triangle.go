package block

import (
	"tilework/internal/cpu/asm"
	"tilework/internal/ints"
)

// stripBytes is the size of a strip of B, which stays in L2 while all rows of the triangle use it.
const stripBytes = 256 << 10

// Solve computes B ← α·A⁻¹·B for a triangle A of at most [MaxSize] rows.
func (k *Kernels[T]) Solve(alpha T, a Matrix[T], lower, unit bool, b Matrix[T]) {
	k.inStrips(alpha, a, lower, unit, b, true)
}

// Multiply computes B ← α·A·B for a triangle A of at most [MaxSize] rows.
func (k *Kernels[T]) Multiply(alpha T, a Matrix[T], lower, unit bool, b Matrix[T]) {
	k.inStrips(alpha, a, lower, unit, b, false)
}

// triangle is a lower triangle, or an upper one from its last row back.
type triangle[T Float] struct {
	*Kernels[T]
	n, first, down, right int // element (i, j) is a[first+i*down+j*right]
	a                     []T
	upper                 bool
	inverts               bool // whether to solve
	blocks                []T  // the blocks on the diagonal, as [asm.Triangle] reads them; row i of A starts at i*MR
	alpha                 T
}

// inStrips divides the columns of B into strips, because they are independent.
func (k *Kernels[T]) inStrips(alpha T, a Matrix[T], lower, unit bool, b Matrix[T], inverts bool) {
	n := a.Rows
	t := triangle[T]{Kernels: k, n: n, down: a.Down, right: a.Right, a: a.Data, upper: !lower, inverts: inverts,
		alpha: alpha}
	if t.upper {
		t.first, t.down, t.right = (n-1)*(a.Down+a.Right), -a.Down, -a.Right
	}
	room := k.borrow(n * k.micro.MR)
	defer k.rooms.Put(room)
	t.pack(*room, unit)
	most := max(stripBytes/(n*sizeOf[T]()), k.micro.NR)
	inParts(b.Cols, most/k.micro.NR*k.micro.NR, k.micro.NR, float64(n)*float64(n)*float64(b.Cols), func(first, cols int) {
		if b.Right == 1 {
			t.alongRows(b.Data[first:], b.Down, cols)
		} else {
			t.transposed(b.Data[first*b.Right:], b.Right, cols)
		}
	})
}

// pack copies the blocks on the diagonal to room.
func (t *triangle[T]) pack(room []T, unit bool) {
	t.blocks = room
	for i, rows := 0, 0; i < t.n; i += rows {
		_, rows = t.rowsKernel(t.n - i)
		l := room[i*t.micro.MR:]
		for q := range rows {
			at := t.first + (i+q)*(t.down+t.right)
			l[q*t.micro.MR+q] = 1
			switch {
			case unit:
			case t.inverts:
				l[q*t.micro.MR+q] /= t.a[at]
			default:
				l[q*t.micro.MR+q] = t.a[at]
			}
			for r := q + 1; r < rows; r++ {
				at += t.down
				l[q*t.micro.MR+r] = t.a[at]
			}
		}
	}
}

// alongRows computes columns of a B whose rows are contiguous. It copies the columns beyond the
// last whole tile.
func (t *triangle[T]) alongRows(b []T, ldb, cols int) {
	tiles := cols / t.micro.NR
	if tiles > 0 {
		t.compute(b, ldb, tiles)
	}
	first := tiles * t.micro.NR
	rest := cols - first
	if rest == 0 {
		return
	}
	room := t.borrow(t.n * t.micro.NR)
	defer t.rooms.Put(room)
	for i := range t.n {
		row := (*room)[i*t.micro.NR:][:t.micro.NR]
		clear(row[copy(row, b[i*ldb+first:][:rest]):])
	}
	t.compute(*room, t.micro.NR, 1)
	for i := range t.n {
		copy(b[i*ldb+first:][:rest], (*room)[i*t.micro.NR:])
	}
}

// transposed computes columns of a B whose columns are contiguous. It copies them.
func (t *triangle[T]) transposed(b []T, ldb, cols int) {
	ld := ints.RoundUp(cols, t.micro.NR)
	room := t.borrow(t.n * ld)
	defer t.rooms.Put(room)
	for i := range t.n {
		clear((*room)[i*ld:][cols:ld])
	}
	t.transpose(cols, t.n, *room, ld, b, ldb)
	t.compute(*room, ld, ld/t.micro.NR)
	t.transpose(t.n, cols, b, ldb, *room, ld)
}

// compute computes whole tiles.
func (t *triangle[T]) compute(b []T, ldb, tiles int) {
	last := 0
	if t.upper {
		last, ldb = (t.n-1)*ldb, -ldb
	}
	run := func(kernel asm.Triangle[T], i int) {
		kernel(tiles, i, &t.a[t.first+i*t.down], t.down, t.right, &t.blocks[i*t.micro.MR], &b[last], ldb, t.alpha)
	}
	if t.inverts {
		for i := 0; i < t.n; {
			x, rows := t.rowsKernel(t.n - i)
			run(t.micro.Solve[x], i)
			i += rows
		}
		return
	}
	// The rows above those that a kernel multiplies must still be the old ones.
	i := t.n
	for rest := t.n % t.micro.MR; rest > 0; rest &= rest - 1 {
		x, rows := t.rowsKernel(rest & -rest)
		i -= rows
		run(t.micro.Multiply[x], i)
	}
	for i > 0 {
		i -= t.micro.MR
		run(t.micro.Multiply[len(t.micro.Multiply)-1], i)
	}
}
