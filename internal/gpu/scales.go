package gpu

import (
	"fmt"

	"tilework/internal/device"
	"tilework/internal/gemm"
	"tilework/internal/gpu/frag"
	"tilework/ptx"
	"tilework/ptx/build"
)

// blockScales are those of op(A)'s rows or of op(B)'s columns, here called rows, of which each
// has one for every [gemm.ScaleBlock] of K, or as many share it.
type blockScales struct {
	*build.Kernel
	first         build.Ptr
	across, along build.Reg // elements from one row's to the next one's, and along K
	side          int       // rows that share them
	rows          build.Reg
}

// declareScales declares both operands' block scales, as scaleArguments lays them out.
func (g *product) declareScales() {
	declare := func(name string, side int, rows build.Reg) blockScales {
		if side == 0 {
			return blockScales{}
		}
		return blockScales{
			g.Kernel, g.Pointer("scales"+name, ptx.F32).ReadOnly(),
			g.Param("across"+name, ptx.U32), g.Param("along"+name, ptx.U32), side, rows,
		}
	}
	g.scalesA = declare("A", g.config.ScaleA, g.m)
	g.scalesB = declare("B", g.config.ScaleB, g.n)
}

func scaleArguments(args *device.Params, p *gemm.Problem, m Memory) {
	if !p.BlockScaled() {
		return
	}
	for _, x := range []struct {
		at device.Ptr
		l  gemm.Layout // with op(A)'s rows as rows
	}{{m.Extras[gemm.ScaleA], p.ScaleA}, {m.Extras[gemm.ScaleB], p.ScaleB.T()}} {
		args.Ptr(x.at)
		args.U32(uint32(x.l.Index(1, 0)))
		args.U32(uint32(x.l.Index(0, 1)))
	}
}

// mostScales is how far apart an operand's may be: what 32 bits count.
const mostScales = 1<<31 - 1

// checkScales is nil if a kernel can address p's block scales. The error is ErrUnsupported.
func (k *Kernel) checkScales(p *gemm.Problem) error {
	switch {
	case !p.BlockScaled():
		return nil
	case !k.scales:
		return fmt.Errorf("%w: kernel %s with block scales", gemm.ErrUnsupported, k.Name)
	case max(p.ScaleA.Len(), p.ScaleB.Len(), p.M, p.N, p.K) > mostScales:
		return fmt.Errorf("%w: block scales of %v and %v: more than 31 bits count", gemm.ErrUnsupported, p.ScaleA, p.ScaleB)
	}
	return nil
}

// at is where a row's scale for a block of K is; of a row that is not there, the last one's.
func (s *blockScales) at(row, block build.Reg) build.Ptr {
	row = s.Div(s.Min(row, s.Sub(s.rows, 1)), s.side)
	return s.first.At(s.Mad(row, s.across, s.Mul(block, s.along)))
}

// times is element p along K of a row, which is x, with its scale, if there are any.
func (s *blockScales) times(x, row, p build.Reg) build.Reg {
	if s.side == 0 {
		return x
	}
	return s.Mul(x, s.at(row, s.Div(p, gemm.ScaleBlock)).Load())
}

// tileScales are the block scales of a warpgroup's part of a tile: those of the step that is added
// to the sums, and those of the next one, which are under way. A warp holds them together, as there
// are few registers beside the sums: the four lanes that have the same rows each the scale of one
// of these and, where columns have scales of their own, each lane that of every 32nd. A shuffle
// hands them to whom they are for.
type tileScales struct {
	*wgmmaWriter
	// row and col are the first whose scales the lane holds, pair the thread's first column. They
	// are variables, so that what is computed of them is where it is needed, and not in
	// registers from before the loop on.
	row, col, pair build.Reg
	// now are those of the step that is added, of the lane's row and each of its columns or, where
	// columns share theirs, the products of the two. coming are the next step's.
	now, coming []build.Reg
}

// newTileScales is nil where there are none.
func (w *wgmmaWriter) newTileScales(o *output) *tileScales {
	if w.config.ScaleA == 0 {
		return nil
	}
	x := &tileScales{wgmmaWriter: w, row: w.Var("rowScaled", ptx.U32, 0), col: w.Var("colScaled", ptx.U32, 0)}
	cols := ceilDiv(w.config.Shape.N, gemm.ScaleBlock)
	if x.ofColumns() {
		x.pair = w.Var("pair", ptx.U32, o.col)
		cols = ceilDiv(w.config.Shape.N, frag.Lanes)
	}
	x.coming = w.Vars("coming", ptx.F32, 1+cols, 0)
	if x.ofColumns() {
		cols++
	}
	x.now = w.Vars("scale", ptx.F32, cols, 0)
	return x
}

// ofColumns says that columns have scales of their own.
func (x *tileScales) ofColumns() bool { return x.config.ScaleB == 1 }

// fetch has the scales of the first step set out, for the part of C at (row, col): they come
// while others multiply.
func (x *tileScales) fetch(row, col build.Reg, o *output) {
	// Of the thread's rows, two of every 64, the one of the lane's place among the four.
	place := x.Rem(o.inWarp, x.config.Shape.RowsPerThread)
	x.Set(x.row, x.Add(x.Add(row, o.row), x.Mad(x.Div(place, 2), groupRows, x.Mul(x.Rem(place, 2), 8))))
	if x.Set(x.col, col); x.ofColumns() {
		x.Set(x.col, x.Add(col, o.inWarp))
	}
	x.If(x.Ne(x.steps, 0), func() { x.load(0) })
}

// load has those of a step set out. There may be no such step: then the last one's come.
func (x *tileScales) load(step build.Value) {
	block := x.Min(x.Add(x.Div(x.from, gemm.ScaleBlock), step), x.Sub(x.CeilDiv(x.to, gemm.ScaleBlock), 1))
	apart := gemm.ScaleBlock
	if x.ofColumns() {
		apart = frag.Lanes
	}
	x.scalesA.at(x.row, block).LoadTo(x.coming[0])
	for n, v := range x.coming[1:] {
		x.scalesB.at(x.Add(x.col, n*apart), block).LoadTo(v)
	}
}

// begin takes those of the step before the next one, which then set out.
func (x *tileScales) begin(next build.Value) {
	for n, v := range x.now {
		if x.ofColumns() {
			x.Set(v, x.coming[n])
		} else {
			x.Set(v, x.Mul(x.coming[0], x.coming[1+n]))
		}
	}
	x.load(next)
}

// add adds to sums a step's part of them, which the tensor cores have summed up of the m-th 64 rows
// and of columns from col on, times the scales of its rows and columns.
func (x *tileScales) add(m, col int, sums, part []build.Reg) {
	held := x.now[0]
	if !x.ofColumns() {
		held = x.now[col/gemm.ScaleBlock]
	}
	var rows [2]build.Reg
	var scales [2][2]build.Reg // of the two rows, of two neighbours
	for n := range rows {
		rows[n] = x.ShuffleAmong(held, (2*m+n)%x.config.Shape.RowsPerThread, frag.Quad)
		scales[n] = [2]build.Reg{rows[n], rows[n]}
	}
	for e := range part {
		if at := col + e/4*8; x.ofColumns() && e%4 == 0 {
			for n := range 2 {
				c := x.Shuffle(x.now[1+at/frag.Lanes], x.Add(x.pair, at%frag.Lanes+n))
				scales[0][n], scales[1][n] = x.Mul(rows[0], c), x.Mul(rows[1], c)
			}
		}
		x.FMA(sums[e], part[e], scales[e/2%2][e%2])
	}
}
