package kernel

import (
	"tilework/internal/gpu/frag"
	"tilework/ptx/build"
)

// StoresRows reports whether kernel mma stores C through shared memory. Four lanes hold adjacent
// elements of a row. If these are less than a sector, or if C permits no vectors of a lane's
// elements, stores would write parts of sectors. Then the lanes of a warp exchange their elements,
// and store more elements of fewer rows at once.
func StoresRows(c Config) bool {
	sums := SumsPerRow(c)
	return c.Tile.SplitK <= 1 && (c.VecC < sums || c.Out.Bytes(frag.Quad*sums) < SectorBytes)
}

// RowStore returns the number of adjacent elements of C that a warp of kernel mma stores at once if
// it stores rows.
func RowStore(c Config) int {
	_, cols := warpTile(c.Tile)
	return min(cols, frag.Lanes*c.VecC)
}

// rowPatch returns the rows and columns of a warp's accumulators that are exchanged at once, and
// the distance between two rows in elements. It puts the rows that a store of vectors reaches at
// once into different banks.
func rowPatch(c Config) (rows, cols, stride int) {
	elem := c.Accum().Bytes(1)
	_, cols = warpTile(c.Tile)
	line := frag.BankBytes / elem // a power of two
	return frag.Eight, cols, cols + (frag.Quad*SumsPerRow(c)-cols)&(line-1)
}

// rowPatchBytes returns the shared memory in which the warps of a block exchange accumulators.
func rowPatchBytes(c Config) int {
	if !StoresRows(c) {
		return 0
	}
	rows, _, stride := rowPatch(c)
	return MMAThreads(c.Tile) / frag.Lanes * rows * c.Accum().Bytes(stride)
}

// storeRows stores the accumulators to the tile of C that begins at (row, col), by rows.
func (w *warp) storeRows(row, col build.Reg) {
	k, vec := w.g.Kernel, w.g.Config.VecC
	rows, cols, stride := rowPatch(w.g.Config)
	patches := k.SharedOverlay("Cs", w.g.AccType, MMAThreads(w.g.Config.Tile)/frag.Lanes*rows, stride)
	patch := patches.From(k.Mul(k.Div(k.ThreadIdx(build.X), frag.Lanes), rows), 0)
	// A lane stores vectors of one row of the patch, or of every few rows.
	lane := k.Rem(k.ThreadIdx(build.X), frag.Lanes)
	across := RowStore(w.g.Config) / vec // lanes that store one row together
	line, first := k.Div(lane, across), k.Mul(k.Rem(lane, across), vec)
	row, col = k.Add(row, w.row), k.Add(col, w.col)
	for i := range w.acc {
		for r := range w.in.M / frag.Eight {
			k.Do("bar.warp.sync", -1) // the patch is read
			for _, run := range w.b.Runs() {
				var sums []build.Value
				for _, p := range run.Sums {
					sums = append(sums, w.acc[i][p.Row][2*r+p.Col])
				}
				patch.At(w.eight, k.Mad(w.quad, run.Times, run.More)).StoreVec(sums...)
			}
			k.Do("bar.warp.sync", -1)
			times, more := w.a.Rows(i, r)
			var atRow, atCol []build.Reg
			var vectors [][]build.Reg
			for top := 0; top < rows; top += frag.Lanes / across {
				y := k.Add(line, top)
				for x := 0; x < cols; x += across * vec {
					atRow = append(atRow, k.Add(k.Mad(y, times, row), more))
					atCol = append(atCol, k.Add(k.Add(col, first), x))
					vectors = append(vectors, patch.LoadVec(y, k.Add(first, x), vec))
				}
			}
			w.g.StoreAll(atRow, atCol, vectors)
		}
	}
}
