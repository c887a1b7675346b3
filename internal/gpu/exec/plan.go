// Package exec compiles kernels and launches them on matrices that are on the device. A
// [Plan] is the list of launches for one product: packing, the kernel itself, the sum of the
// parts of split-K, and the first factor of a gated product.
package exec

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"tilework/internal/device"
	"tilework/internal/gemm"
	"tilework/internal/gpu/choose"
	"tilework/internal/gpu/kernel"
)

// Backend computes products on one device. It keeps the texts that it has compiled.
// Its methods may be called from several goroutines at once.
type Backend struct {
	Device device.Device

	mu       sync.Mutex
	compiled map[compiledKey]*compiled
	tensors  tensors
}

type compiledKey struct {
	kernel *kernel.Kernel
	config kernel.Config
}

// compiled is a text that was compiled, or that somebody holds mu to compile. What
// failed is tried again when it is asked for again.
type compiled struct {
	mu       sync.Mutex
	module   device.Module
	function device.Function
	took     time.Duration // to write and to compile
}

// New is a backend on a device, which stays its caller's to close, after the backend.
func New(d device.Device) *Backend {
	return &Backend{Device: d, compiled: map[compiledKey]*compiled{}}
}

// Close unloads the compiled kernels.
func (b *Backend) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	var errs []error
	for _, c := range b.compiled {
		if c.module != nil {
			errs = append(errs, c.module.Unload())
		}
	}
	clear(b.compiled)
	return device.Join(errs...)
}

// Options of a plan; the zero value leaves all to it.
type Options struct {
	Kernel string
	Shape  string // of the kernel's tiles, as [Kernel.ParseShape] reads it
	// KeepLayout gives the matrices on the device the leading dimensions that they
	// have on the host. Otherwise rows stand side by side there, each at a multiple of
	// 16 bytes.
	KeepLayout bool
	// Align is what the addresses of the matrices on the device are multiples of, in
	// bytes; 0 stands for what memory of their own gives them.
	Align kernel.Align
}

// Plan is a product of matrices on a device: its kernel, and the launches that compute it.
type Plan struct {
	choose.Choice

	backend *Backend
	device  gemm.Problem // with the layouts that the matrices have on the device
	own     bool         // the kernel was not requested by name
	align   kernel.Align
	stream  device.Stream // to launch in; nil for the device's own
	// row0 and col0 are the position of C in the whole C, of which the plan computes a part.
	row0, col0 int
}

// Plan chooses a kernel and its configuration. The error is ErrUnsupported.
func (b *Backend) Plan(p *gemm.Problem, opt Options) (*Plan, error) {
	pl := &Plan{backend: b, device: OnDevice(p, opt.KeepLayout), align: opt.Align, own: opt.Kernel == ""}
	info := b.Device.Info()
	var err error
	switch {
	case opt.Kernel != "":
		pl.Choice, err = choose.Named(opt.Kernel, opt.Shape, &pl.device, info)
	case opt.Shape != "":
		err = fmt.Errorf("%w: a shape %q of no kernel: name the kernel too", gemm.ErrUnsupported, opt.Shape)
	default:
		pl.Choice, err = choose.Best(&pl.device, pl.align, info)
	}
	if err != nil {
		return nil, err
	}
	pl.Config.Lines = info.Emulated
	pl.Config.PDL = pl.overlaps()
	if pl.Kernel.TMA {
		opt.Align[gemm.A], opt.Align[gemm.B] = 0, 0 // or they are packed
	}
	pl.Config.LimitVectors(opt.Align)
	return pl, nil
}

// Considered lists the ways to compute the product that the plan was chosen from; nil where its
// kernel was named.
func (pl *Plan) Considered() []choose.Considered {
	if !pl.own {
		return nil
	}
	return choose.List(&pl.device, pl.align, pl.backend.Device.Info())
}

// OnDevice returns p with the layouts that its matrices get on a device: padded, or as they are.
func OnDevice(p *gemm.Problem, keepLayout bool) gemm.Problem {
	q := *p
	if keepLayout {
		return q
	}
	q.Layouts[gemm.A], q.Layouts[gemm.B], q.Layouts[gemm.C] = kernel.Padded(p.Layouts[gemm.A]), kernel.Padded(p.Layouts[gemm.B]), kernel.Padded(p.Layouts[gemm.C])
	if p.Epilogue.Residual {
		q.Layouts[gemm.Residual] = kernel.Padded(p.Layouts[gemm.Residual])
	}
	if p.Epilogue.Gated {
		q.Layouts[gemm.Up] = kernel.Padded(p.Layouts[gemm.Up])
	}
	return q
}

// overlaps says whether the product gains by having its blocks begin while others still
// run. They take whatever places are free then: where there are more blocks than SMs, some
// SMs get more than their share, which costs more than a launch does.
func (pl *Plan) overlaps() bool {
	info := pl.backend.Device.Info()
	switch {
	case info.Target.SM < kernel.PDLSM:
		return false
	case pl.Kernel.EmitsPDLWait:
		return true // a block fills an SM
	}
	blocks, err := kernel.TileGrid(&pl.device, pl.Config.Tile)
	return err == nil && blocks.X*blocks.Y*blocks.Z <= info.SMs
}

// entry is where the kernel's compiled text for a configuration is kept.
func (b *Backend) entry(k *kernel.Kernel, c kernel.Config) *compiled {
	key := compiledKey{k, c}
	b.mu.Lock()
	defer b.mu.Unlock()
	entry := b.compiled[key]
	if entry == nil {
		entry = &compiled{}
		b.compiled[key] = entry
	}
	return entry
}

// Function returns the kernel compiled for a configuration. It compiles a kernel once. The error is
// the device's; see [Sentinel].
func (b *Backend) Function(ctx context.Context, k *kernel.Kernel, c kernel.Config) (device.Function, error) {
	entry := b.entry(k, c)
	entry.mu.Lock()
	defer entry.mu.Unlock()
	if entry.function != nil {
		return entry.function, nil
	}
	start := time.Now()
	text, err := k.Emit(c)
	if err != nil {
		return nil, err
	}
	m, err := b.Device.Load(ctx, text.String())
	if err != nil {
		return nil, err
	}
	f, err := m.Function(k.Entry())
	if err != nil {
		return nil, device.Join(err, m.Unload())
	}
	entry.module, entry.function, entry.took = m, f, time.Since(start)
	return f, nil
}

// Compile compiles what the plan launches, unless that was done before. The errors
// are those of [Plan.Run].
func (pl *Plan) Compile(ctx context.Context) error {
	if pl.device.Empty() {
		return nil
	}
	return Sentinel(pl.compile(ctx))
}

func (pl *Plan) compile(ctx context.Context) error {
	for _, t := range pl.texts() {
		if _, err := pl.backend.Function(ctx, t.kernel, t.config); err != nil {
			return err
		}
	}
	return nil
}

// texts are what the plan launches.
func (pl *Plan) texts() []compiledKey {
	if pl.twice() {
		return append(pl.other().texts(), pl.textsOfProduct()...)
	}
	return pl.textsOfProduct()
}

// textsOfProduct are those without the first of two factors.
func (pl *Plan) textsOfProduct() []compiledKey {
	c := pl.Config
	if c.Tile.SplitK > 1 {
		return append(pl.packTexts(), compiledKey{pl.Kernel, c.PartialSums().CompileKey()}, compiledKey{kernel.SplitKSum, kernel.SplitKSumConfig(c)})
	}
	return append(pl.packTexts(), compiledKey{pl.Kernel, c.CompileKey()})
}

// CompileTime is how long it took to write the kernel and to have the device compile
// it, whichever plan was the first to need it; 0 if none was.
func (pl *Plan) CompileTime() time.Duration {
	total := time.Duration(0)
	for _, t := range pl.texts() {
		entry := pl.backend.entry(t.kernel, t.config)
		entry.mu.Lock()
		total += entry.took
		entry.mu.Unlock()
	}
	return total
}

// Part returns the plan of p, a part of the product whose C begins at row0 and col0 of the whole
// C, with the same kernel and tile. It launches in s or, if s is nil, in the device's own stream.
func (pl *Plan) Part(p gemm.Problem, row0, col0 int, s device.Stream) *Plan {
	part := *pl
	part.device, part.stream, part.row0, part.col0 = p, s, row0, col0
	part.Config = pl.Kernel.For(pl.Kernel.Config(&p, pl.Config.Tile), pl.backend.Device.Info().Target)
	part.Config.Lines, part.Config.PDL = pl.Config.Lines, pl.Config.PDL
	return &part
}

// UsesScratch reports whether the launches pass data to each other in memory of the device.
func (pl *Plan) UsesScratch() bool { return pl.Config.Tile.SplitK > 1 || pl.packs() || pl.twice() }

// Scaled is the plan for other factors, to which neither kernel nor configuration
// were chosen.
func (pl *Plan) Scaled(alpha, beta float64) *Plan {
	scaled := *pl
	scaled.device.Alpha, scaled.device.Beta = alpha, beta
	return &scaled
}

// Backend is what made the plan.
func (pl *Plan) Backend() *Backend { return pl.backend }

// Problem is the product with the layouts that its matrices have on the device.
func (pl *Plan) Problem() *gemm.Problem { return &pl.device }

// Enqueue starts the product on matrices that are on the device already, in the
// layouts of [Plan.Problem], and does not wait for its end. The errors are those of
// [Plan.Run].
func (pl *Plan) Enqueue(ctx context.Context, m kernel.Memory) error {
	return Sentinel(pl.enqueue(ctx, m))
}

func (pl *Plan) enqueue(ctx context.Context, m kernel.Memory) error {
	switch {
	case pl.device.Empty():
		return nil
	case pl.Kernel.GridFor == nil && pl.device.Batch.Kind == gemm.Strided && pl.device.Batch.Count > kernel.MaxGridRows:
		return pl.enqueueShares(ctx, m)
	case pl.twice():
		return pl.enqueueTwice(ctx, m)
	}
	return pl.enqueueProduct(ctx, m)
}

// enqueueProduct starts the product, of two factors the second.
func (pl *Plan) enqueueProduct(ctx context.Context, m kernel.Memory) error {
	switch {
	case pl.packs():
		return pl.enqueuePacked(ctx, m)
	case pl.Config.Tile.SplitK > 1:
		return pl.enqueueParts(ctx, m)
	}
	return pl.launch(ctx, pl.Kernel, pl.args(&pl.Config, m))
}

// args returns the arguments of a launch of the plan's product in configuration c.
func (pl *Plan) args(c *kernel.Config, m kernel.Memory) kernel.Args {
	return kernel.Args{Config: c, Problem: &pl.device, Memory: m, Row0: pl.row0, Col0: pl.col0}
}

func (pl *Plan) launch(ctx context.Context, k *kernel.Kernel, a kernel.Args) error {
	f, err := pl.backend.Function(ctx, k, a.Config.CompileKey())
	if err != nil {
		return err
	}
	l, err := k.Launch(a, pl.backend)
	if err != nil {
		return err
	}
	return pl.on().Launch(ctx, f, l)
}

// on is where the plan launches.
func (pl *Plan) on() device.Stream {
	if pl.stream != nil {
		return pl.stream
	}
	return pl.backend.Device
}

// Rows are the elements of a matrix without what lies between its rows, which may
// be somebody else's.
func Rows(host, dev gemm.Layout) device.Rows {
	size := host.Type.Size()
	return device.Rows{Count: host.Rows, Width: host.Cols * size, HostPitch: host.LD * size, DevicePitch: dev.LD * size}
}

// Sentinel makes a device's error one of package gemm's too, where that has it.
func Sentinel(err error) error {
	switch {
	case errors.Is(err, device.ErrOutOfMemory):
		return device.WithKind(gemm.ErrOutOfMemory, err)
	case errors.Is(err, device.ErrNoDevice), errors.Is(err, device.ErrLost):
		return device.WithKind(gemm.ErrNoDevice, err)
	}
	return err
}
