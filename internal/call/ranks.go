package call

import (
	"context"
	"fmt"

	"tilework/internal/backend"
	"tilework/internal/gemm"
	"tilework/internal/team"
)

// onTeam returns the product of matrices of several ranks as package team takes it.
func (k *Call) onTeam() (*team.Product, error) {
	switch {
	case k.Device.Kind != backend.Auto:
		return nil, fmt.Errorf("%w: device %v for matrices of several ranks", gemm.ErrUnsupported, k.Device)
	case k.GPUMemory != 0:
		return nil, fmt.Errorf("%w: a limit of GPU memory for matrices of several ranks", gemm.ErrUnsupported)
	case k.Verify:
		return nil, fmt.Errorf("%w: verifying a product of matrices of several ranks", gemm.ErrUnsupported)
	case k.Tile != nil:
		return nil, fmt.Errorf("%w: a function for the tiles of matrices of several ranks", gemm.ErrUnsupported)
	case k.grouped():
		return nil, fmt.Errorf("%w: groups of rows of matrices of several ranks", gemm.ErrUnsupported)
	}
	p := &team.Product{Kernel: k.Kernel, Threads: k.Threads}
	swapped, err := k.complete(&p.Problem, &k.Layouts)
	for s := k.given; s != 0; s &= s - 1 {
		x, o := &k.operands[s.first()], s.first()
		if swapped {
			o = o.Transposed()
		}
		p.Operands[o] = team.Operand{On: team.Matrix{Memory: x.Team, Layout: x.Layout}, Host: x.Host}
	}
	return p, err
}

// validOnTeam returns the product, or the error of its operands if invalid is nil.
func (k *Call) validOnTeam(invalid error) (*team.Product, error) {
	if invalid != nil {
		return nil, invalid
	}
	return k.onTeam()
}

// runOnTeam computes the product with all ranks. The other ranks learn of an error of the operands
// unless they have the same.
func (k *Call) runOnTeam(ctx context.Context, invalid error) error {
	p, invalid := k.validOnTeam(invalid)
	return k.team().Gemm(ctx, p, invalid)
}
