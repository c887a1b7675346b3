package exec

import (
	"context"
	"errors"

	"tilework/internal/gemm"
	"tilework/internal/gpu/kernel"
)

// splitsGate reports whether a gated product takes two launches, one for each of its two products.
func (pl *Plan) splitsGate() bool { return pl.Config.Factor.Valid() }

// firstFactor returns the plan of the first of the two launches, A·Up. Its C is scratch memory.
func (pl *Plan) firstFactor() *Plan {
	first := *pl
	first.device = pl.device.Other()
	first.device.C().LD = kernel.PartialSumLD(&pl.device)
	first.Config = pl.configFor(&first.device)
	first.Config.LimitVectors(kernel.Align{gemm.A: pl.align[gemm.A], gemm.B: pl.align[gemm.Up]})
	return &first
}

// gateBytes returns the bytes of the result of the first of the two launches.
func (pl *Plan) gateBytes() int {
	c := pl.device.C()
	return c.Type.Bytes(c.Rows * c.LD)
}

// enqueueGated enqueues both launches of a gated product. The result of the first is in scratch
// memory.
func (pl *Plan) enqueueGated(ctx context.Context, m kernel.Memory) (err error) {
	first := pl.firstFactor()
	sums, err := pl.take(first.gateBytes())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, pl.give(sums)) }()
	if err := first.enqueue(ctx, kernel.Memory{gemm.A: m[gemm.A], gemm.B: m[gemm.Up], gemm.C: sums}); err != nil {
		return err
	}
	m[gemm.Up] = sums
	return pl.enqueueProduct(ctx, m)
}
