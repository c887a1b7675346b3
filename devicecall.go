package tilework

import (
	"context"
	"fmt"

	"tilework/internal/backend"
	"tilework/internal/gemm"
	"tilework/internal/resident"
)

// resident returns the product of operands on a device as package resident takes it.
func (k *call) resident() (*resident.Product, error) {
	d, of := k.device(), &k.product.Problem
	switch asked := k.settings.device; {
	case asked.Kind != backend.Auto && asked.String() != d.String():
		return nil, fmt.Errorf("%w: device %v for matrices on %v", ErrUnsupported, asked, d)
	case k.gpuMemory != 0:
		return nil, fmt.Errorf("%w: a limit of GPU memory for matrices on device %v", ErrUnsupported, d)
	case k.tile != nil:
		return nil, fmt.Errorf("%w: a function for the tiles of matrices on device %v: only the CPU runs it", ErrUnsupported,
			d)
	}
	single, swapped, err := gemm.New(of.Alpha, *of.A(), *of.B(), of.Beta, *of.C(), k.epilogue)
	if err == nil {
		err = k.checkOperands(&single, swapped)
	}
	if err != nil {
		return nil, err
	}
	p := &resident.Product{
		Alpha: single.Alpha, Beta: single.Beta, Epilogue: k.epilogue,
		Kernel: k.kernel, Precision: k.precision, RowInvariant: k.rowInvariant, Verify: k.verify, Within: k.within,
	}
	for s := k.given; s != 0; s &= s - 1 {
		x := &k.arguments[s.first()]
		p.Operands[s.first()] = resident.Operand{On: x.resident(), Host: x.host, Layout: x.layout}
	}
	a, b, c := &k.arguments[gemm.A], &k.arguments[gemm.B], &k.arguments[gemm.C]
	switch {
	case k.grouped():
		p.Batch = gemm.Batch{Kind: gemm.Grouped, Count: b.count, Stride: gemm.Strides{gemm.B: b.stride}}
		if k.arguments[gemm.GroupEnds].memory == nil {
			_, err = k.groupEnds()
		}
	case k.batched():
		p.Batch = gemm.Batch{
			Kind: gemm.Strided, Count: c.count, Stride: gemm.Strides{gemm.A: a.stride, gemm.B: b.stride, gemm.C: c.stride},
		}
	}
	return p, err
}

// runOnDevice enqueues the product.
func (k *call) runOnDevice(ctx context.Context) error {
	p, err := k.resident()
	if err != nil {
		return err
	}
	return resident.Gemm(ctx, p)
}
