package team

import (
	"context"
	"fmt"

	"tilework/internal/backend"
	"tilework/internal/device"
	"tilework/internal/device/cuda"
	"tilework/internal/gemm"
	"tilework/internal/gpu"
	"tilework/internal/gpu/exec"
	"tilework/internal/gpu/kernel"
	"tilework/internal/split"
)

// gpuStore is a real or emulated GPU.
type gpuStore struct {
	backend *exec.Backend
	release func() error
	copies  device.Stream
}

func openGPU(d backend.DeviceName) (store, error) {
	b, release, err := gpu.Open(d)
	if err != nil {
		return nil, err
	}
	s := &gpuStore{backend: b.Backend, release: release}
	if s.copies, err = b.Device.NewStream(); err != nil {
		return nil, device.Join(err, release())
	}
	return s, nil
}

func (s *gpuStore) stream(q queue) device.Stream {
	if q == copies {
		return s.copies
	}
	return s.backend.Device
}

func (s *gpuStore) alloc(n int, what string) (block, error) {
	at, err := s.backend.Device.Alloc(n)
	if err != nil {
		return block{}, fmt.Errorf("%s: %w", what, err)
	}
	return block{at: at}, nil
}

func (s *gpuStore) free(b block) error { return s.backend.Device.Free(b.at) }

func (s *gpuStore) read(ctx context.Context, q queue, dst []byte, pitch int, p part) error {
	return s.stream(q).CopyOut(ctx, dst, p.at, device.Rows{Count: p.rows, Width: p.width, HostPitch: pitch,
		DevicePitch: p.pitch})
}

func (s *gpuStore) write(ctx context.Context, q queue, p part, src []byte, pitch int) error {
	return s.stream(q).CopyIn(ctx, p.at, src, device.Rows{Count: p.rows, Width: p.width, HostPitch: pitch,
		DevicePitch: p.pitch})
}

func (s *gpuStore) copy(to, from part) error {
	return s.copies.CopyPeer(to.at, s.backend.Device, from.at, device.PeerRows{Count: to.rows,
		Width: to.width, FromPitch: from.pitch, ToPitch: to.pitch})
}

func (s *gpuStore) sync(ctx context.Context) error {
	return device.Join(s.copies.Sync(ctx), s.backend.Device.Sync(ctx))
}

func (s *gpuStore) weight() float64 { return s.backend.Weight() }

func (s *gpuStore) cuda() *cuda.GPU {
	g, _ := s.backend.Device.(*cuda.GPU)
	return g
}

func (s *gpuStore) close() error {
	return device.Join(s.copies.Close(), s.release())
}

// align is the alignment of all memory of a device.
const align = 256

func (s *gpuStore) plan(_ context.Context, p *Job, choice *backend.Choice) (planned, error) {
	opt := gpu.Options(p.Kernel)
	opt.KeepLayout = true
	for o := range opt.Align {
		opt.Align[o] = align
	}
	if choice == nil {
		pl, err := gpu.PlanResident(s.backend, &p.Problem, opt)
		return gpuJob{pl}, err
	}
	opt.Kernel, opt.Tile = choice.Kernel, choice.Tile
	pl, err := s.backend.Plan(&p.Problem, opt)
	return gpuJob{pl}, err
}

// gpuJob is a product on a GPU.
type gpuJob struct{ *exec.Plan }

func (x gpuJob) choice() backend.Choice {
	return backend.Choice{Kernel: x.Kernel.Name, Tile: x.Config.Tile.String()}
}

func (x gpuJob) order() string    { return x.Order() }
func (x gpuJob) seconds() float64 { return x.Seconds() }
func (x gpuJob) tilesAtOnce() int { return x.TilesAtOnce() }

func (x gpuJob) describe() Description {
	return Description{Kernel: x.Kernel.Name, Detail: x.Config.String(), Why: x.Why}
}

func (x gpuJob) cuts() (grain, rows, cols int) {
	grain = x.Grain()
	rows, cols = x.Units(max(grain, split.Align))
	return grain, rows, cols
}

func (x gpuJob) part(q *gemm.Problem, row, col int) (task, error) {
	pl := x.Part(*q, row, col)
	pl.Config.CapVectors(&x.Config)
	return gpuTask{pl.Scaled(q.Alpha, q.Beta)}, nil
}

// gpuTask is a part of a product on a GPU.
type gpuTask struct{ *exec.Plan }

func (x gpuTask) scratch() int { return x.ScratchBytes() }

func (x gpuTask) run(ctx context.Context, operands *[gemm.Operands]block, scratch block) error {
	var m kernel.Memory
	for o := range m {
		m[o] = operands[o].at
	}
	// An emulated GPU runs the launch later, and must not drop it when ctx ends after this call.
	return x.In(x.Backend().Device, scratch.at).Enqueue(context.WithoutCancel(ctx), m)
}
