package exec

import (
	"context"
	"errors"
	"tilework/internal/gpu/kernel"
)

// enqueueParts starts both launches, with memory for what goes from one to the other.
func (pl *Plan) enqueueParts(ctx context.Context, m kernel.Memory) (err error) {
	d, p := pl.backend.Device, &pl.device
	if m.Sums, err = d.Alloc(kernel.PartialSumBytes(p, pl.Config.Tile)); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.Free(m.Sums)) }()
	m.SplitLen = kernel.SplitLen(p.K, pl.Config.Tile)
	first := m
	first.C = 0 // which the second launch writes
	if err := pl.launch(ctx, pl.Kernel, pl.Config.PartialSums(), first); err != nil {
		return err
	}
	return pl.launch(ctx, kernel.SplitKSum, kernel.SplitKSumConfig(pl.Config), m)
}
