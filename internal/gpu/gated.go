package gpu

import (
	"context"
	"errors"

	"tilework/internal/gemm"
	"tilework/ptx/build"
)

// A gated product is act(α·A·B) ∘ (α·A·Up). A kernel that gates computes both in one launch: of a
// tile's columns the first half are B's and the second half Up's, for the same columns of C, so
// that a thread which holds every n-th column holds both factors of its elements, and nothing but
// their product leaves it. For any other kernel it is two launches: the sums of A·Up go to memory
// of their own, and the epilogue of A·B is multiplied by them.

// gates says that a launch computes both factors.
func (c Config) gates() bool { return c.Epilogue.Gated && !c.Factor.Valid() }

// columns is how many columns a tile has of C or, if it is turned, of C's transpose.
func (c Config) columns() int {
	if c.gates() {
		return c.Shape.N / 2
	}
	return c.Shape.N
}

// gate is the products of the factors, of sums in the same order.
func (g *product) gate(gates, ups []build.Reg) []build.Reg {
	values := make([]build.Reg, len(gates))
	for i, sum := range gates {
		values[i] = g.Mul(g.alpha, g.total(sum))
	}
	if act := activations[g.config.Epilogue.Activation]; act != nil {
		values = act(g.Kernel, g.config.SM, values)
	}
	for i, x := range values {
		values[i] = g.Mul(x, g.Mul(g.alpha, g.total(ups[i])))
	}
	return values
}

// twice says that the plan's product takes two launches, each of one factor.
func (pl *Plan) twice() bool { return pl.Config.Factor.Valid() }

// other is the plan of the first of the two.
func (pl *Plan) other() *Plan {
	first := *pl
	first.device = pl.device.Other()
	first.device.C.LD = sumsRow(&pl.device)
	first.Config = pl.Kernel.For(pl.Kernel.Config(&first.device, pl.Config.Shape), pl.backend.Device.Info().Target)
	first.Config.Lines, first.Config.Overlaps = pl.Config.Lines, pl.Config.Overlaps
	first.Config.narrow(Align{A: pl.align.A, B: pl.align.Up})
	return &first
}

// enqueueTwice starts both launches, with memory for what goes from one to the other.
func (pl *Plan) enqueueTwice(ctx context.Context, m Memory) (err error) {
	d, first := pl.backend.Device, pl.other()
	sums, err := d.Alloc(first.device.C.Rows * first.device.C.LD * first.device.C.Type.Size())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.Free(sums)) }()
	if err := first.enqueue(ctx, Memory{A: m.A, B: m.Extras[gemm.Up], C: sums}); err != nil {
		return err
	}
	m.Extras[gemm.Up] = sums
	return pl.enqueueProduct(ctx, m)
}
