package sm90

import (
	"slices"

	"tilework/internal/gemm"
	"tilework/internal/gpu/frag"
	"tilework/internal/gpu/kernel"
	"tilework/ptx"
	"tilework/ptx/build"
)

// tileScales are the block scales of a thread's part of a tile, of two rows of 64: those of the step
// that is added to the sums, and those of the next one, which are under way.
type tileScales struct {
	*writer
	// row and col are the first whose scales the thread loads, pair its first column. They are
	// variables, so that what is computed of them is where it is needed, and not in registers
	// from before the loop on.
	row, col, pair build.Reg
	// rows are the next step's, and cols, which are so many columns apart: of a block's columns or a
	// part of them or, where each column has its own, of every 32nd, which a warp holds together,
	// and a shuffle hands out.
	rows, cols []build.Reg
	apart      int
	// now are those of the step that is added: for each of cols its products with the rows', or the
	// rows' and the columns'.
	now []build.Reg
}

// newTileScales is nil where there are none.
func (w *writer) newTileScales(o *output) *tileScales {
	if w.Config.ScaleA == 0 {
		return nil
	}
	x := &tileScales{writer: w, row: w.Var("rowScaled", ptx.U32, 0), col: w.Var("colScaled", ptx.U32, 0)}
	n := w.Config.Tile.N
	switch {
	case x.ofColumns():
		x.apart, x.pair = frag.Lanes, w.Var("pair", ptx.U32, o.col)
	case n > gemm.ScaleBlock && n%gemm.ScaleBlock != 0: // a tile may begin amid a block
		x.apart = gemm.ScaleBlock / 2
	default:
		x.apart = gemm.ScaleBlock
	}
	x.rows = w.Vars("rowScale", ptx.F32, 2, 0)
	x.cols = w.Vars("colScale", ptx.F32, kernel.CeilDiv(n, x.apart), 0)
	scales := len(x.rows) * len(x.cols)
	if x.ofColumns() {
		scales = len(x.rows) + len(x.cols)
	}
	x.now = w.Vars("scale", ptx.F32, scales, 0)
	return x
}

// ofColumns says that columns have scales of their own.
func (x *tileScales) ofColumns() bool { return x.Config.ScaleB == 1 }

// fetch has the scales of the first step set out, for the part of C at (row, col).
func (x *tileScales) fetch(row, col build.Reg, o *output) {
	x.Set(x.row, x.Add(row, o.row))
	if x.Set(x.col, col); x.ofColumns() {
		x.Set(x.col, x.Add(col, o.inWarp))
	}
	x.If(x.Ne(x.steps, 0), func() { x.load(0) })
}

// load has those of a step set out. There may be no such step: then the last one's come.
func (x *tileScales) load(step build.Value) {
	block := x.Min(x.Add(x.Div(x.KBegin, gemm.ScaleBlock), step), x.Sub(x.CeilDiv(x.KEnd, gemm.ScaleBlock), 1))
	for n, v := range x.rows {
		x.ScalesA.At(x.Add(x.row, 8*n), block).LoadTo(v)
	}
	for n, v := range x.cols {
		x.ScalesB.At(x.Add(x.col, n*x.apart), block).LoadTo(v)
	}
	x.Do("bar.warp.sync", -1) // or the assembler puts them off
}

// begin takes those of the step before the next one, which then set out.
func (x *tileScales) begin(next build.Value) {
	coming := append(slices.Clone(x.rows), x.cols...)
	for n, v := range x.now {
		if x.ofColumns() {
			x.Set(v, coming[n])
		} else {
			x.Set(v, x.Mul(x.rows[n%2], x.cols[n/2]))
		}
	}
	x.Do("bar.warp.sync", -1) // or they are taken behind the next ones, and wait for these
	x.load(next)
}

// add adds to sums a step's part of them, which the tensor cores have summed up for columns from
// col on, times the scales of its rows and columns.
func (x *tileScales) add(col int, sums, part []build.Reg) {
	var scales [2][2]build.Reg // of the two rows, of two neighbours
	for e := range part {
		switch at := col + e/4*8; {
		case e%4 != 0:
		case x.ofColumns():
			for n := range 2 {
				c := x.Shuffle(x.now[2+at/frag.Lanes], x.Add(x.pair, at%frag.Lanes+n), 0)
				scales[0][n], scales[1][n] = x.Mul(x.now[0], c), x.Mul(x.now[1], c)
			}
		default:
			for n, scale := range x.now[2*(at/x.apart):][:2] {
				scales[n] = [2]build.Reg{scale, scale}
			}
		}
		x.FMA(sums[e], part[e], scales[e/2%2][e%2])
	}
}
