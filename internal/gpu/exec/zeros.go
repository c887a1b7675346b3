package exec

import (
	"tilework/dtype"
	"tilework/internal/device"
	"tilework/internal/gemm"
	"tilework/internal/gpu/kernel"
)

// core returns the product that the kernel of the plan computes, and the alignment of its matrices;
// see [kernel.CoreOf].
func (pl *Plan) core() (*gemm.Problem, kernel.Align) { return kernel.CoreOf(&pl.device, pl.align) }

// isShifted reports whether the launches correct sums for zero points.
func (pl *Plan) isShifted() bool { return pl.device.Shifted() && pl.device.ReadsAB() }

// addShifted adds the launches of a product of uint8 or with zero points: the sums of A and B along
// K, the product of int8, and its correction with the epilogue.
func (pl *Plan) addShifted(r *recorder, m kernel.Memory) {
	inner := *pl
	core, align := pl.core()
	inner.device, inner.align = *core, align
	tile := pl.Config.Tile
	if tile.SplitK < 2 {
		tile = kernel.Tile{}
	}
	total := kernel.SplitKSum.Config(&pl.device, tile)
	total.VecC = kernel.VectorLen(*pl.device.C(), kernel.VectorOf(total.Accum()))
	total.LimitVectors(pl.align)
	total.SM, total.Lines, total.PDL = pl.Config.SM, pl.Config.Lines, pl.Config.PDL
	last := kernel.Args{Config: &total, Problem: &pl.device, Memory: m, Row0: pl.row0, Col0: pl.col0}
	signed := pl.device.Signed()
	at := m
	for _, o := range []gemm.Operand{gemm.A, gemm.B} {
		other := gemm.ColZero
		if o == gemm.B {
			other = gemm.RowZero
		}
		from := pl.device.Layouts[o]
		if from.Type == dtype.U8 || signed.Uses(other) {
			at[o], last.OperandSums[o] = pl.addOperandSums(r, o, m[o], core.Layouts[o])
		}
	}
	inner.addSums(r, at, &last)
}

// addOperandSums adds the launch that sums A or B along K and copies uint8 to layout to. It returns
// the address of the matrix as int8, and that of the sums.
func (pl *Plan) addOperandSums(r *recorder, o gemm.Operand, from device.Ptr, to gemm.Layout) (at, sums device.Ptr) {
	l := pl.device.Layouts[o]
	a := kernel.SignedSumsArgs{From: from, Layout: l, LD: to.LD}
	c := kernel.Config{In: l.Type, Out: dtype.I32, TransA: l.Trans == (o == gemm.A), Lines: pl.Config.Lines,
		PDL: pl.Config.PDL}
	if at = from; l.Type == dtype.U8 {
		a.To = r.take(dtype.I8, to.Rows, to.LD)
		at = a.To
	}
	a.Sums = r.take(dtype.I32, max(l.Rows, l.Cols))
	r.steps = append(r.steps, step{kernelKey{kernel.SignedSums, c}, func(kernel.Host) (device.Launch, error) {
		return a.Launch(&c), nil
	}})
	return at, a.Sums
}
