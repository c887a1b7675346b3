package cpu

import (
	"unsafe"

	"tilework/dtype"
	"tilework/internal/cpu/asm"
	"tilework/internal/ints"
)

// wideningTiles computes products with a B of 16-bit elements, which tiles widen as they read them.
// It suits few rows of A: each tile of a column widens the elements again.
type wideningTiles[T scalar] struct {
	kernels []asm.Widening[T] // nil if there are none for the type of B
	step    int               // the kernels have heights of step, 2·step, … rows
	height  int               // rows of a tile; the last one of a column may have fewer
	cols    int               // columns of a tile
}

// wideningTiles returns the tiles for m rows of A and a B of type t. Without kernels their height
// is that of other tiles.
func (mk *microKernel[T]) wideningTiles(t dtype.Type, m int) (w wideningTiles[T]) {
	w.height = mk.MR
	switch t {
	case dtype.F16:
		w.kernels = mk.WidenF16
	case dtype.BF16:
		w.kernels = mk.WidenBF16
	}
	if len(w.kernels) > 0 {
		w.step, w.cols = mk.MR/len(w.kernels), mk.NR
		w.height = equalParts(m, mk.MR, w.step)
	}
	return w
}

// axpyTiles returns the tiles with which [axpy] computes m rows of C, without kernels if there are
// none or if K is so short that a call takes longer than widening B first.
func (mk *microKernel[T]) axpyTiles(t dtype.Type, m, k int) (w wideningTiles[T]) {
	if k < axpyDepth {
		return w
	}
	return mk.wideningTiles(t, m)
}

// kernelFor returns the kernel for a tile of m rows.
func (w *wideningTiles[T]) kernelFor(m int) asm.Widening[T] {
	return w.kernels[ints.CeilDiv(m, w.step)-1]
}

// ahead returns the place from which the tile at row i of a panel prefetches the next panel, and
// the distance between the places of two steps of K. All tiles of the panel, of rows rows and k
// steps, prefetch equally much. ahead begins with the next panel.
func (w *wideningTiles[T]) ahead(ahead []T, i, rows, k int) (next *uint16, apart int) {
	apart = w.cols / ints.CeilDiv(rows, w.height)
	at := i / w.height * k * apart * dtype.BF16.Size() / dtype.Of[T]().Size()
	return (*uint16)(unsafe.Pointer(&ahead[min(at, len(ahead)-1)])), apart
}

// thinElems is the number of elements of C in the columns of a tile up to which a pass over C adds
// stripDepthThin steps of K. Passes over more elements take longer than reading more rows of B at a
// time, although these evict each other.
const thinElems = 128

// depth returns the number of steps of K that one pass over m rows of C adds.
func (w *wideningTiles[T]) depth(m int) int {
	if m*w.cols <= thinElems {
		return stripDepthThin
	}
	return stripDepth
}

// panelElems returns the number of elements of A's panels.
func (d *axpy[T]) panelElems() int { return ints.CeilDiv(d.m, d.tiles.height) * d.tiles.height * d.k }

// packSmall packs A for tiles.
func (d *axpy[T]) packSmall(m *workspace) {
	var o operand[T]
	o.describe(*d.layout, d.small.raw, d.layout.Trans == d.swapped, d.k, 1, d.mk.wideners)
	d.panels = alloc[T](m, d.panelElems())
	tmp, height := alloc[T](m, d.k), d.tiles.height
	for i := 0; i < d.m; i += height {
		o.pack(d.panels[i*d.k:], height, i, min(height, d.m-i), 0, d.k, tmp)
	}
}

// sumTiles is sum with tiles that widen B. tmp is memory for a panel of B.
func (d *axpy[T]) sumTiles(j0, cols int, c []T, ldc int, tmp []T) {
	const ahead = 4 * asm.Line / 2 // elements of a row of B
	t, stored, height := &d.tiles, d.b.halves(), d.tiles.height
	whole, last := t.kernelFor(height), t.kernelFor((d.m-1)%height+1)
	beta := d.betaOfSums
	for p := 0; p < d.k; p += d.depth {
		k := min(d.depth, d.k-p)
		for j := 0; j < cols; j += t.cols {
			n, at, ldb := min(t.cols, cols-j), p*d.b.ld+j0+j, d.b.ld
			next := at + ahead // in the same strip or at the start of the next one
			if j+ahead >= cols {
				next = (p+k)*d.b.ld + j0 + max(j+ahead-cols, 0)
			}
			b, fetched := &stored[at], &stored[min(next, len(stored)-1)]
			if at+(k-1)*ldb+t.cols > len(stored) { // whole vectors would extend beyond the end of B
				b, ldb = copyPanel(tmp, stored[at:], ldb, k, n, t.cols), t.cols
			}
			i := 0
			for ; i+height < d.m; i += height {
				whole(k, &d.panels[i*d.k+p*height], height, b, fetched, ldb, ldb, &c[i*ldc+j], ldc, height, n, d.alpha, beta)
			}
			last(k, &d.panels[i*d.k+p*height], height, b, fetched, ldb, ldb, &c[i*ldc+j], ldc, d.m-i, n, d.alpha, beta)
		}
		beta = 1
	}
}

// halves returns the stored elements, which have 16 bits.
func (o *operand[T]) halves() []uint16 {
	return unsafe.Slice((*uint16)(unsafe.Pointer(unsafe.SliceData(o.raw))), len(o.raw)/2)
}

// copyPanel copies k rows of n elements, which are ld apart, to a panel at tmp with rows of cols
// elements.
func copyPanel[T scalar](tmp []T, from []uint16, ld, k, n, cols int) *uint16 {
	panel := unsafe.Slice((*uint16)(unsafe.Pointer(unsafe.SliceData(tmp))), k*cols)
	clear(panel)
	for i := range k {
		copy(panel[i*cols:][:n], from[i*ld:])
	}
	return &panel[0]
}
