package cpu

import (
	"tilework/internal/cpu/asm"
	"tilework/internal/gemm"
)

// A tile of one column takes half the time of a tile of 32, because each element of A still has to
// be broadcast to a vector. The last columns of a small C, if a dot kernel can compute them
// together, are therefore dot products of rows of A and columns of B. If A is transposed, they are
// rows of the transposed product, whose vectors follow the rows of A in memory.
const (
	edgeMinK = 24  // below it, adding up the lanes takes longer than the products
	edgeMaxK = 256 // the maximum, because each task copies the columns of B
	edgeMaxN = 512 // the maximum number of columns of C; the edge of a wider C takes little time
)

// edgeColumns returns the number of columns of a direct p that are computed without tiles.
func (mk *microKernel[T]) edgeColumns(p *gemm.Problem) int {
	few := p.N % mk.NR
	if p.Ordered() || few > mk.maxDotCols() || p.M < asm.DotRows || p.N > edgeMaxN || p.K < edgeMinK || p.K > edgeMaxK {
		return 0
	}
	return few
}

// edgeScratchSize returns the size of a worker's memory for sums and columns of B.
func (d *direct[T]) edgeScratchSize() int { return d.edgeCols * (d.mk.NR + d.k) }

// computeEdge computes the last columns of rows of C.
func (d *direct[T]) computeEdge(i0, rows int, memory []T) {
	j := d.n - d.edgeCols
	sums, columns := memory[:d.edgeCols*d.mk.NR], memory[d.edgeCols*d.mk.NR:]
	rsb, csb := 1, d.ldb // strides of the transpose of op(B)
	if d.transB {
		rsb, csb = d.ldb, 1
	}
	b := strided[T]{d.b[j*rsb:], rsb, csb}
	if d.csa != 1 {
		for i := i0; i < i0+rows; i += d.mk.NR {
			d.computeEdgeAlongA(strided[T]{d.c, 1, d.ldc}, i, j, min(d.mk.NR, i0+rows-i), b, sums)
		}
		return
	}
	if csb != 1 {
		b = b.copyRows(d.edgeCols, d.k, columns)
	}
	t := dotTiles[T]{x: d.a, ldx: d.rsa, y: b, c: strided[T]{d.c[j:], d.ldc, 1}, alpha: d.alpha}
	t.prepare(d.mk, d.m, d.edgeCols, d.mk.dotsTall(d.m, d.edgeCols, d.k))
	t.compute(i0, i0+rows, 0, d.k, d.beta, sums)
}

// computeEdgeAlongA computes the last columns of n rows as a tile of the transposed product, with
// the order of summation of the other tiles.
func (d *direct[T]) computeEdgeAlongA(c strided[T], i, j, n int, b strided[T], sums []T) {
	if d.beta != 0 {
		for x := range d.edgeCols {
			for y := range n {
				sums[x*d.mk.NR+y] = *c.at(j+x, i+y)
			}
		}
	}
	kernel := d.mk.Direct[d.edgeCols-1]
	if d.algorithm == algoDeep && d.edgeCols <= len(d.mk.Deep) {
		kernel = d.mk.Deep[d.edgeCols-1]
	}
	kernel(1, d.k, b.at(0, 0), b.rs, b.cs, &d.a[i], d.csa, &sums[0], &sums[0], 0, d.mk.NR, n, d.alpha, d.beta)
	for x := range d.edgeCols {
		c.add(j+x, i, sums[x*d.mk.NR:][:n], 1, 0)
	}
}
