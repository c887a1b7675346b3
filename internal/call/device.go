package call

import (
	"context"
	"fmt"

	"tilework/internal/backend"
	"tilework/internal/gemm"
	"tilework/internal/resident"
)

// resident returns the product of operands on a device as package resident takes it.
func (k *Call) resident() (p *resident.Product, err error) {
	switch d, asked := k.device(), k.Device; {
	case asked.Kind != backend.Auto && asked.String() != d.String():
		return nil, fmt.Errorf("%w: device %v for matrices on %v", gemm.ErrUnsupported, asked, d)
	case k.GPUMemory != 0:
		return nil, fmt.Errorf("%w: a limit of GPU memory for matrices on device %v", gemm.ErrUnsupported, d)
	case k.Tile != nil:
		return nil, fmt.Errorf("%w: a function for the tiles of matrices on device %v: only the CPU runs it",
			gemm.ErrUnsupported, d)
	}
	p = &resident.Product{Kernel: k.Kernel, Verify: k.Verify, Within: k.Within}
	a, b, c := &k.operands[gemm.A], &k.operands[gemm.B], &k.operands[gemm.C]
	switch {
	case k.grouped():
		p.Batch = gemm.Batch{Kind: gemm.Grouped, Count: b.Count, Stride: gemm.Strides{gemm.B: b.Stride}}
		if k.operands[gemm.GroupEnds].Memory == nil {
			_, err = k.groupEnds()
		}
	case k.batched():
		p.Batch = gemm.Batch{
			Kind: gemm.Strided, Count: c.Count, Stride: gemm.Strides{gemm.A: a.Stride, gemm.B: b.Stride, gemm.C: c.Stride},
		}
	}
	if err == nil {
		p.Swapped, err = k.complete(&p.Problem, &k.Layouts)
	}
	for s := k.given; s != 0; s &= s - 1 {
		x := &k.operands[s.first()]
		p.Operands[s.first()] = resident.Operand{On: x.resident(), Host: x.Host, Layout: x.Layout}
	}
	return p, err
}

// runOnDevice enqueues the product.
func (k *Call) runOnDevice(ctx context.Context) error {
	p, err := k.resident()
	if err != nil {
		return err
	}
	return resident.Gemm(ctx, p)
}
