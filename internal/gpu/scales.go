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

// tileScales are the block scales of a warpgroup's part of a tile, of two steps in turns: those
// of the step that is added to the sums, and those of the next one, which are under way.
type tileScales struct {
	*wgmmaWriter
	// row is the thread's first, of two of every 64, and col the first column or, where each
	// has its own scale, the first that the lane holds, of the warp's every 32nd. They are
	// variables, so that places are computed anew for each load: there are no registers to
	// keep them in.
	row, col build.Reg
	held     [2]struct{ rows, cols []build.Reg }
	block    build.Reg // of K, that is loaded next
}

// newTileScales is nil where there are none.
func (w *wgmmaWriter) newTileScales() *tileScales {
	if w.config.ScaleA == 0 {
		return nil
	}
	variable := func(name string) build.Reg { return w.Var(name, ptx.U32, 0) }
	x := &tileScales{wgmmaWriter: w, row: variable("rowScaled"), col: variable("colScaled"), block: variable("block")}
	s := w.config.Shape
	for n, name := range []string{"Even", "Odd"} {
		x.held[n].rows = w.Vars("scaleA"+name, ptx.F32, s.RowsPerThread, 0)
		x.held[n].cols = w.Vars("scaleB"+name, ptx.F32, ceilDiv(s.N, x.apart()), 0)
	}
	return x
}

// apart is how many columns further the next scale is that a thread holds.
func (x *tileScales) apart() int {
	if x.config.ScaleB == 1 {
		return frag.Lanes
	}
	return gemm.ScaleBlock
}

// fetch has the scales of the first two steps set out, for the part of C at (row, col): they
// come while others multiply.
func (x *tileScales) fetch(row, col build.Reg, o *output) {
	x.Set(x.row, x.Add(row, o.row))
	if x.Set(x.col, col); x.config.ScaleB == 1 {
		x.Set(x.col, x.Add(col, o.inWarp))
	}
	x.If(x.Ne(x.steps, 0), func() {
		x.Set(x.block, x.Div(x.from, gemm.ScaleBlock))
		x.load(0)
		x.load(1)
	})
}

// load has those of the next step set out, which is an even or an odd one. There may be none:
// then the last one's come again.
func (x *tileScales) load(parity int) {
	for n, v := range x.held[parity].rows {
		x.scalesA.at(x.Add(x.row, n/2*groupRows+n%2*8), x.block).LoadTo(v)
	}
	for n, v := range x.held[parity].cols {
		x.scalesB.at(x.Add(x.col, n*x.apart()), x.block).LoadTo(v)
	}
	x.Set(x.block, x.Min(x.Add(x.block, 1), x.Sub(x.CeilDiv(x.to, gemm.ScaleBlock), 1)))
}

// each calls f for each sum of a part, those of 64 rows and some columns from col on, with its
// scale in a step: the product of its row's and its column's.
func (x *tileScales) each(parity, m, col, sums int, o *output, f func(e int, scale build.Reg)) {
	rows, cols := x.held[parity].rows[2*m:][:2], x.held[parity].cols
	var of [2][2]build.Reg // of the two rows, of two neighbours
	for e := range sums {
		if at := col + e/4*8; x.config.ScaleB == 1 && e%4 == 0 {
			for n := range 2 {
				c := x.Shuffle(cols[at/frag.Lanes], x.Add(o.col, at%frag.Lanes+n))
				of[0][n], of[1][n] = x.Mul(rows[0], c), x.Mul(rows[1], c)
			}
		} else if e == 0 {
			for n, row := range rows {
				scale := x.Mul(row, cols[at/gemm.ScaleBlock])
				of[n] = [2]build.Reg{scale, scale}
			}
		}
		f(e, of[e/2%2][e%2])
	}
}
