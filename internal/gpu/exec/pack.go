package exec

import (
	"context"

	"tilework/internal/device"
	"tilework/internal/gemm"
	"tilework/internal/gpu/kernel"
)

// Packed returns the plan of the product with packed operands, and reports which operands
// [Plan.Pack] packs for it.
func (pl *Plan) Packed() (*Plan, kernel.Repacked) {
	packed, which := pl.packed()
	if which.Any() {
		packed.complete()
	}
	return packed, which
}

// packed is Packed without the scratch memory of the plan.
func (pl *Plan) packed() (*Plan, kernel.Repacked) {
	if pl.isShifted() {
		return pl, kernel.Repacked{} // the launches pack the copies as int8
	}
	q, which := pl.Kernel.Repack(&pl.device, pl.Config.Tile, pl.align)
	if !which.Any() {
		return pl, which
	}
	sub := *pl
	sub.device, sub.align = q, kernel.Align{gemm.C: pl.align[gemm.C]}
	return &sub, which
}

// Pack enqueues in s the packing of operand o, in the layout of the product, for the plan that
// [Plan.Packed] returns. The product must not be a batch.
func (pl *Plan) Pack(ctx context.Context, s device.Stream, o gemm.Operand, from, to device.Ptr) error {
	packed, _ := pl.packed()
	x := pl.packing(o, &packed.device)
	x.source, x.target = from, to
	var r recorder
	pl.addPacking(&r, []operandCopy{x})
	all, err := pl.backend.prepare(ctx, r.steps)
	if err != nil {
		return err
	}
	return all.enqueue(ctx, s)
}

// An operandCopy describes the packing of one matrix, or of count matrices of a strided batch. The
// strides are in bytes.
type operandCopy struct {
	from, to                   gemm.Layout
	source, target             device.Ptr
	count                      int
	sourceStride, targetStride device.Ptr
}

// packing returns the packing of operand o for q, the product with packed operands, without
// addresses.
func (pl *Plan) packing(o gemm.Operand, q *gemm.Problem) operandCopy {
	x := operandCopy{from: pl.device.Layouts[o], to: q.Layouts[o], count: 1}
	if stride := pl.device.Batch.Stride[o]; stride > 0 {
		x.count = pl.device.Batch.Count
		x.sourceStride = device.Ptr(x.from.Type.Bytes(stride))
		x.targetStride = device.Ptr(x.to.Type.Bytes(q.Batch.Stride[o]))
	}
	return x
}

// addPacking adds the launches that pack matrices. One launch packs two operands if the same kernel
// packs both and neither is a batch.
func (pl *Plan) addPacking(r *recorder, all []operandCopy) {
	for len(all) > 0 {
		t, together := pl.packKernel(all[0].from, all[0].to), 1
		if t.kernel == kernel.Pack && len(all) > 1 && all[0].count*all[1].count == 1 &&
			pl.packKernel(all[1].from, all[1].to) == t {
			together = 2
		}
		copies := all[:together]
		r.steps = append(r.steps, step{t, func(kernel.Host) (device.Launch, error) { return t.packLaunch(copies), nil }})
		all = all[together:]
	}
}

// packLaunch returns the launch that packs the matrices of a batched operand, or one of each of two
// operands. The strides between two operands are the distances of their addresses.
func (t kernelKey) packLaunch(all []operandCopy) device.Launch {
	first, last := all[0], all[len(all)-1]
	if len(all) > 1 {
		first.sourceStride, first.targetStride = last.source-first.source, last.target-first.target
	}
	a := kernel.PackArgs{From: first.source, To: first.target, Apart: first.sourceStride, Targets: first.targetStride}
	l := device.Launch{Grid: device.Dim3{Y: 1, Z: first.count}, Block: t.kernel.BlockThreads(t.config.Tile),
		PDL: t.config.PDL}
	for i, r := range all {
		size, blocks := t.packSize(r)
		a.Sizes[i] = size
		if i == 0 {
			a.Blocks = blocks
		}
		l.Grid.X += blocks
	}
	l.Params = a.Encode(t.kernel)
	return l
}

// packSize describes the matrices of r, and returns the number of blocks that pack one.
func (t kernelKey) packSize(r operandCopy) (size kernel.PackSize, blocks int) {
	size = kernel.PackSize{Rows: r.to.Rows, Cols: r.to.Cols, From: r.from.LD,
		To: r.to.Type.Bytes(r.to.LD) / kernel.WordBytes}
	cols := size.Cols
	if t.kernel == kernel.SplitF32 {
		if r.from.Rows != r.to.Rows {
			r.from = kernel.ColumnAsRow(r.from)
		}
		size.Cols, size.From, size.To = r.from.Cols, r.from.LD, r.to.LD/kernel.SplitTerms
		cols = size.To
	}
	s := t.config.Tile
	return size, kernel.Tiles(size.Rows, s.M) * kernel.Tiles(cols, s.N)
}

// packKernel returns the kernel and configuration that pack a matrix from one layout to another.
// If the layouts differ in Trans, the kernel transposes.
func (pl *Plan) packKernel(from, to gemm.Layout) kernelKey {
	c := kernel.Config{In: from.Type, Out: to.Type, TransA: from.Trans != to.Trans,
		Tile: kernel.Square(kernel.PackSide, 0), PDL: pl.Config.PDL, Lines: pl.Config.Lines}
	switch {
	case from.Type != to.Type:
		return kernelKey{kernel.SplitF32, c}
	case c.TransA:
	default: // each warp copies parts of rows
		c.Tile.M, c.Tile.N = kernel.PackRows*kernel.PackThreads/32, from.Type.Elements(kernel.PackWords*32*kernel.WordBytes)
	}
	return kernelKey{kernel.Pack, c}
}
