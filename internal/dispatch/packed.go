package dispatch

import (
	"context"
	"fmt"

	"tilework/internal/backend"
	"tilework/internal/cpu"
	"tilework/internal/gemm"
)

// Packed is a B that was packed for the processor; see [cpu.Packed].
type Packed = cpu.Packed

// Pack packs the B of products, whose layout and memory are given. Of the request it
// heeds the device, the kernel and the threads. The errors are ErrUnsupported,
// ErrOutOfMemory and the context's.
func Pack(ctx context.Context, l gemm.Layout, b []byte, r Request) (*Packed, error) {
	if err := checkPacked(r.Device); err != nil {
		return nil, err
	}
	return cpu.Pack(ctx, l, b, cpu.Options{Kernel: r.Kernel, Threads: r.Threads})
}

// checkPacked refuses a packed B anywhere but on the processor.
func checkPacked(d backend.Device) error {
	if d.IsGPU() {
		return fmt.Errorf("%w: a packed matrix on device %v: packing is for the processor; a GPU keeps matrices with Open and Upload", gemm.ErrUnsupported, d)
	}
	return nil
}

// checkHost refuses what only the processor can do anywhere else, and what it cannot.
func (r *Request) checkHost() error {
	switch {
	case r.Packed != nil && r.Verify:
		return fmt.Errorf("%w: verification of a product with a packed B: it needs B as it was", gemm.ErrUnsupported)
	case r.Packed != nil:
		return checkPacked(r.Device)
	case r.Tile != nil && r.Device.IsGPU():
		return fmt.Errorf("%w: a function of Go for each tile on device %v: only the processor runs it", gemm.ErrUnsupported, r.Device)
	}
	return nil
}

// check checks the buffers of the plan's problem. A packed B has no buffer.
func (pl *Plan) check(b *gemm.Buffers) error {
	if pl.Packed == nil {
		return b.Check(&pl.Problem)
	}
	return b.CheckExcept(&pl.Problem, gemm.B)
}
