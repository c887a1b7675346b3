package exec

import (
	"context"

	"tilework/internal/device"
	"tilework/internal/gemm"
	"tilework/internal/gpu/kernel"
)

// enqueueShares starts a batch of more products than a grid has places for.
func (pl *Plan) enqueueShares(ctx context.Context, m kernel.Memory) error {
	p := &pl.device
	for first := 0; first < p.Batch.Count; first += kernel.MaxGridRows {
		share, at := *pl, m
		share.device.Batch.Count = min(p.Batch.Count-first, kernel.MaxGridRows)
		at[gemm.A] += device.Ptr(first * p.Batch.Stride[gemm.A] * p.In().Size())
		at[gemm.B] += device.Ptr(first * p.Batch.Stride[gemm.B] * p.B().Type.Size())
		at[gemm.C] += device.Ptr(first * p.Batch.Stride[gemm.C] * p.Out().Size())
		if err := share.enqueue(ctx, at); err != nil {
			return err
		}
	}
	return nil
}
