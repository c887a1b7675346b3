// Package exec compiles kernels and launches them on matrices in device memory. A [Plan] holds the
// launches for one product: packing, the kernel itself, the sum of the partial results of split-K,
// and the first product of a gated one.
package exec

import (
	"fmt"

	"tilework/internal/device"
	"tilework/internal/gemm"
	"tilework/internal/gpu/choose"
	"tilework/internal/gpu/kernel"
)

// Options configures a plan. The zero value selects everything automatically.
type Options struct {
	Kernel string // name of a kernel, or empty for the fastest
	Tile   string // tile of the kernel in the format of [kernel.Kernel.ParseTile]
	// SameBits makes a named kernel and tile ErrUnsupported unless they have the bits of the automatic
	// choice.
	SameBits bool
	// KeepLayout keeps the leading dimensions of the host on the device. Otherwise rows on the
	// device are contiguous except for padding to a multiple of 16 bytes.
	KeepLayout bool
	// Align is the alignment of the matrices in device memory in bytes. 0 is the alignment of
	// memory that the device allocates.
	Align kernel.Align
}

// Plan is a product of matrices in device memory: its kernel and configuration, and the launches.
type Plan struct {
	choose.Choice

	// Counted, if not nil, is called for each block of Kernel that has ended, with the number of those
	// that have and of all, from any goroutine. Only the emulator counts.
	Counted func(ended, blocks int64)
	// Around, if not nil, is called to enqueue the launches in stream s, which launch does.
	Around func(s device.Stream, launch func() error) error

	backend  *Backend
	device   gemm.Problem // the product with the layouts in device memory
	selected bool         // the kernel was not requested by name
	align    kernel.Align
	// stream is the stream to launch in, and scratch the address of the scratch memory. A plan
	// without a stream launches in that of the device, and allocates its scratch memory.
	stream       device.Stream
	scratch      device.Ptr
	scratchBytes int
	// origin is the plan that this one equals but for its factors, stream and scratch memory.
	origin *Plan
	// row0 and col0 are the position of C in the whole C if the plan computes a part of a product.
	row0, col0 int
}

// Plan selects a kernel and its configuration for p. Errors wrap ErrUnsupported.
func (b *Backend) Plan(p *gemm.Problem, opt Options) (*Plan, error) {
	pl := &Plan{backend: b, device: OnDevice(p, opt.KeepLayout), align: opt.Align, selected: opt.Kernel == ""}
	info := b.Info()
	var err error
	switch {
	case opt.Kernel != "":
		pl.Choice, err = choose.Named(opt.Kernel, opt.Tile, &pl.device, pl.align, info)
	case opt.Tile != "":
		err = fmt.Errorf("%w: tile %q of no kernel: name the kernel too", gemm.ErrUnsupported, opt.Tile)
	default:
		key := choiceKey{pl.device.UnitFactors(), pl.align}
		pl.Choice, err = b.choices.Get(key, func() (choose.Choice, error) {
			return choose.Best(&key.problem, key.align, info)
		})
	}
	if err != nil {
		return nil, err
	}
	if opt.SameBits {
		if err := pl.checkSameBits(); err != nil {
			return nil, err
		}
	}
	pl.Config.Lines = info.Emulated
	pl.Config.PDL = info.Target.SM >= kernel.PDLSM
	return pl.complete(), nil
}

// Selected reports whether the plan was selected automatically, and not by the name of its kernel.
func (pl *Plan) Selected() bool { return pl.selected }

// Considered returns the candidates that the plan was selected from, ranked, or nil if its kernel
// was requested by name.
func (pl *Plan) Considered() []choose.Candidate {
	if !pl.selected {
		return nil
	}
	return choose.Considered(pl.Candidates())
}

// Candidates returns all candidates for the product.
func (pl *Plan) Candidates() []choose.Candidate {
	return choose.Candidates(&pl.device, pl.align, pl.backend.Info())
}

// OnDevice returns p with the layouts of its matrices in device memory: padded rows, or those of
// p.
func OnDevice(p *gemm.Problem, keepLayout bool) gemm.Problem {
	q := *p
	if keepLayout {
		return q
	}
	for _, o := range []gemm.Operand{gemm.A, gemm.B, gemm.C, gemm.Residual, gemm.Up} {
		if l := p.Layouts[o]; l.Type.Valid() {
			q.Layouts[o] = gemm.Padded(l)
		}
	}
	return q
}

// Part returns the plan of p, a part of the product whose C begins at (row0, col0) of the whole C,
// with the same kernel and tile.
func (pl *Plan) Part(p gemm.Problem, row0, col0 int) *Plan {
	part := *pl
	part.device, part.row0, part.col0 = p, row0, col0
	core, _ := part.core()
	part.Config = pl.configFor(core)
	return part.complete()
}

// configFor returns the configuration of p, another product, with the kernel and the tile of pl.
func (pl *Plan) configFor(p *gemm.Problem) kernel.Config {
	c := pl.Kernel.For(pl.Kernel.Config(p, pl.Config.Tile), pl.backend.Info().Target)
	c.Lines, c.PDL = pl.Config.Lines, pl.Config.PDL
	return c
}

// In returns the plan with launches in a stream, and with scratch memory at an address, where
// [Plan.ScratchBytes] are allocated. Other plans launch in the stream of the device, and allocate
// their scratch memory there. The scratch memory of launches in other streams must not be used or
// freed before the launches are done.
func (pl *Plan) In(s device.Stream, scratch device.Ptr) *Plan {
	placed := *pl
	placed.stream, placed.scratch = s, scratch
	return &placed
}

// ScratchBytes returns the size of the scratch memory on the device in which the launches pass data
// to each other. It is math.MaxInt, more than any device has, if an int does not hold the size.
func (pl *Plan) ScratchBytes() int { return pl.scratchBytes }

// complete sets the fields that follow from the product and the configuration.
func (pl *Plan) complete() *Plan {
	pl.origin, pl.scratchBytes = pl, pl.record().taken
	return pl
}

// Scaled returns the plan with other values of alpha and beta, which are zero where those of the
// plan are. The plan does not depend on other values.
func (pl *Plan) Scaled(alpha, beta complex128) *Plan {
	scaled := *pl
	scaled.device.Alpha, scaled.device.Beta = alpha, beta
	return &scaled
}

// Backend returns the backend that made the plan.
func (pl *Plan) Backend() *Backend { return pl.backend }

// Problem returns the product with the layouts of its matrices in device memory.
func (pl *Plan) Problem() *gemm.Problem { return &pl.device }

// Rows returns the rows to copy between a matrix with layout host and its copy with layout dev.
// The gaps between the rows are not copied: on the host they can belong to someone else.
func Rows(host, dev gemm.Layout) device.Rows {
	bytes := host.Type.Bytes
	return device.Rows{Count: host.Rows, Width: bytes(host.Cols), HostPitch: bytes(host.LD), DevicePitch: bytes(dev.LD)}
}
