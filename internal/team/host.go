package team

import (
	"context"
	"fmt"

	"tilework/dtype"
	"tilework/internal/backend"
	"tilework/internal/device"
	"tilework/internal/device/cuda"
	"tilework/internal/dispatch"
	"tilework/internal/gemm"
	"tilework/internal/host"
	"tilework/internal/ints"
	"tilework/internal/split"
)

// hostStore is the memory of the host and its CPU.
type hostStore struct{}

// checkCPU refuses devices that are neither a CPU nor a single GPU.
func checkCPU(d backend.DeviceName) error {
	if d.Kind != backend.CPU {
		return fmt.Errorf("%w: device %v for a rank (want auto, cpu, gpu, gpu:N, emu or emu:MODEL)", gemm.ErrUnsupported, d)
	}
	return nil
}

func (hostStore) alloc(n int, what string) (block, error) {
	if err := host.CheckMemory(n, what); err != nil {
		return block{}, err
	}
	return block{host: dtype.Bytes(make([]float64, (n+7)/8))[:n:n]}, nil // aligned for every element type
}

func (hostStore) free(block) error { return nil }

func (hostStore) read(_ context.Context, _ queue, dst []byte, pitch int, p part) error {
	for i := range p.rows {
		copy(dst[i*pitch:][:p.width], p.host[i*p.pitch:])
	}
	return nil
}

func (hostStore) write(_ context.Context, _ queue, p part, src []byte, pitch int) error {
	for i := range p.rows {
		copy(p.host[i*p.pitch:][:p.width], src[i*pitch:])
	}
	return nil
}

func (hostStore) copy(to, from part) error {
	for i := range to.rows {
		copy(to.host[i*to.pitch:][:to.width], from.host[i*from.pitch:])
	}
	return nil
}

func (hostStore) stream(queue) device.Stream     { return nil }
func (hostStore) sync(ctx context.Context) error { return ctx.Err() }
func (hostStore) weight() float64                { return 1 }
func (hostStore) cuda() *cuda.GPU                { return nil }
func (hostStore) close() error                   { return nil }

func (hostStore) plan(ctx context.Context, p *Job, choice *backend.Choice) (planned, error) {
	pl, err := dispatch.New(ctx, dispatch.Request{Problem: p.Problem, Device: backend.DeviceName{Kind: backend.CPU},
		Kernel: p.Kernel, Choice: choice, Threads: p.Threads})
	if err != nil {
		return nil, err
	}
	return hostJob{pl}, nil
}

// hostJob is a product on the CPU.
type hostJob struct{ *dispatch.Plan }

func (x hostJob) choice() backend.Choice { return x.Choice() }
func (x hostJob) order() string          { return x.Order() }

func (x hostJob) seconds() float64 {
	const usualRate = 1e11 // operations per second of a CPU that does not predict its time
	if d := x.Predicted(); d > 0 {
		return d.Seconds()
	}
	return x.Problem.Flops() / usualRate
}

func (x hostJob) describe() Description {
	return Description{Kernel: x.Kernel(), Detail: x.Detail(), Why: x.Why()}
}

// cuts allows no cut of a product whose parts would have other bits.
func (x hostJob) cuts() (grain, rows, cols int) {
	const unit = 64
	if x.Order() == "" {
		all := ints.RoundUp(max(x.Problem.M, x.Problem.N, 1), split.Align)
		return all, all, all
	}
	return 1, unit, unit
}

// tilesAtOnce returns 1: the time of a CPU is in proportion to the tiles.
func (x hostJob) tilesAtOnce() int { return 1 }

func (x hostJob) part(q *gemm.Problem, row, col int) (task, error) {
	pl, err := x.PartAs(q, row, col)
	return hostTask{pl}, err
}

// hostTask is a part of a product on the CPU.
type hostTask struct{ *dispatch.Plan }

func (hostTask) scratch() int { return 0 }

func (x hostTask) run(ctx context.Context, operands *[gemm.Operands]block, _ block) error {
	var b gemm.Buffers
	for o := range gemm.Operands {
		if x.Problem.Uses(o) {
			n := x.Problem.Layout(o)
			b[o] = operands[o].host[:min(n.Bytes(), len(operands[o].host))]
		}
	}
	return x.Run(ctx, &b)
}
