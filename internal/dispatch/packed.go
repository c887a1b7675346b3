package dispatch

import (
	"context"
	"fmt"

	"tilework/internal/backend"
	"tilework/internal/gemm"
)

// Packed is a packed B and the device for which it is packed.
type Packed struct {
	backend.Packed
	on *target
}

// Pack packs the matrix of layout l at b, the B of later products, for the device, kernel and
// threads of r, and for row-invariant products if r's is one. The errors wrap ErrUnsupported or
// ErrOutOfMemory, or are the context's.
func Pack(ctx context.Context, l gemm.Layout, b []byte, r Request) (*Packed, error) {
	on := rows[0].first
	if r.Device.Kind != backend.Auto {
		on = find(&r.Device)
	}
	packer, ok := on.Backend.(backend.Packer)
	if !ok {
		return nil, errCannotPack(on)
	}
	packed, err := packer.Pack(ctx, l, b, &backend.Options{
		Choice: backend.Choice{Kernel: r.Kernel}, Threads: r.Threads,
		RowInvariant: r.Problem.Invariance != gemm.NotInvariant})
	if err != nil {
		return nil, err
	}
	return &Packed{packed, on}, nil
}

func errCannotPack(on *target) error {
	return fmt.Errorf("%w: a packed matrix on device %v: only the CPU packs matrices; a GPU keeps them with Open and "+
		"Upload", gemm.ErrUnsupported, on)
}

// checkPacked returns an error unless the product can be computed with its packed B on a device.
func (r *Request) checkPacked(on *target) error {
	switch {
	case r.Verify:
		return fmt.Errorf("%w: verification of a product with a packed B, which needs the unpacked B",
			gemm.ErrUnsupported)
	case on.Backend != r.Packed.on.Backend:
		return errCannotPack(on)
	}
	return nil
}

// check is [gemm.Buffers.Check], without B if it is packed.
func (pl *Plan) check(b *gemm.Buffers) error {
	if pl.Packed == nil {
		return b.Check(&pl.Problem)
	}
	return b.CheckExcept(&pl.Problem, gemm.B)
}
