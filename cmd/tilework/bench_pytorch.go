package main

import (
	"context"
	"fmt"
	"slices"

	"tilework/internal/backend"
	"tilework/internal/bench"
	"tilework/internal/device/timeline"
	"tilework/internal/gemm"
	"tilework/internal/peers/pytorch"
)

// The names of PyTorch in --peers.
const (
	torchPeer      = "pytorch"
	torchAsyncPeer = "pytorch-async"
)

// torchWays lists the ways in which the peers multiply.
var torchWays = map[string]pytorch.Way{torchPeer: pytorch.Gather, torchAsyncPeer: pytorch.Async}

// wantsTorch reports whether --peers names PyTorch.
func (f *benchFlags) wantsTorch() bool {
	return slices.ContainsFunc(f.peerNames(nil), func(name string) bool { return torchWays[name] != "" })
}

// openTorch starts PyTorch on GPUs.
func (f *benchFlags) openTorch(ctx context.Context, name string, gpus []backend.DeviceName,
	python string) (residentPeer, error) {
	o := pytorch.Options{Python: python}
	for _, d := range gpus {
		o.Devices = append(o.Devices, fmt.Sprintf("cuda:%d", d.Index))
	}
	r, err := pytorch.Start(ctx, o)
	if err != nil {
		return nil, err
	}
	return &torchSubject{name: name, way: torchWays[name], runner: r, seed: f.seed}, nil
}

// torchSubject is PyTorch. It has random operands of its own.
type torchSubject struct {
	name    string
	way     pytorch.Way
	runner  *pytorch.Runner
	seed    uint64
	product *pytorch.Prepared // that was prepared last
}

func (s *torchSubject) Name() string   { return s.name }
func (s *torchSubject) String() string { return s.runner.String() }
func (s *torchSubject) file() string   { return s.runner.Python }
func (s *torchSubject) close() error   { return s.runner.Close() }

// Prepare implements [bench.ResidentSubject].
func (s *torchSubject) Prepare(ctx context.Context, p *gemm.Problem, _ *gemm.Buffers) (bench.ResidentProduct, error) {
	x, err := s.runner.Prepare(ctx, s.way, p, s.seed)
	if err != nil {
		return nil, err
	}
	s.product = x
	return torchProduct{x}, nil
}

// Check implements [bench.SelfChecked].
func (s *torchSubject) Check(ctx context.Context) (ratio float64, err error) {
	return s.product.Check(ctx)
}

// torchProduct is a product whose matrices stay in PyTorch's processes.
type torchProduct struct{ *pytorch.Prepared }

// RunBreakdown implements [bench.ResidentProduct].
func (torchProduct) RunBreakdown(context.Context, int) ([]timeline.Breakdown, error) { return nil, nil }

// CopyIn implements [bench.ResidentProduct].
func (torchProduct) CopyIn(context.Context, []byte) error { return nil }

// CopyOut implements [bench.ResidentProduct].
func (torchProduct) CopyOut(context.Context, []byte) error { return nil }
