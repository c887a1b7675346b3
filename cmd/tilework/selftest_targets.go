package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"tilework/gemmtest"
	"tilework/internal/backend"
	"tilework/internal/device"
	"tilework/internal/dispatch"
	"tilework/internal/gemm"
	"tilework/internal/gpu"
	"tilework/internal/gpu/choose"
	"tilework/internal/gpu/gputest"
	"tilework/internal/gpu/stream"
)

// testTarget is a kernel, optionally with a tile, that the suite runs on.
type testTarget struct {
	kernel, tile string
	fewForms     bool // see gemmtest.Options
	// open returns the implementation. The caller must call close after the last case.
	open func() (impl gemmtest.Implementation, close func() error)
}

// choose returns the kernels of --kernels on a device. The caller must call release after the
// tests.
func (f *selftestFlags) choose(device backend.DeviceName) (all []testTarget, release func() error, err error) {
	if device.Kind == backend.CPU {
		all, err = f.onCPU(device)
		return all, func() error { return nil }, err
	}
	backend, release, err := gpu.Open(device)
	if err != nil {
		return nil, nil, err
	}
	ways, err := f.ways(device, backend.Device.Info())
	if err != nil {
		return nil, nil, cmp.Or(release(), err)
	}
	for _, w := range ways {
		all = append(all, testTarget{w.Name(), w.Tile(), !f.full, func() (gemmtest.Implementation, func() error) {
			own := stream.New(backend.Device) // to release its compiled kernels after its tests
			return w.On(own), own.Close
		}})
	}
	return all, release, nil
}

// ways returns the GPU kernels of --kernels in their smallest tiles, or with --full in each tile.
func (f *selftestFlags) ways(device backend.DeviceName, info *device.Info) (all []gputest.Way, err error) {
	switch {
	case f.kernels == "all" && f.full:
		return gputest.All(info), nil
	case f.kernels == "all":
		return gputest.Smallest(info), nil
	}
	for name := range strings.SplitSeq(f.kernels, ",") {
		kernel, precision := splitPrecision(name)
		kernel, shape, shaped := strings.Cut(kernel, ":")
		subject, _, _ := strings.Cut(name, ":")
		if known := subjectNames(device); !slices.Contains(known, subject) {
			return nil, fmt.Errorf("--kernels: %w", unknownKernel(subject, device, known))
		}
		k, err := choose.Find(kernel)
		if err != nil {
			return nil, fmt.Errorf("--kernels: %w", err)
		}
		w := gputest.Way{Kernel: k, Precision: precision}
		switch {
		case !info.Target.Has(k.Target()):
			return nil, fmt.Errorf("--kernels: %w: kernel %s needs %v, and %s is %v",
				gemm.ErrUnsupported, k.Name, k.Target(), info.Name, info.Target)
		case shaped:
			if w.Shape, err = k.ParseTile(shape); err != nil {
				return nil, fmt.Errorf("--kernels: %w", err)
			}
			all = append(all, w)
		case f.full:
			all = append(all, w.Shapes()...)
		default:
			all = append(all, w.Smallest()...)
		}
	}
	return all, nil
}

// onCPU returns the CPU kernels of --kernels.
func (f *selftestFlags) onCPU(device backend.DeviceName) (all []testTarget, err error) {
	for _, k := range dispatch.Kernels(device) {
		if f.kernels == "all" && k.Available || slices.Contains(strings.Split(f.kernels, ","), k.Name) {
			all = append(all, testTarget{kernel: k.Name, open: func() (gemmtest.Implementation, func() error) {
				return cpuImplementation(k), func() error { return nil }
			}})
		}
	}
	if f.kernels == "all" {
		return all, nil
	}
	for name := range strings.SplitSeq(f.kernels, ",") {
		if !slices.ContainsFunc(all, func(s testTarget) bool { return s.kernel == name }) {
			return nil, fmt.Errorf("--kernels: %w", unknownKernel(name, device, kernelsOf(device)))
		}
	}
	return all, nil
}

// cpuImplementation returns a CPU kernel as an implementation for the suite.
func cpuImplementation(k backend.Kernel) gemmtest.Implementation {
	plan := func(ctx context.Context, p *gemm.Problem) (*dispatch.Plan, error) {
		return dispatch.New(ctx, dispatch.Request{Problem: *p, Device: backend.DeviceName{Kind: backend.CPU}, Kernel: k.Name})
	}
	impl := gemmtest.Implementation{
		Name: k.Name, Tiles: k.Tiles, Accuracy: k.Accuracy, Concurrent: true, Cancels: true,
		Gemm: func(ctx context.Context, p *gemmtest.Problem, b gemmtest.Buffers) error {
			pl, err := plan(ctx, p)
			if err != nil {
				return err
			}
			return pl.Run(ctx, &b)
		},
		Batch: func(ctx context.Context, p *gemmtest.Problem, ends []int32, b gemmtest.Buffers) error {
			var batch []dispatch.Job
			first := 0 // first row of the group
			for n := range p.Products() {
				one, at := p.Product(n)
				bias := 0
				if ends != nil {
					one, at, bias = p.Group(n, first, int(ends[n]))
					first = int(ends[n])
				}
				pl, err := plan(ctx, &one)
				if err != nil {
					return err
				}
				memory := gemm.Buffers{
					gemm.A: from(b[gemm.A], at[0]), gemm.B: from(b[gemm.B], at[1]), gemm.C: from(b[gemm.C], at[2]),
					gemm.Bias: from(b[gemm.Bias], bias),
				}
				batch = append(batch, dispatch.Job{Plan: *pl, Buffers: memory})
			}
			return dispatch.RunBatch(ctx, batch)
		},
	}
	for _, p := range gemmtest.Pairs() {
		if slices.Contains(k.Types, p.In) {
			impl.Types = append(impl.Types, p)
		}
	}
	return impl
}

// from returns b[at:], or an empty slice if b is shorter, as for matrices without elements.
func from(b []byte, at int) []byte { return b[min(at, len(b)):] }
