// Package gputest shows the conformance suite the GPU kernels: each in every shape of its
// tiles, whole and with K split, and in every precision that it has.
package gputest

import (
	"context"

	"tilework/dtype"
	"tilework/gemmtest"
	"tilework/internal/device"
	"tilework/internal/device/devicetest"
	"tilework/internal/gemm"
	"tilework/internal/gpu/choose"
	"tilework/internal/gpu/exec"
	"tilework/internal/gpu/kernel"
	"tilework/internal/gpu/stream"
)

// Way is one way in which a kernel computes.
type Way struct {
	Kernel    *kernel.Kernel
	Precision gemm.Precision
	Shape     kernel.Tile // the zero Shape is whichever a plan chooses for each product
}

// Name is the kernel and, if it is not the elements' own, the precision: "wgmma-tf32".
func (w Way) Name() string {
	if w.Precision == gemm.Native {
		return w.Kernel.Name
	}
	return w.Kernel.Name + "-" + w.Precision.String()
}

// Tile is the shape's name, and empty where a plan chooses.
func (w Way) Tile() string {
	if w.chosen() {
		return ""
	}
	return w.Shape.String()
}

// String is the way as --kernels has it: "wgmma-tf32:64x128x32/2x32/8".
func (w Way) String() string {
	if w.chosen() {
		return w.Name()
	}
	return w.Name() + ":" + w.Tile()
}

func (w Way) chosen() bool { return w.Shape == kernel.Tile{} }

// parts is how many parts K is split into, where a shape can have it split.
const parts = 3

// All are the ways in which a device computes: every kernel that it runs, in each precision and
// each shape in which that multiplies some type.
func All(d *device.Info) (all []Way) {
	for _, k := range choose.Kernels() {
		if !d.Target.Has(k.Target()) {
			continue
		}
		for _, precision := range append([]gemm.Precision{gemm.Native}, k.Precisions()...) {
			all = append(all, Way{Kernel: k, Precision: precision}.Shapes()...)
		}
	}
	return all
}

// Shapes are the ways to compute with the kernel in the precision, in one shape each.
func (w Way) Shapes() (all []Way) {
	for _, w.Shape = range w.Kernel.Tiles {
		if !w.Fits() {
			continue
		}
		all = append(all, w)
		w.Shape.SplitK = parts
		if s, err := w.Kernel.ParseTile(w.Tile()); err == nil && s == w.Shape {
			all = append(all, w)
		}
	}
	return all
}

// Fits says whether the kernel multiplies some type so.
func (w Way) Fits() bool { return len(w.types()) > 0 }

// types are those that it multiplies.
func (w Way) types() (pairs []gemmtest.Pair) {
	for _, pair := range gemmtest.Pairs() {
		l := gemm.Dense(pair.In, 64, 64)
		p, _, err := gemm.New(1, l, l, 0, gemm.Dense(pair.Out, 64, 64), gemm.Epilogue{})
		if err == nil && w.supports(w.in(&p)) {
			pairs = append(pairs, pair)
		}
	}
	return pairs
}

// in is p in the way's precision.
func (w Way) in(p *gemm.Problem) *gemm.Problem {
	q := *p
	q.Precision = w.Precision
	return &q
}

func (w Way) supports(p *gemm.Problem) bool {
	return w.Kernel.Check(p, w.Shape, kernel.Align{}, nil) == nil
}

// Takes says whether a device computes p so, whatever the precision that p names.
func (w Way) Takes(p *gemm.Problem, d *device.Info) bool {
	return w.Kernel.Check(w.in(p), w.Shape, kernel.Align{}, d) == nil
}

// inC is the place of C among a batch's pieces of memory.
const inC = 2

// emulated is the largest M·N·K of a case on an emulated device, unless a case that crosses two
// edges of a tile is larger.
const emulated = 1 << 15

// On is the way, on a backend, as the suite sees it. In a shape of its own it multiplies matrices as
// they lie, whose rows begin anywhere; where a plan chooses, as it does a product of the host's.
func (w Way) On(b *stream.Backend) gemmtest.Implementation {
	info, opt := b.Device.Info(), exec.Options{Kernel: w.Kernel.Name, Shape: w.Tile(), KeepLayout: !w.chosen()}
	impl := gemmtest.Implementation{
		Name: w.String(), Types: w.types(), Concurrent: true, Cancels: true,
		Supports: func(p *gemmtest.Problem) bool { return w.Takes(p, info) },
		Accuracy: func(p *gemmtest.Problem) gemmtest.Accuracy { return w.Kernel.Accuracy(w.in(p)) },
		Gemm: func(ctx context.Context, p *gemmtest.Problem, m gemmtest.Buffers) error {
			plan, err := b.Plan(w.in(p), opt)
			if err != nil {
				return err
			}
			return plan.Run(ctx, m)
		},
		Batch: func(ctx context.Context, p *gemmtest.Problem, ends []int32, m gemmtest.Buffers) error {
			opt := opt
			opt.KeepLayout = true // there is no other for what lies between the products to stay where it is
			plan, err := b.Plan(w.in(p), opt)
			if err != nil {
				return err
			}
			return devicetest.WithBuffers(ctx, b.Device, inC, [][]byte{m[gemm.A], m[gemm.B], m[gemm.C], m[gemm.Bias], dtype.Bytes(ends)}, func(at []device.Ptr) error {
				return plan.Enqueue(ctx, kernel.Memory{gemm.A: at[0], gemm.B: at[1], gemm.C: at[2], gemm.Bias: at[3], gemm.GroupEnds: at[4]})
			})
		},
	}
	shapes := []kernel.Tile{w.Shape}
	if w.chosen() {
		shapes = w.Kernel.Tiles
	}
	largest := 0
	for _, s := range shapes {
		impl.Tiles = append(impl.Tiles, s.M, s.N, max(s.K, 1))
		largest = max(largest, s.M*s.N)
	}
	if info.Emulated {
		impl.Volume = max(emulated, 2*largest)
	}
	return impl
}
