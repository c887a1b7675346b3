package cpu

import (
	"tilework/internal/cpu/asm"
	"tilework/internal/gemm"
)

// A tile of one column takes half the time of one of 32, as each element of A still has to be
// brought to a whole vector. So the last columns of a small C, where they are no more than a
// [asm.Dot] computes at once, are rows of A times columns of B, along K; and with A transposed
// they are rows of the transposed product, whose vectors lie along A's.
const (
	edgeMinK = 24  // from so many steps of K on, with fewer columns of sums to add up than products
	edgeMaxK = 256 // and up to so many, whose columns of B are copied for each item
	edgeMaxN = 512 // of C: of more, the last ones count for little
)

// ends is how many columns of p, if it goes direct, are computed so.
func (mk *microKernel[T]) edgeColumns(p *gemm.Problem) int {
	few := p.N % mk.NR
	if few > mk.maxDotCols() || p.M < asm.DotRows || p.N > edgeMaxN || p.K < edgeMinK || p.K > edgeMaxK {
		return 0
	}
	return few
}

// endSize is a slot's memory for sums, and for columns of B.
func (d *direct[T]) edgeScratchSize() int { return d.edgeCols * (d.NR + d.k) }

// end computes the last columns of rows of C.
func (d *direct[T]) computeEdge(i0, rows int, memory []T) {
	j := d.n - d.edgeCols
	c := strided[T]{d.c, d.ldc, 1}.t()
	sums, columns := memory[:d.edgeCols*d.NR], memory[d.edgeCols*d.NR:]
	rsb, csb := 1, d.ldb // of op(B)'s transpose
	if d.transB {
		rsb, csb = d.ldb, 1
	}
	b := strided[T]{d.b[j*rsb:], rsb, csb}
	if d.csa != 1 {
		for i := i0; i < i0+rows; i += d.NR {
			d.computeEdgeAlongA(c, i, j, min(d.NR, i0+rows-i), b, sums)
		}
		return
	}
	if !d.transB {
		b = b.copyRows(d.edgeCols, d.k, columns)
	}
	for i := i0; i < i0+rows; i += asm.DotRows {
		from := min(i, d.m-asm.DotRows) // a row of another item's is computed again
		d.Dot[asm.DotRows-1][d.edgeCols-1](d.k, &d.a[from*d.rsa], d.rsa, b.at(0, 0), b.rs, &sums[0])
		for x := range d.edgeCols {
			c.add(j+x, i, sums[x*asm.DotRows:][i-from:min(asm.DotRows, i0+rows-from)], d.alpha, d.beta)
		}
	}
}

// endAlongA computes the last columns of n rows by a tile of the transposed product: the sums
// are those of any tile.
func (d *direct[T]) computeEdgeAlongA(c strided[T], i, j, n int, b strided[T], sums []T) {
	if d.beta != 0 {
		for x := range d.edgeCols {
			for y := range n {
				sums[x*d.NR+y] = *c.at(j+x, i+y)
			}
		}
	}
	d.Direct[d.edgeCols-1](d.k, b.at(0, 0), b.rs, b.cs, &d.a[i], d.csa, &sums[0], &sums[0], 0, d.NR, n, d.alpha, d.beta)
	for x := range d.edgeCols {
		c.add(j+x, i, sums[x*d.NR:][:n], 1, 0)
	}
}
