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
	q, is := pl.Kernel.Repack(&pl.device, pl.Config.Tile, pl.align)
	sub := *pl
	sub.device, sub.align = q, kernel.Align{C: pl.align.C}
	var all []operandCopy
	for i, x := range []struct {
		at         *device.Ptr
		from, to   gemm.Layout
		apart, now int // in a batch
	}{
		{&m.A, pl.device.A, q.A, pl.device.Batch.A, q.Batch.A},
		{&m.B, pl.device.B, q.B, pl.device.Batch.B, q.Batch.B},
		{&m.Extras[gemm.Up], pl.device.Up, q.Up, 0, 0},
	} {
		if !is[i] {
			continue
		}
		r := operandCopy{from: x.from, source: *x.at, to: x.to, count: 1}
		if x.apart > 0 {
			r.count, r.apart, r.targets = pl.device.Batch.Count, x.apart*x.from.Type.Size(), x.now*x.to.Type.Size()
		}
		if r.target, err = d.Alloc(r.count * x.to.Rows * x.to.LD * x.to.Type.Size()); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, d.Free(r.target)) }()
		*x.at = r.target
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
		f, err := pl.backend.function(ctx, t.kernel, t.config)
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

// packs is the launch of the text that packs matrices along z: those of an operand, or both
// operands, of which the second lies as far from the first as a batch's matrices do.
func (t compiledKey) packs(all []operandCopy) device.Launch {
	var args device.Params
	s, l := t.config.Tile, device.Launch{Grid: device.Dim3{Z: max(all[0].count, len(all))}, PDL: t.config.PDL}
	first, last := all[0], all[len(all)-1]
	if len(all) > 1 {
		first.apart, first.targets = int(last.source-first.source), int(last.target-first.target)
	}
	shape := func(r operandCopy) {
		cols, ld := r.to.Cols, r.to.LD*r.to.Type.Size()/kernel.WordBytes
		if t.kernel == kernel.SplitF32 {
			if r.from.Rows != r.to.Rows {
				r.from = kernel.ColumnAsRow(r.from)
			}
			cols, ld = r.from.Cols, r.to.LD/kernel.SplitTerms
		}
		for _, n := range []int{r.to.Rows, cols, r.from.LD, ld} {
			args.U64(uint64(n))
		}
		l.Grid.X = max(l.Grid.X, kernel.CeilDiv(cols, s.N))
		l.Grid.Y = max(l.Grid.Y, min(kernel.CeilDiv(r.to.Rows, s.M), kernel.MaxGridRows))
	}
	args.Ptr(first.source)
	args.Ptr(first.target)
	args.U64(uint64(first.apart))
	args.U64(uint64(first.targets))
	if shape(first); t.kernel == kernel.Pack {
		shape(last)
	}
	l.Block, l.Params = t.kernel.BlockThreads(s), args.Bytes()
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
	q, is := pl.Kernel.Repack(&pl.device, pl.Config.Tile, pl.align)
	for i, l := range [...][2]gemm.Layout{{pl.device.A, q.A}, {pl.device.B, q.B}, {pl.device.Up, q.Up}} {
		if is[i] {
			texts = append(texts, pl.packText(l[0], l[1]))
		}
	}
	return texts
}
