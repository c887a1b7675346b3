package gpu

import (
	"context"
	"errors"
)

// enqueueParts starts both launches, with memory for what goes from one to the other.
func (pl *Plan) enqueueParts(ctx context.Context, m Memory) (err error) {
	d, p := pl.backend.Device, &pl.device
	if m.Sums, err = d.Alloc(sumsBytes(p, pl.Config.Shape)); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.Free(m.Sums)) }()
	m.part = partOf(p.K, pl.Config.Shape)
	first := m
	first.C = 0 // which the second launch writes
	if err := pl.launch(ctx, pl.Kernel, pl.Config.partial(), first); err != nil {
		return err
	}
	return pl.launch(ctx, sum, sumConfig(pl.Config), m)
}
