package kernel

import "tilework/ptx/build"

// storeTile stores the accumulators to the block's tile of C. A thread holds the rows and columns
// that threadElement describes. One fragment of each thread of a warp at a time goes through shared
// memory. From there each thread takes as many adjacent elements of a row as VecC allows, so stores
// are coalesced for any leading dimension.
//
// Pairs of adjacent elements are swapped in shared memory, which costs nothing. The compiler keeps
// the elements of a vector store in consecutive registers. The swap makes it place the sum of
// column j in the other register bank than the element of B of column j, so the multiply-add that
// reads both has no register bank conflict.
func (w *blockedWriter) storeTile() {
	k, s := w.g.Kernel, w.g.Config.Tile
	width, vec := VectorOf(w.g.Config.Accum()), w.g.Config.VecC
	if s.SplitK > 1 {
		vec = width
	}
	warpRows, warpCols := warpGrid(s)
	cols := warpCols * width
	tid := k.ThreadIdx(build.X)
	lane, warp := k.Rem(tid, 32), k.Div(tid, 32)
	y, x := k.Div(lane, warpCols), k.Rem(lane, warpCols)
	// The position in C of the warp's first patch, and two buffers for alternate patches.
	top := k.Add(w.row0, k.Mul(k.Sub(w.ty, y), width))
	left := k.Add(w.col0, k.Mul(k.Sub(w.tx, x), width))
	patches := k.Shared("Cs", w.g.AccType, BlockedThreads(s)/32*2*warpRows, cols).From(k.Mul(warp, 2*warpRows), 0)

	turn := 0
	for i := range w.acc {
		for j := 0; j < len(w.acc[i]); j += width {
			patch := patches.From(turn*warpRows, 0)
			turn = 1 - turn
			patch.At(y, k.Mul(x, width)).StoreVec(swapPairs(w.acc[i][j : j+width])...)
			k.Do("bar.warp.sync", -1)
			for first := 0; first < 32*width; first += 32 * vec {
				at := k.Add(k.Mul(lane, vec), first)
				r, c := k.Div(at, cols), k.Rem(at, cols)
				row := k.Add(top, k.Add(k.Mul(r, width), threadElement(i, s.M, s.RowsPerThread, width)))
				col := k.Add(left, k.Add(c, threadElement(j, s.N, s.ColsPerThread, width)))
				k.If(w.g.C.InBounds(row, col), func() { w.g.StoreSums(row, col, w.loadSwapped(patch, r, c, vec)) })
			}
		}
	}
}

// swapPairs returns sums with the elements of each pair swapped.
func swapPairs(sums []build.Reg) []build.Value {
	values := make([]build.Value, len(sums))
	for e := range values {
		values[e] = sums[e^1]
	}
	return values
}

// loadSwapped loads n elements of a patch's row from column c on, and undoes swapPairs.
func (w *blockedWriter) loadSwapped(patch build.Array, r, c build.Reg, n int) []build.Reg {
	if n == 1 {
		return patch.LoadVec(r, w.g.Xor(c, 1), 1)
	}
	sums := patch.LoadVec(r, c, n)
	for e := 0; e < n; e += 2 {
		sums[e], sums[e+1] = sums[e+1], sums[e]
	}
	return sums
}
