package exec

import (
	"context"
	"errors"

	"tilework/internal/device"
	"tilework/internal/gemm"
	"tilework/internal/gpu/kernel"
)

// packs says whether the plan takes launches that pack operands.
func (pl *Plan) packs() bool {
	_, is := pl.Kernel.Repack(&pl.device, pl.Config.Tile, pl.align)
	return is.Any()
}

// enqueuePacked starts the launches that pack what has to be, and the product.
func (pl *Plan) enqueuePacked(ctx context.Context, m kernel.Memory) (err error) {
	d := pl.backend.Device
	q, packed := pl.Kernel.Repack(&pl.device, pl.Config.Tile, pl.align)
	sub := *pl
	sub.device, sub.align = q, kernel.Align{gemm.C: pl.align[gemm.C]}
	var all []operandCopy
	for _, o := range kernel.Packable {
		if !packed[o] {
			continue
		}
		from, to := pl.device.Layouts[o], q.Layouts[o]
		r := operandCopy{from: from, source: m[o], to: to, count: 1}
		if stride := pl.device.Batch.Stride[o]; stride > 0 {
			r.count = pl.device.Batch.Count
			r.apart, r.targets = stride*from.Type.Size(), q.Batch.Stride[o]*to.Type.Size()
		}
		if r.target, err = d.Alloc(r.count * to.Rows * to.LD * to.Type.Size()); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, d.Free(r.target)) }()
		m[o] = r.target
		all = append(all, r)
	}
	if err := pl.pack(ctx, all...); err != nil {
		return err
	}
	return sub.enqueue(ctx, m)
}

// repacked is a matrix that is packed to another place, or so many of a batch, the bytes from one
// to the next being apart, and targets where they are packed to.
type operandCopy struct {
	from, to       gemm.Layout
	source, target device.Ptr
	count          int
	apart, targets int
}

// pack starts the launches that pack matrices: one for two, if one text packs both and neither
// is a batch's.
func (pl *Plan) pack(ctx context.Context, all ...operandCopy) error {
	for len(all) > 0 {
		t, together := pl.packText(all[0].from, all[0].to), 1
		if t.kernel == kernel.Pack && len(all) > 1 && all[0].count*all[1].count == 1 && pl.packText(all[1].from, all[1].to) == t {
			together = 2
		}
		f, err := pl.backend.Function(ctx, t.kernel, t.config)
		if err != nil {
			return err
		}
		if err := pl.on().Launch(ctx, f, t.packs(all[:together])); err != nil {
			return err
		}
		all = all[together:]
	}
	return nil
}

// packs returns the launch that packs matrices along z: those of one operand, or one of each of
// two operands, the second as far from the first as the matrices of a batch are apart.
func (t compiledKey) packs(all []operandCopy) device.Launch {
	s := t.config.Tile
	first, last := all[0], all[len(all)-1]
	if len(all) > 1 {
		first.apart, first.targets = int(last.source-first.source), int(last.target-first.target)
	}
	a := kernel.PackArgs{From: first.source, To: first.target, Apart: first.apart, Targets: first.targets}
	l := device.Launch{Block: t.kernel.BlockThreads(s), PDL: t.config.PDL}
	l.Grid.Z = max(first.count, len(all))
	for i, r := range [...]operandCopy{first, last} {
		size := kernel.PackSize{Rows: r.to.Rows, Cols: r.to.Cols, From: r.from.LD, To: r.to.LD * r.to.Type.Size() / kernel.WordBytes}
		if t.kernel == kernel.SplitF32 {
			if r.from.Rows != r.to.Rows {
				r.from = kernel.ColumnAsRow(r.from)
			}
			size.Cols, size.From, size.To = r.from.Cols, r.from.LD, r.to.LD/kernel.SplitTerms
		}
		a.Sizes[i] = size
		l.Grid.X = max(l.Grid.X, kernel.CeilDiv(size.Cols, s.N))
		l.Grid.Y = max(l.Grid.Y, min(kernel.CeilDiv(r.to.Rows, s.M), kernel.MaxGridRows))
	}
	l.Params = a.Encode(t.kernel)
	return l
}

// packText is what packs a matrix of one layout to another; TransA says that rows become
// columns. Blocks that transpose are so small that those SMs which are done first with what was
// launched before would get eight each, and the others none, where there are not enough for all: they do
// not overlap it then.
func (pl *Plan) packText(from, to gemm.Layout) compiledKey {
	c := kernel.Config{In: from.Type, Out: to.Type, TransA: from.Trans != to.Trans, Tile: kernel.Square(kernel.PackSide, 0), PDL: pl.Config.PDL, Lines: pl.Config.Lines}
	switch {
	case from.Type != to.Type:
		return compiledKey{kernel.SplitF32, c}
	case c.TransA:
		const held = 8
		sms, blocks := pl.backend.Device.Info().SMs, kernel.CeilDiv(to.Rows, kernel.PackSide)*kernel.CeilDiv(to.Cols, kernel.PackSide)
		c.PDL = c.PDL && (blocks <= sms || blocks > held/2*sms)
	default: // parts of rows for each warp
		c.Tile.M, c.Tile.N = kernel.PackRows*kernel.PackThreads/32, kernel.PackWords*32*kernel.WordBytes/from.Type.Size()
	}
	return compiledKey{kernel.Pack, c}
}

// packTexts are the texts with which the plan packs.
func (pl *Plan) packTexts() (texts []compiledKey) {
	q, packed := pl.Kernel.Repack(&pl.device, pl.Config.Tile, pl.align)
	for _, o := range kernel.Packable {
		if packed[o] {
			texts = append(texts, pl.packText(pl.device.Layouts[o], q.Layouts[o]))
		}
	}
	return texts
}
