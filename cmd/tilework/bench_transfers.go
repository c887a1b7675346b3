package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"tilework/internal/backend"
	"tilework/internal/bench"
	"tilework/internal/device"
	"tilework/internal/device/timeline"
	"tilework/internal/dispatch"
	"tilework/internal/gemm"
	"tilework/internal/gpu"
	"tilework/internal/gpu/exec"
	"tilework/internal/gpu/kernel"
	"tilework/internal/gpu/stream"
	"tilework/internal/peers"
)

// throughGPU returns a bencher of products on a GPU of matrices in host memory. Of several GPUs it
// measures the first one and all.
func (f *benchFlags) throughGPU(_ context.Context, at backend.DeviceName, problems []gemm.Problem,
	stderr io.Writer) (_ bencher, err error) {
	one := at
	if at.List != "" {
		if at, err = members(at); err != nil {
			return bencher{}, err
		}
		one = at.Members()[0]
	}
	backend, release, err := gpu.Open(one)
	if err != nil {
		return bencher{}, err
	}
	g, err := f.pickGPU(one, backend, release, problems, stderr)
	if err != nil {
		return bencher{}, err
	}
	limits, err := f.gpuLimits()
	if err != nil {
		return bencher{}, errors.Join(err, g.close())
	}
	var kernels []bench.Subject
	for _, k := range g.picks {
		kernel, precision := splitPrecision(k.kernel)
		subject := hostSubject{name: k.name, at: one, gpu: g.backend, kernel: kernel, inexact: inexact(precision)}
		if at.List != "" {
			kernels = append(kernels, newListSubject(k.name+"@"+at.String(), at, kernel, precision))
		}
		if len(limits) == 0 && at.List == "" {
			kernels = append(kernels, &stepwiseSubject{hostSubject: subject})
			continue
		}
		kernels = append(kernels, &subject)
		for _, l := range limits {
			limited := subject
			limited.name, limited.limit = k.name+"@"+l.text, l.bytes
			kernels = append(kernels, &limited)
		}
	}
	others, err := f.transferPeers(at, g, stderr)
	if err != nil {
		return bencher{}, errors.Join(err, g.close())
	}
	options := f.options()
	options.Environment, options.Peak = g.environment(), g.peak
	return bencher{
		subjects: func(*gemm.Problem) []string { return namesOf(kernels, others) }, options: options,
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
	at    backend.DeviceName
	gpu   *stream.Backend
	limit int // see [stream.Plan.Limit]
	plan  *stream.Plan
}

func (s *hostSubject) Name() string { return s.name }

func (s *hostSubject) Prepare(ctx context.Context, p *gemm.Problem) (func(*gemm.Buffers) error, error) {
	q, err := p.WithPrecision(gemm.Precision(s.inexact))
	if err != nil {
		return nil, err
	}
	onDevice, err := gpu.PlanResident(s.gpu.Backend, &q, gpuOptions(s.kernel, false))
	if err != nil {
		return nil, err
	}
	s.plan = s.gpu.PlanOf(onDevice, &q, false)
	s.plan.Limit = s.limit
	plan := s.plan
	return func(b *gemm.Buffers) error { return plan.Run(ctx, *b) }, plan.Compile(ctx)
}

// RunBreakdown implements [bench.BreakdownRunner].
func (s *hostSubject) RunBreakdown(ctx context.Context, b gemm.Buffers) ([]timeline.Breakdown, error) {
	x, err := s.plan.RunBreakdown(ctx, b)
	x.Device = s.at.String()
	return []timeline.Breakdown{x}, err
}

// String returns the kernel and the schedule of the copies.
func (s *hostSubject) String() string {
	if s.plan == nil {
		return ""
	}
	return s.plan.Kernel.Name + " " + s.plan.Detail()
}

// PredictedSeconds implements [bench.TimePredictor].
func (s *hostSubject) PredictedSeconds() float64 {
	if s.plan == nil {
		return 0
	}
	return s.plan.Predicted().Seconds()
}

// listSubject is a GPU kernel on matrices in host memory, on several GPUs.
type listSubject struct {
	subject
	inexact
}

func newListSubject(name string, at backend.DeviceName, kernel string, precision gemm.Precision) *listSubject {
	return &listSubject{subject{name: name, request: dispatch.Request{Device: at, Kernel: kernel}}, inexact(precision)}
}

func (s *listSubject) Prepare(ctx context.Context, p *gemm.Problem) (func(*gemm.Buffers) error, error) {
	q, err := p.WithPrecision(gemm.Precision(s.inexact))
	if err != nil {
		return nil, err
	}
	return s.subject.Prepare(ctx, &q)
}

// RunBreakdown implements [bench.BreakdownRunner].
func (s *listSubject) RunBreakdown(ctx context.Context, b gemm.Buffers) ([]timeline.Breakdown, error) {
	return s.plan.RunBreakdown(ctx, b)
}

// stepwiseSubject also times the steps of a product that does not overlap them.
type stepwiseSubject struct {
	hostSubject
	// steps keeps the layouts of the host's matrices on the GPU, so that one copy moves a matrix.
	steps *exec.Plan
}

func (s *stepwiseSubject) Prepare(ctx context.Context, p *gemm.Problem) (func(*gemm.Buffers) error, error) {
	run, err := s.hostSubject.Prepare(ctx, p)
	if err != nil {
		return nil, err
	}
	if s.steps, err = gpu.PlanResident(s.gpu.Backend, s.plan.Host(), gpuOptions(s.kernel, true)); err != nil {
		return nil, err
	}
	return run, s.steps.Compile(ctx)
}

// Steps runs the host function of CUDA introductions, and times each step: allocate, copy to the
// GPU, launch, copy back.
func (s *stepwiseSubject) Steps(b gemm.Buffers) (t bench.Steps, err error) {
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

// gpuLimit is an item of --gpu-memory.
type gpuLimit struct {
	text  string
	bytes int
}

// gpuLimits parses --gpu-memory.
func (f *benchFlags) gpuLimits() (limits []gpuLimit, err error) {
	if f.gpuMemory == "" {
		return nil, nil
	}
	for text := range strings.SplitSeq(f.gpuMemory, ",") {
		l := gpuLimit{text: strings.TrimSpace(text)}
		if l.bytes, err = parseGPUMemory(l.text); err != nil {
			return nil, err
		}
		limits = append(limits, l)
	}
	return limits, nil
}

// The names in --peers of cuBLASXt. The second pins the host's matrices, for all subjects.
const (
	xtPeer       = "cublasxt"
	xtPinnedPeer = "cublasxt-pinned"
)

// transferPeers opens the peers of --peers that multiply matrices in host memory, those on GPUs for
// all of at. Closing g closes them.
func (f *benchFlags) transferPeers(at backend.DeviceName, g *benchGPU, stderr io.Writer) ([]bench.Subject, error) {
	var subjects []bench.Subject
	var rest []string
	for _, name := range f.peerNames(append([]string{xtPeer}, libraryNames()...)) {
		if name != xtPeer && name != xtPinnedPeer {
			rest = append(rest, name)
			continue
		}
		if len(subjects) > 0 {
			return nil, fmt.Errorf("--peers %s: want only one of %s and %s, which pins the matrices for all", f.peers, xtPeer,
				xtPinnedPeer)
		}
		paths, err := f.paths()
		if err != nil {
			return nil, err
		}
		var others []int
		if at.List != "" {
			for _, d := range at.Members()[1:] {
				others = append(others, d.Index)
			}
		}
		xt, err := peers.OpenCuBLASXt(g.backend.Device, others, paths[xtPeer])
		if err != nil {
			if f.mayLack(err) {
				fmt.Fprintf(stderr, "peer %v\n", err)
				continue
			}
			return nil, fmt.Errorf("--peers: %w", err)
		}
		g.closers = append(g.closers, xt.Close)
		fmt.Fprintf(stderr, "peer %v (%s)\n", xt, xt.Path)
		subjects = append(subjects, &xtSubject{xt, name})
	}
	others, err := f.libraries(rest, stderr, peersWithTransfers, peersOnCPU)
	return append(subjects, others...), err
}

// xtSubject is cuBLASXt.
type xtSubject struct {
	*peers.CuBLASXt
	name string
}

func (s *xtSubject) Name() string { return s.name }

// Prepare implements [bench.Subject]. The first product of each set of matrices pins them, if the
// subject does; it is not timed.
func (s *xtSubject) Prepare(ctx context.Context, p *gemm.Problem) (func(*gemm.Buffers) error, error) {
	run, err := s.CuBLASXt.Prepare(ctx, p)
	if err != nil || s.name != xtPinnedPeer {
		return run, err
	}
	return func(b *gemm.Buffers) error {
		if err := s.Pin(*b); err != nil {
			return err
		}
		return run(b)
	}, nil
}
