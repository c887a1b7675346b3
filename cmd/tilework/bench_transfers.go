package main

import (
	"context"
	"errors"
	"io"
	"time"

	"tilework/internal/backend"
	"tilework/internal/bench"
	"tilework/internal/device"
	"tilework/internal/gemm"
	"tilework/internal/gpu"
	"tilework/internal/gpu/exec"
	"tilework/internal/gpu/kernel"
	"tilework/internal/gpu/stream"
)

// throughGPU returns a bencher of products on a GPU of matrices in host memory.
func (f *benchFlags) throughGPU(_ context.Context, at backend.Device, problems []gemm.Problem,
	stderr io.Writer) (_ bencher, err error) {
	backend, release, err := gpu.Open(at)
	if err != nil {
		return bencher{}, err
	}
	g, err := f.pickGPU(at, backend, release, problems, stderr)
	if err != nil {
		return bencher{}, err
	}
	var kernels []bench.Subject
	for _, k := range g.picks {
		kernel, precision := splitPrecision(k.kernel)
		kernels = append(kernels,
			&hostSubject{name: k.name, gpu: g.backend, kernel: kernel, inexact: inexact(precision)})
	}
	others, err := f.libraries(stderr)
	if err != nil {
		return bencher{}, errors.Join(err, g.close())
	}
	options := f.options()
	options.Environment, options.Peak = g.environment(), g.peak
	return bencher{
		subjects: func(*gemm.Problem) []string { return names(kernels, others) }, options: options,
		newCase: func(p gemm.Problem) bench.Case {
			return bench.Case{Problem: p, Device: f.device, Threads: f.threads, Transfers: true}
		},
		fits: func(p *gemm.Problem) error { return bench.Fits(p, options) },
		measure: func(ctx context.Context, c bench.Case) ([]bench.Record, error) {
			return bench.Measure(ctx, c, kernels, others, options)
		},
		close: g.close,
	}, nil
}

// hostSubject is a GPU kernel on matrices in host memory, with the copies to the GPU and back.
type hostSubject struct {
	name, kernel string
	inexact
	gpu  *stream.Backend
	plan *stream.Plan
	// steps keeps the layouts of the host's matrices on the GPU, so that one copy moves a matrix.
	steps *exec.Plan
}

func (s *hostSubject) Name() string { return s.name }

func (s *hostSubject) Prepare(ctx context.Context, p *gemm.Problem) (func(gemm.Buffers) error, error) {
	q, err := p.WithPrecision(gemm.Precision(s.inexact))
	if err != nil {
		return nil, err
	}
	if s.steps, err = gpu.PlanResident(s.gpu.Backend, &q, gpuOptions(s.kernel, true)); err != nil {
		return nil, err
	}
	onDevice, err := gpu.PlanResident(s.gpu.Backend, &q, gpuOptions(s.kernel, false))
	if err != nil {
		return nil, err
	}
	s.plan = s.gpu.PlanOf(onDevice, &q, false)
	if err := errors.Join(s.plan.Compile(ctx), s.steps.Compile(ctx)); err != nil {
		return nil, err
	}
	plan := s.plan
	return func(b gemm.Buffers) error { return plan.Run(ctx, b) }, nil
}

func (s *hostSubject) String() string { return planText(s.plan.Plan) }

// Steps runs the host function of CUDA introductions, and times each step: allocate, copy to the
// GPU, launch, copy back.
func (s *hostSubject) Steps(b gemm.Buffers) (t bench.Steps, err error) {
	ctx, d := context.Background(), s.gpu.Device
	clock := time.Now()
	lap := func(to *float64) {
		now := time.Now()
		*to = now.Sub(clock).Seconds()
		clock = now
	}
	var m kernel.Memory
	defer func() {
		for _, at := range []device.Ptr{m[gemm.A], m[gemm.B], m[gemm.C]} {
			err = errors.Join(err, d.Free(at))
		}
	}()
	for _, x := range []struct {
		at *device.Ptr
		n  int
	}{{&m[gemm.A], len(b[gemm.A])}, {&m[gemm.B], len(b[gemm.B])}, {&m[gemm.C], len(b[gemm.C])}} {
		if *x.at, err = d.Alloc(x.n); err != nil {
			return t, err
		}
	}
	lap(&t.Allocate)
	if err := d.CopyIn(ctx, m[gemm.A], b[gemm.A], device.Whole(len(b[gemm.A]))); err != nil {
		return t, err
	}
	if err := d.CopyIn(ctx, m[gemm.B], b[gemm.B], device.Whole(len(b[gemm.B]))); err != nil {
		return t, err
	}
	lap(&t.Upload)
	if err := errors.Join(s.steps.Enqueue(ctx, m), d.Sync(ctx)); err != nil {
		return t, err
	}
	lap(&t.Compute)
	err = d.CopyOut(ctx, b[gemm.C], m[gemm.C], device.Whole(len(b[gemm.C])))
	lap(&t.Download)
	return t, err
}
