package exec

import (
	"context"
	"errors"

	"tilework/internal/device"
	"tilework/internal/gemm"
	"tilework/internal/gpu/kernel"
)

// needsPacking reports whether the plan packs an operand before the product.
func (pl *Plan) needsPacking() bool {
	_, is := pl.Kernel.Repack(&pl.device, pl.Config.Tile, pl.align)
	return is.Any()
}

// Packed returns the plan of the product with packed operands, and reports which operands
// [Plan.Pack] packs for it.
func (pl *Plan) Packed() (*Plan, kernel.Repacked) {
	q, packed := pl.Kernel.Repack(&pl.device, pl.Config.Tile, pl.align)
	sub := *pl
	sub.device, sub.align = q, kernel.Align{gemm.C: pl.align[gemm.C]}
	return &sub, packed
}

// Pack enqueues the packing of operand o, in the layout of the product, for the plan that
// [Plan.Packed] returns. The product must not be a batch.
func (pl *Plan) Pack(ctx context.Context, o gemm.Operand, from, to device.Ptr) error {
	sub, _ := pl.Packed()
	return Sentinel(pl.pack(ctx, operandCopy{from: pl.device.Layouts[o], source: from, to: sub.device.Layouts[o],
		target: to, count: 1}))
}

// packedBytes returns the bytes of operand o of q, the product with packed operands.
func (pl *Plan) packedBytes(q *gemm.Problem, o gemm.Operand) int {
	l, count := q.Layouts[o], 1
	if pl.device.Batch.Stride[o] > 0 {
		count = pl.device.Batch.Count
	}
	return l.Type.Bytes(count * l.Rows * l.LD)
}

// enqueuePacked enqueues the packing of operands into scratch memory and the product.
func (pl *Plan) enqueuePacked(ctx context.Context, m kernel.Memory) (err error) {
	sub, packed := pl.Packed()
	q := &sub.device
	var all []operandCopy
	for _, o := range kernel.Packable {
		if !packed[o] {
			continue
		}
		from, to := pl.device.Layouts[o], q.Layouts[o]
		r := operandCopy{from: from, source: m[o], to: to, count: 1}
		if stride := pl.device.Batch.Stride[o]; stride > 0 {
			r.count = pl.device.Batch.Count
			r.sourceStride, r.targetStride = from.Type.Bytes(stride), to.Type.Bytes(q.Batch.Stride[o])
		}
		if r.target, err = pl.take(pl.packedBytes(q, o)); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, pl.give(r.target)) }()
		m[o] = r.target
		all = append(all, r)
	}
	if err := pl.pack(ctx, all...); err != nil {
		return err
	}
	return sub.enqueue(ctx, m)
}

// An operandCopy describes the packing of one matrix, or of count matrices of a strided batch. The
// strides are in bytes.
type operandCopy struct {
	from, to                   gemm.Layout
	source, target             device.Ptr
	count                      int
	sourceStride, targetStride int
}

// pack enqueues the launches that pack matrices. One launch packs two operands if the same kernel
// packs both and neither is a batch.
func (pl *Plan) pack(ctx context.Context, all ...operandCopy) error {
	for len(all) > 0 {
		t, together := pl.packKernel(all[0].from, all[0].to), 1
		if t.kernel == kernel.Pack && len(all) > 1 && all[0].count*all[1].count == 1 &&
			pl.packKernel(all[1].from, all[1].to) == t {
			together = 2
		}
		f, err := pl.backend.Function(ctx, t.kernel, t.config)
		if err != nil {
			return err
		}
		if err := pl.launcher().Launch(ctx, f, t.packLaunch(all[:together])); err != nil {
			return err
		}
		all = all[together:]
	}
	return nil
}

// packLaunch returns the launch that packs the matrices of a batched operand, or one of each of two
// operands. The strides between two operands are the distances of their addresses.
func (t kernelKey) packLaunch(all []operandCopy) device.Launch {
	first, last := all[0], all[len(all)-1]
	if len(all) > 1 {
		first.sourceStride, first.targetStride = int(last.source-first.source), int(last.target-first.target)
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
	return size, kernel.CeilDiv(size.Rows, s.M) * kernel.CeilDiv(cols, s.N)
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

// packKernels returns the kernels with which the plan packs operands.
func (pl *Plan) packKernels() (kernels []kernelKey) {
	q, packed := pl.Kernel.Repack(&pl.device, pl.Config.Tile, pl.align)
	for _, o := range kernel.Packable {
		if packed[o] {
			kernels = append(kernels, pl.packKernel(pl.device.Layouts[o], q.Layouts[o]))
		}
	}
	return kernels
}
