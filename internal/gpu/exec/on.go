package exec

import (
	"fmt"

	"tilework/internal/gemm"
)

// On returns the plan of the same product on another device, with the same kernel, tile and order
// of the sums, so that the result has the same bits. The error is ErrUnsupported if the device
// cannot run the kernel.
func (pl *Plan) On(b *Backend) (*Plan, error) {
	if b == pl.backend {
		return pl, nil
	}
	other, err := b.Plan(&pl.device, Options{
		Kernel: pl.Kernel.Name, Tile: pl.Config.Tile.String(), KeepLayout: true, Align: pl.align,
	})
	if err != nil {
		return nil, err
	}
	mine, theirs := pl.backend.Info(), b.Info()
	// Tensor cores of different architectures add in different ways. Kernels without an order use
	// none.
	p, _ := pl.core()
	sums, _ := pl.Kernel.Order(p, pl.Config.Tile, mine.Target.SM)
	switch {
	case other.Config.Tile != pl.Config.Tile:
		return nil, fmt.Errorf("%w: %s has no tile %v of kernel %s", gemm.ErrUnsupported, theirs.Name, pl.Config.Tile,
			pl.Kernel.Name)
	case mine.Target.SM != theirs.Target.SM && sums.Terms > 1:
		return nil, fmt.Errorf("%w: tensor cores of %s add in other ways than those of %s", gemm.ErrUnsupported,
			theirs.Name, mine.Name)
	}
	return other, nil
}
