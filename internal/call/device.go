package call

import (
	"cmp"
	"context"
	"fmt"

	"tilework/internal/backend"
	"tilework/internal/gemm"
	"tilework/internal/resident"
	"tilework/internal/split"
)

// gpus is a device of one GPU or several.
type gpus struct{ *resident.GPUs }

// gpuMemory is memory of a device.
type gpuMemory struct{ *resident.Memory }

// Open opens a real or emulated GPU, or several; see [resident.Open].
func Open(name backend.DeviceName) (Place, error) {
	d, err := resident.Open(name)
	if err != nil {
		return nil, err
	}
	return gpus{d}, nil
}

func (d gpus) New(l gemm.Layout, by split.By) (Memory, gemm.Layout, error) {
	return newMemory(resident.New(d.GPUs, l, by))
}

func (d gpus) NewBatch(l gemm.Layout, count int, by split.By) (Memory, gemm.Layout, error) {
	return newMemory(resident.NewBatch(d.GPUs, l, count, by))
}

func newMemory(m resident.Matrix, err error) (Memory, gemm.Layout, error) {
	if err != nil {
		return nil, m.Layout, err
	}
	return gpuMemory{m.Memory}, m.Layout, nil
}

func (gpus) ofRanks() bool { return false }

func (d gpus) toTune(backend.DeviceName) (backend.DeviceName, error) {
	return backend.ParseDevice(d.String())
}

func (m gpuMemory) Place() Place { return gpus{m.Device()} }

func (m gpuMemory) Matrix(offset int, l gemm.Layout) Stored {
	return resident.Matrix{Memory: m.Memory, Offset: offset, Layout: l}
}

func (m gpuMemory) Size() (int, error) { return m.Memory.Size(), nil }
func (gpuMemory) CheckPart() error     { return nil }

// product returns the product of k as package resident takes it.
func (d gpus) product(k *Call) (p *resident.Job, err error) {
	switch asked := k.Device; {
	case asked.Kind != backend.Auto && asked.String() != d.String():
		return nil, fmt.Errorf("%w: device %v for matrices on %v", gemm.ErrUnsupported, asked, d)
	case k.GPUMemory != 0:
		return nil, fmt.Errorf("%w: a limit of GPU memory for matrices on device %v", gemm.ErrUnsupported, d)
	case k.Tile != nil:
		return nil, fmt.Errorf("%w: a function for the tiles of matrices on device %v: only the CPU runs it",
			gemm.ErrUnsupported, d)
	}
	p = &resident.Job{Kernel: k.Kernel, Verify: k.Verify, Within: k.Within}
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
		to := &p.Operands[s.first()]
		to.Host, to.Layout = x.Host, x.Layout
		if m, ok := x.Memory.(gpuMemory); ok {
			to.On = resident.Matrix{Memory: m.Memory, Offset: x.Offset, Layout: x.Layout}
		}
	}
	return p, err
}

func (d gpus) run(ctx context.Context, k *Call, invalid error) error {
	if invalid != nil {
		return invalid
	}
	p, err := d.product(k)
	if err != nil {
		return err
	}
	return resident.Gemm(ctx, p)
}

func (d gpus) describe(ctx context.Context, k *Call, invalid error) (Description, error) {
	if err := cmp.Or(invalid, ctx.Err()); err != nil {
		return Description{}, err
	}
	p, err := d.product(k)
	if err != nil {
		return Description{}, err
	}
	found, division, err := resident.PlanOf(p)
	if err != nil {
		return Description{}, err
	}
	x := Description{Problem: *found.Problem(), Device: d.String(), Kernel: found.Kernel.Name,
		Detail: found.Config.String(), Why: found.Why, Compile: found.CompileTime()}
	if division != "" {
		x.Detail += "; " + division
	}
	return x, nil
}
