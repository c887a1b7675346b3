package main

import (
	"context"
	"errors"
	"fmt"
	"io"
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

// torchPeers starts the peers of --peers on GPUs. Closing g ends them.
func (f *benchFlags) torchPeers(ctx context.Context, gpus []backend.Device, g *benchGPU,
	stderr io.Writer) (subjects []bench.ResidentSubject, err error) {
	paths, err := f.paths()
	if err != nil {
		return nil, err
	}
	o := pytorch.Options{Python: paths[torchPeer]}
	for _, d := range gpus {
		o.Devices = append(o.Devices, fmt.Sprintf("cuda:%d", d.Index))
	}
	for _, name := range f.peerNames([]string{torchPeer, torchAsyncPeer}) {
		way := torchWays[name]
		switch {
		case way == "":
			return nil, fmt.Errorf("--peers %s: on several GPUs, or beside %s: want %s or %s, which start processes of their "+
				"own, or --transfers", name, torchPeer, torchPeer, torchAsyncPeer)
		case way == pytorch.Async && len(gpus) == 1:
			return nil, fmt.Errorf("--peers %s: want several GPUs, such as --device gpu:0,1", name)
		}
		r, err := pytorch.Start(ctx, o)
		if err != nil {
			if errors.Is(err, pytorch.ErrNotFound) && (f.peers == "all" || f.optional) {
				fmt.Fprintf(stderr, "peer %s: %v\n", name, err)
				continue
			}
			return nil, fmt.Errorf("--peers %s: %w", name, err)
		}
		g.closers = append(g.closers, r.Close)
		fmt.Fprintf(stderr, "peer %v (%s)\n", r, r.Python)
		subjects = append(subjects, &torchSubject{name: name, way: way, runner: r, seed: f.seed})
	}
	return subjects, nil
}

// torchSubject is PyTorch. It has random operands of its own.
type torchSubject struct {
	name    string
	way     pytorch.Way
	runner  *pytorch.Runner
	seed    uint64
	product *pytorch.Product // that was prepared last
}

func (s *torchSubject) Name() string   { return s.name }
func (s *torchSubject) String() string { return s.runner.String() }

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
type torchProduct struct{ *pytorch.Product }

// RunBreakdown implements [bench.ResidentProduct].
func (torchProduct) RunBreakdown(context.Context, int) ([]timeline.Breakdown, error) { return nil, nil }

// CopyIn implements [bench.ResidentProduct].
func (torchProduct) CopyIn(context.Context, []byte) error { return nil }

// CopyOut implements [bench.ResidentProduct].
func (torchProduct) CopyOut(context.Context, []byte) error { return nil }
