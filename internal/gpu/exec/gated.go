package exec

import (
	"context"
	"errors"

	"tilework/internal/gemm"
	"tilework/internal/gpu/kernel"
)

// twice says that the plan's product takes two launches, each of one factor.
func (pl *Plan) twice() bool { return pl.Config.Factor.Valid() }

// other is the plan of the first of the two.
func (pl *Plan) other() *Plan {
	first := *pl
	first.device = pl.device.Other()
	first.device.C().LD = kernel.PartialSumLD(&pl.device)
	first.Config = pl.Kernel.For(pl.Kernel.Config(&first.device, pl.Config.Tile), pl.backend.Device.Info().Target)
	first.Config.Lines, first.Config.PDL = pl.Config.Lines, pl.Config.PDL
	first.Config.LimitVectors(kernel.Align{gemm.A: pl.align[gemm.A], gemm.B: pl.align[gemm.Up]})
	return &first
}

// enqueueTwice starts both launches, with memory for what goes from one to the other.
func (pl *Plan) enqueueTwice(ctx context.Context, m kernel.Memory) (err error) {
	d, first := pl.backend.Device, pl.other()
	sums, err := d.Alloc(first.device.C().Rows * first.device.C().LD * first.device.Out().Size())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.Free(sums)) }()
	if err := first.enqueue(ctx, kernel.Memory{gemm.A: m[gemm.A], gemm.B: m[gemm.Up], gemm.C: sums}); err != nil {
		return err
	}
	m[gemm.Up] = sums
	return pl.enqueueProduct(ctx, m)
}
