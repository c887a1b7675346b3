// Package gputest lists the ways in which the GPU kernels compute, for the conformance suite: each
// kernel with each of its tiles, with and without split-K, and in each of its precisions.
package gputest

import (
	"context"
	"slices"

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

// Way is a kernel with a precision and a tile.
type Way struct {
	Kernel    *kernel.Kernel
	Precision gemm.Precision
	// Shape is the tile. With the zero value, the plan chooses a tile for each product.
	Shape kernel.Tile
}

// Name returns the name of the kernel, and the precision if it is not the native one: "wgmma-tf32".
func (w Way) Name() string {
	if w.Precision == gemm.Native {
		return w.Kernel.Name
	}
	return w.Kernel.Name + "-" + w.Precision.String()
}

// Tile returns the name of the tile, or "" if the plan chooses it.
func (w Way) Tile() string {
	if w.chosen() {
		return ""
	}
	return w.Shape.String()
}

// String returns w in the syntax of --kernels: "wgmma-tf32:64x128x32/2x32/8".
func (w Way) String() string {
	if w.chosen() {
		return w.Name()
	}
	return w.Name() + ":" + w.Tile()
}

func (w Way) chosen() bool { return w.Shape == kernel.Tile{} }

// parts is the number of parts of K in a tile with split-K or with serial parts.
const parts = 3

// All returns all ways for a device: every kernel that it can run, in each precision, with each
// tile, with K whole and in parts.
func All(d *device.Info) []Way { return collect(d, Way.Shapes) }

// Smallest returns a short list of ways for a device: every kernel that it can run, in each
// precision, with the smallest tile for each element type and without split-K. Small tiles are the
// fastest to compile and to emulate.
func Smallest(d *device.Info) []Way { return collect(d, Way.Smallest) }

// collect returns the tiles of every kernel and precision.
func collect(d *device.Info, tiles func(Way) []Way) (all []Way) {
	for _, k := range choose.Kernels() {
		if !d.Target.Has(k.Target()) {
			continue
		}
		for _, precision := range append([]gemm.Precision{gemm.Native}, k.Precisions()...) {
			all = append(all, tiles(Way{Kernel: k, Precision: precision})...)
		}
	}
	return all
}

// Shapes returns w with each tile that supports some element type, with K whole and in parts, and
// with stream-K.
func (w Way) Shapes() (all []Way) {
	for _, w.Shape = range w.Kernel.Tiles {
		if !w.Fits() {
			continue
		}
		all = append(all, w)
		split, serial, both, streamed := w, w, w, w
		split.Shape.SplitK, serial.Shape.SerialK = parts, parts
		both.Shape.SplitK, both.Shape.SerialK = parts, parts
		streamed.Shape.StreamK = true
		for _, w := range []Way{split, serial, both, streamed} {
			if s, err := w.Kernel.ParseTile(w.Tile()); err == nil && s == w.Shape && w.Fits() {
				all = append(all, w)
			}
		}
	}
	return all
}

// Smallest returns w with the last tile of the kernel's list for each element type. The list has
// the largest tiles first.
func (w Way) Smallest() (all []Way) {
	w.Shape = kernel.Tile{}
	for _, pair := range w.Types() {
		for _, w.Shape = range slices.Backward(w.Kernel.Tiles) {
			if slices.Contains(w.Types(), pair) {
				if !slices.Contains(all, w) {
					all = append(all, w)
				}
				break
			}
		}
	}
	return all
}

// Fits reports whether the kernel supports some element type in w.
func (w Way) Fits() bool { return len(w.Types()) > 0 }

// Types returns the element types that the kernel supports in w.
func (w Way) Types() (pairs []gemmtest.Pair) {
	for _, pair := range gemmtest.Pairs() {
		l := gemm.Dense(pair.In, 64, 64)
		p, _, err := gemm.New(1, l, l, 0, gemm.Dense(pair.Out, 64, 64), gemm.Epilogue{})
		if err == nil && w.supports(w.in(&p)) {
			pairs = append(pairs, pair)
		}
	}
	return pairs
}

// in returns p in the precision of w.
func (w Way) in(p *gemm.Problem) *gemm.Problem {
	q := *p
	q.Precision = w.Precision
	return &q
}

func (w Way) supports(p *gemm.Problem) bool {
	return w.Kernel.Check(p, w.Shape, kernel.Align{}, nil) == nil
}

// Takes reports whether a device can compute p in w. It ignores the precision of p.
func (w Way) Takes(p *gemm.Problem, d *device.Info) bool {
	return w.Kernel.Check(w.in(p), w.Shape, kernel.Align{}, d) == nil
}

// inC is the index of C in the buffers of a batch.
const inC = 2

// emulated is the limit for M·N·K on an emulated device, as [Way.Volume] takes it. It is higher for
// tiles so large that a case that crosses two of their edges exceeds it.
const emulated = 1 << 15

// Volume returns the limit for M·N·K of products that the emulator computes in w: limit, or less
// for a tile with several threads for each element of C. If K is short, such a tile has many
// threads in many blocks, and most have nothing to do. The limit lets K be twice that of the tile.
func (w Way) Volume(limit int) int {
	if w.chosen() {
		return limit
	}
	s := w.Shape
	elements := s.M * s.N
	threads := max(w.Kernel.BlockThreads(s).Count(), elements)
	return min(limit, max(limit/threads*elements, 2*elements*s.K))
}

// On returns w on a backend as an implementation for the suite. With a tile, it multiplies matrices
// with the leading dimensions of the host, so rows can have any alignment. If the plan chooses the
// tile, rows are padded as for any product of host matrices.
func (w Way) On(b *stream.Backend) gemmtest.Implementation {
	info, opt := b.Device.Info(), exec.Options{Kernel: w.Kernel.Name, Tile: w.Tile(), KeepLayout: !w.chosen()}
	impl := gemmtest.Implementation{
		Name: w.String(), Types: w.Types(), Concurrent: true, Cancels: true,
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
			opt.KeepLayout = true // so that memory between the products keeps its place
			plan, err := b.Plan(w.in(p), opt)
			if err != nil {
				return err
			}
			return devicetest.WithBuffers(ctx, b.Device, inC, [][]byte{m[gemm.A], m[gemm.B], m[gemm.C], m[gemm.Bias],
				dtype.Bytes(ends)}, func(at []device.Ptr) error {
				return plan.Enqueue(ctx, kernel.Memory{gemm.A: at[0], gemm.B: at[1], gemm.C: at[2], gemm.Bias: at[3],
					gemm.GroupEnds: at[4]})
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
		impl.Volume = w.Volume(max(emulated, 2*largest))
	}
	return impl
}
