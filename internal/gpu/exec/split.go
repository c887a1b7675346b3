package exec

import (
	"context"
	"errors"

	"tilework/internal/gemm"
	"tilework/internal/gpu/kernel"
)

// enqueueSplitK enqueues both launches of split-K: the partial sums, and the kernel that adds
// them. The partial sums are in scratch memory.
func (pl *Plan) enqueueSplitK(ctx context.Context, m kernel.Memory) (err error) {
	p := &pl.device
	sums, err := pl.take(kernel.PartialSumBytes(p, pl.Config.Tile))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, pl.give(sums)) }()
	partial, total := pl.Config.PartialSums(), kernel.SplitKSumConfig(pl.Config)
	second := pl.args(&total, m)
	second.PartialSums, second.SplitLen = sums, kernel.SplitLen(p, pl.Config.Tile)
	first := second
	first.Config, first.Memory[gemm.C] = &partial, 0 // the second launch writes C
	first.SplitLen *= max(partial.Tile.SerialK, 1)
	if err := pl.launch(ctx, pl.Kernel, first); err != nil {
		return err
	}
	return pl.launch(ctx, kernel.SplitKSum, second)
}
