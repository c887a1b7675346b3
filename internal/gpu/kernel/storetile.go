package kernel

import "tilework/ptx/build"

// storeTile hands over the sums of a block's tile of C, whose thread (ty, tx) has rows
// and columns as place says. A patch of it at a time, a fragment of each thread of a
// warp, goes through shared memory, from where the threads take neighbouring elements of
// rows, as many as C's layout lets them move at once: whatever its leading dimension is,
// stores are coalesced.
//
// In shared memory neighbours have changed places. That costs nothing, and has the
// compiler, which wants what it stores as a vector in registers side by side, put the sum
// of column j into a register of the other bank than the element of B for it. The
// multiply-add that reads both need not wait for one of them then.
func (g *Writer) storeTile(acc [][]build.Reg, row0, col0, ty, tx build.Reg) {
	k, s := g.Kernel, g.Config.Tile
	width, vec := VectorOf(g.Config.In.Info().Accum), g.Config.VecC
	if s.SplitK > 1 {
		vec = width
	}
	warpRows, warpCols := warpGrid(s)
	cols := warpCols * width
	tid := k.ThreadIdx(build.X)
	lane, warp := k.Rem(tid, 32), k.Div(tid, 32)
	y, x := k.Div(lane, warpCols), k.Rem(lane, warpCols)
	// Where the warp's first patch begins in C, and a warp's two patches in turn.
	top := k.Add(row0, k.Mul(k.Sub(ty, y), width))
	left := k.Add(col0, k.Mul(k.Sub(tx, x), width))
	patches := k.Shared("Cs", g.AccType, BlockedThreads(s)/32*2*warpRows, cols).From(k.Mul(warp, 2*warpRows), 0)

	turn := 0
	for i := range acc {
		for j := 0; j < len(acc[i]); j += width {
			patch := patches.From(turn*warpRows, 0)
			turn = 1 - turn
			patch.At(y, k.Mul(x, width)).StoreVec(swapPairs(acc[i][j : j+width])...)
			k.Do("bar.warp.sync", -1)
			for first := 0; first < 32*width; first += 32 * vec {
				at := k.Add(k.Mul(lane, vec), first)
				r, c := k.Div(at, cols), k.Rem(at, cols)
				row := k.Add(top, k.Add(k.Mul(r, width), threadElement(i, s.M, s.RowsPerThread, width)))
				col := k.Add(left, k.Add(c, threadElement(j, s.N, s.ColsPerThread, width)))
				k.If(g.C.InBounds(row, col), func() { g.StoreSums(row, col, g.loadSwapped(patch, r, c, vec)) })
			}
		}
	}
}

// exchanged is a vector with neighbours in each other's place.
func swapPairs(sums []build.Reg) []build.Value {
	values := make([]build.Value, len(sums))
	for e := range values {
		values[e] = sums[e^1]
	}
	return values
}

// unchanged reads elements of a patch's row from column c on, with neighbours back in
// their places.
func (g *Writer) loadSwapped(patch build.Array, r, c build.Reg, n int) []build.Reg {
	if n == 1 {
		return patch.LoadVec(r, g.Xor(c, 1), 1)
	}
	sums := patch.LoadVec(r, c, n)
	for e := 0; e < n; e += 2 {
		sums[e], sums[e+1] = sums[e+1], sums[e]
	}
	return sums
}
