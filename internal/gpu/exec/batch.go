package exec

import (
	"context"

	"tilework/internal/device"
	"tilework/internal/gpu/kernel"
)

// enqueueShares starts a batch of more products than a grid has places for.
func (pl *Plan) enqueueShares(ctx context.Context, m kernel.Memory) error {
	p := &pl.device
	for first := 0; first < p.Batch.Count; first += kernel.MaxGridRows {
		share, at := *pl, m
		share.device.Batch.Count = min(p.Batch.Count-first, kernel.MaxGridRows)
		at.A += device.Ptr(first * p.Batch.A * p.A.Type.Size())
		at.B += device.Ptr(first * p.Batch.B * p.B.Type.Size())
		at.C += device.Ptr(first * p.Batch.C * p.C.Type.Size())
		if err := share.enqueue(ctx, at); err != nil {
			return err
		}
	}
	return nil
}
