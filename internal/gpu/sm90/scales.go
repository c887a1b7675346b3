package sm90

import (
	"slices"

	"tilework/internal/gemm"
	"tilework/internal/gpu/frag"
	"tilework/internal/ints"
	"tilework/ptx"
	"tilework/ptx/build"
)

// tileScales holds the block scales of a thread's part of a tile, two rows of every 64. It has
// registers for the scales of the step that is promoted and for those of the next step, whose
// loads are in flight.
type tileScales struct {
	w *writer
	// row and col are the first row and column whose scales the thread loads, pair its first
	// column. They are PTX variables, so that values derived from them are computed at their use
	// and do not occupy registers throughout the loop.
	row, col, pair build.Reg
	// nextRows and nextCols are the scales of the next step. Those of columns are colStride
	// columns apart: one per scale block or half of one. With a scale per column, a lane holds
	// that of every 32nd column, and shuffles distribute them within the warp.
	nextRows, nextCols []build.Reg
	colStride          int
	// current are the factors of the promoted step: the products of row and column scales or, with
	// a scale per column, the scales of the rows and then of the columns.
	current []build.Reg
}

// newTileScales declares the registers of the block scales. It returns nil if the product has
// none.
func (w *writer) newTileScales(ep *epilogue) *tileScales {
	if w.Config.ScaleA == 0 {
		return nil
	}
	x := &tileScales{w: w, row: w.Var("rowScaled", ptx.U32, 0), col: w.Var("colScaled", ptx.U32, 0)}
	n := w.Config.Tile.N
	switch {
	case x.perColumn():
		x.colStride, x.pair = frag.Lanes, w.Var("pair", ptx.U32, ep.col)
	case n > gemm.ScaleBlock && n%gemm.ScaleBlock != 0: // a tile can begin in the middle of a scale block
		x.colStride = gemm.ScaleBlock / 2
	default:
		x.colStride = gemm.ScaleBlock
	}
	x.nextRows = w.Vars("rowScale", ptx.F32, 2, 0)
	x.nextCols = w.Vars("colScale", ptx.F32, ints.CeilDiv(n, x.colStride), 0)
	scales := len(x.nextRows) * len(x.nextCols)
	if x.perColumn() {
		scales = len(x.nextRows) + len(x.nextCols)
	}
	x.current = w.Vars("scale", ptx.F32, scales, 0)
	return x
}

// perColumn reports whether each column has its own scale.
func (x *tileScales) perColumn() bool { return x.w.Config.ScaleB == 1 }

// startTile begins to load the scales of the first step, for the part of C at (row, col).
func (x *tileScales) startTile(row, col build.Reg, ep *epilogue) {
	x.w.Set(x.row, x.w.Add(row, ep.row))
	if x.w.Set(x.col, col); x.perColumn() {
		x.w.Set(x.col, x.w.Add(col, ep.lane))
	}
	x.w.If(x.w.Ne(x.w.steps, 0), func() { x.load(0) })
}

// load begins to load the scales of a step. A step after the last one loads the scales of the
// last.
func (x *tileScales) load(step build.Value) {
	k := x.w.Kernel
	block := k.Min(k.Add(k.Div(x.w.KBegin, gemm.ScaleBlock), step), k.Sub(k.CeilDiv(x.w.KEnd, gemm.ScaleBlock), 1))
	for n, v := range x.nextRows {
		x.w.ScalesA.At(k.Add(x.row, 8*n), block).LoadTo(v)
	}
	for n, v := range x.nextCols {
		x.w.ScalesB.At(k.Add(x.col, n*x.colStride), block).LoadTo(v)
	}
	k.Do("bar.warp.sync", -1) // keeps ptxas from delaying the loads
}

// advance computes the current factors from the scales that were loaded, and begins to load those
// of step next.
func (x *tileScales) advance(next build.Value) {
	loaded := append(slices.Clone(x.nextRows), x.nextCols...)
	for n, v := range x.current {
		if x.perColumn() {
			x.w.Set(v, loaded[n])
		} else {
			x.w.Set(v, x.w.Mul(x.nextRows[n%2], x.nextCols[n/2]))
		}
	}
	x.w.Do("bar.warp.sync", -1) // keeps ptxas from moving the uses after the next loads
	x.load(next)
}

// accumulate adds a partial sum of one step to the accumulators, scaled by its rows and columns.
// The partial sum begins at column col.
func (x *tileScales) accumulate(col int, acc, partial []build.Reg) {
	var scales [2][2]build.Reg // by row and by neighbouring column
	for e := range partial {
		switch at := col + e/4*8; {
		case e%4 != 0:
		case x.perColumn():
			for n := range 2 {
				c := x.w.Shuffle(x.current[2+at/frag.Lanes], x.w.Add(x.pair, at%frag.Lanes+n), 0)
				scales[0][n], scales[1][n] = x.w.Mul(x.current[0], c), x.w.Mul(x.current[1], c)
			}
		default:
			for n, scale := range x.current[2*(at/x.colStride):][:2] {
				scales[n] = [2]build.Reg{scale, scale}
			}
		}
		x.w.FMA(acc[e], partial[e], scales[e/2%2][e%2])
	}
}
