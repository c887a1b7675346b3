package exec

import (
	"context"

	"tilework/internal/device"
	"tilework/internal/gemm"
	"tilework/internal/gpu/kernel"
)

// enqueueBatchChunks enqueues a strided batch in several launches, for kernels whose grid has a
// product per z and therefore at most [kernel.MaxGridRows] of them.
func (pl *Plan) enqueueBatchChunks(ctx context.Context, m kernel.Memory) error {
	p := &pl.device
	for first := 0; first < p.Batch.Count; first += kernel.MaxGridRows {
		chunk, at := *pl, m
		chunk.device.Batch.Count = min(p.Batch.Count-first, kernel.MaxGridRows)
		at[gemm.A] += device.Ptr(p.In().Bytes(first * p.Batch.Stride[gemm.A]))
		at[gemm.B] += device.Ptr(p.B().Type.Bytes(first * p.Batch.Stride[gemm.B]))
		at[gemm.C] += device.Ptr(p.Out().Bytes(first * p.Batch.Stride[gemm.C]))
		if err := chunk.enqueue(ctx, at); err != nil {
			return err
		}
	}
	return nil
}
