// Package exec compiles kernels and launches them on matrices in device memory. A [Plan] holds the
// launches for one product: packing, the kernel itself, the sum of the partial results of split-K,
// and the first product of a gated one.
package exec

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"

	"tilework/internal/device"
	"tilework/internal/gemm"
	"tilework/internal/gpu/choose"
	"tilework/internal/gpu/kernel"
	"tilework/internal/memo"
	"tilework/ptx"
)

// Backend computes products on one device. It keeps compiled kernels and recent choices. Its
// methods are safe for concurrent use.
type Backend struct {
	Device device.Device

	mu         sync.Mutex
	compiled   map[kernelKey]*compiled
	tensorMaps memo.Table[tensorMapKey, [ptx.TensorMapBytes]byte]
	choices    memo.Table[choiceKey, choose.Choice]
}

// choiceKey identifies an automatic choice on the device of a backend.
type choiceKey struct {
	problem gemm.Problem // with the layouts in device memory
	align   kernel.Align
}

// kernelKey identifies a compiled kernel.
type kernelKey struct {
	kernel *kernel.Kernel
	config kernel.Config
}

// compiled is an entry of the cache. Its mutex is held during compilation. An entry without a
// function has not been compiled, or compilation failed and the next request repeats it.
type compiled struct {
	mu       sync.Mutex
	module   device.Module
	function device.Function
	took     time.Duration // time to generate PTX and compile it
}

// New returns a backend on d. The caller closes d after the backend.
func New(d device.Device) *Backend {
	return &Backend{Device: d, compiled: map[kernelKey]*compiled{}}
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

// Options configures a plan. The zero value selects everything automatically.
type Options struct {
	Kernel string // name of a kernel, or empty for the fastest
	Shape  string // tile of the kernel in the format of [kernel.Kernel.ParseTile]
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

	backend  *Backend
	device   gemm.Problem // the product with the layouts in device memory
	selected bool         // the kernel was not requested by name
	align    kernel.Align
	stream   device.Stream // to launch in; nil for the device's own
	scratch  *scratch      // nil if the launches allocate their scratch memory
	// row0 and col0 are the position of C in the whole C if the plan computes a part of a product.
	row0, col0 int
}

// Plan selects a kernel and its configuration for p. Errors wrap ErrUnsupported.
func (b *Backend) Plan(p *gemm.Problem, opt Options) (*Plan, error) {
	pl := &Plan{backend: b, device: OnDevice(p, opt.KeepLayout), align: opt.Align, selected: opt.Kernel == ""}
	info := b.Device.Info()
	var err error
	switch {
	case opt.Kernel != "":
		pl.Choice, err = choose.Named(opt.Kernel, opt.Shape, &pl.device, pl.align, info)
	case opt.Shape != "":
		err = fmt.Errorf("%w: tile %q of no kernel: name the kernel too", gemm.ErrUnsupported, opt.Shape)
	default:
		pl.Choice, err = b.choices.Get(choiceKey{pl.device, pl.align}, func() (choose.Choice, error) {
			return choose.Best(&pl.device, pl.align, info)
		})
	}
	if err != nil {
		return nil, err
	}
	pl.Config.Lines = info.Emulated
	pl.Config.PDL = info.Target.SM >= kernel.PDLSM
	return pl, nil
}

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
	return choose.Candidates(&pl.device, pl.align, pl.backend.Device.Info())
}

// OnDevice returns p with the layouts of its matrices in device memory: padded rows, or those of
// p.
func OnDevice(p *gemm.Problem, keepLayout bool) gemm.Problem {
	q := *p
	if keepLayout {
		return q
	}
	for _, o := range []gemm.Operand{gemm.A, gemm.B, gemm.C} {
		q.Layouts[o] = gemm.Padded(p.Layouts[o])
	}
	if p.Epilogue.Residual {
		q.Layouts[gemm.Residual] = gemm.Padded(p.Layouts[gemm.Residual])
	}
	if p.Epilogue.Gated {
		q.Layouts[gemm.Up] = gemm.Padded(p.Layouts[gemm.Up])
	}
	return q
}

// entry returns the cache entry of a kernel in a configuration, and creates it if necessary.
func (b *Backend) entry(k *kernel.Kernel, c kernel.Config) *compiled {
	key := kernelKey{k, c}
	b.mu.Lock()
	defer b.mu.Unlock()
	entry := b.compiled[key]
	if entry == nil {
		entry = &compiled{}
		b.compiled[key] = entry
	}
	return entry
}

// Function returns the kernel compiled for a configuration. It compiles a kernel once. The error
// is that of the device, see [Sentinel].
func (b *Backend) Function(ctx context.Context, k *kernel.Kernel, c kernel.Config) (device.Function, error) {
	entry := b.entry(k, c)
	entry.mu.Lock()
	defer entry.mu.Unlock()
	if entry.function != nil {
		return entry.function, nil
	}
	start := time.Now()
	source, err := k.Emit(c)
	if err != nil {
		return nil, err
	}
	m, err := b.Device.Load(ctx, source.String())
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

// Compile compiles the kernels of the plan that are not in the cache. The errors are those of
// [Plan.Enqueue].
func (pl *Plan) Compile(ctx context.Context) error {
	if pl.device.Empty() {
		return nil
	}
	return Sentinel(pl.compile(ctx))
}

// CompileAll compiles plans, several at a time, and returns the error of each. It skips nil.
func CompileAll(ctx context.Context, plans []*Plan) []error {
	errs := make([]error, len(plans))
	var wg sync.WaitGroup
	slots := make(chan struct{}, runtime.GOMAXPROCS(0))
	for i, pl := range plans {
		if pl == nil {
			continue
		}
		wg.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			errs[i] = pl.Compile(ctx)
		})
	}
	wg.Wait()
	return errs
}

func (pl *Plan) compile(ctx context.Context) error {
	for _, t := range pl.kernels() {
		if _, err := pl.backend.Function(ctx, t.kernel, t.config); err != nil {
			return err
		}
	}
	return nil
}

// kernels returns the kernels that the plan launches.
func (pl *Plan) kernels() []kernelKey {
	if pl.splitsGate() {
		return append(pl.firstFactor().kernels(), pl.productKernels()...)
	}
	return pl.productKernels()
}

// productKernels returns the kernels without those of the first product of a gated one.
func (pl *Plan) productKernels() []kernelKey {
	c := pl.Config
	if c.Tile.SplitK > 1 {
		return append(pl.packKernels(), kernelKey{pl.Kernel, c.PartialSums().CompileKey()},
			kernelKey{kernel.SplitKSum, kernel.SplitKSumConfig(c)})
	}
	return append(pl.packKernels(), kernelKey{pl.Kernel, c.CompileKey()})
}

// CompileTime returns the time to generate and compile the kernels of the plan, by whichever plan
// used them first. It is 0 if none is compiled yet.
func (pl *Plan) CompileTime() time.Duration {
	total := time.Duration(0)
	for _, t := range pl.kernels() {
		entry := pl.backend.entry(t.kernel, t.config)
		entry.mu.Lock()
		total += entry.took
		entry.mu.Unlock()
	}
	return total
}

// Part returns the plan of p, a part of the product whose C begins at (row0, col0) of the whole C,
// with the same kernel and tile. It launches in s or, if s is nil, in the device's default stream.
func (pl *Plan) Part(p gemm.Problem, row0, col0 int, s device.Stream) *Plan {
	part := *pl
	part.device, part.stream, part.row0, part.col0 = p, s, row0, col0
	part.Config = pl.configFor(&p)
	return &part
}

// configFor returns the configuration of p, another product, with the kernel and the tile of pl.
func (pl *Plan) configFor(p *gemm.Problem) kernel.Config {
	c := pl.Kernel.For(pl.Kernel.Config(p, pl.Config.Tile), pl.backend.Device.Info().Target)
	c.Lines, c.PDL = pl.Config.Lines, pl.Config.PDL
	return c
}

// UsesScratch reports whether the launches pass data to each other in scratch memory on the
// device.
func (pl *Plan) UsesScratch() bool {
	return pl.Config.Tile.SplitK > 1 || pl.needsPacking() || pl.splitsGate()
}

// Scaled returns the plan with other values of alpha and beta. The selection of a kernel does not
// depend on them.
func (pl *Plan) Scaled(alpha, beta complex128) *Plan {
	scaled := *pl
	scaled.device.Alpha, scaled.device.Beta = alpha, beta
	return &scaled
}

// Backend returns the backend that made the plan.
func (pl *Plan) Backend() *Backend { return pl.backend }

// Problem returns the product with the layouts of its matrices in device memory.
func (pl *Plan) Problem() *gemm.Problem { return &pl.device }

// Enqueue enqueues the product on matrices in device memory, in the layouts of [Plan.Problem], and
// does not wait for its completion. Errors of the device wrap those of package gemm where one
// applies, see [Sentinel].
func (pl *Plan) Enqueue(ctx context.Context, m kernel.Memory) error {
	return Sentinel(pl.enqueue(ctx, m))
}

func (pl *Plan) enqueue(ctx context.Context, m kernel.Memory) error {
	switch {
	case pl.device.Empty():
		return nil
	case pl.Kernel.GridFor == nil && pl.device.Batch.Kind == gemm.Strided && pl.device.Batch.Count > kernel.MaxGridRows:
		return pl.enqueueBatchChunks(ctx, m)
	case pl.splitsGate():
		return pl.enqueueGated(ctx, m)
	}
	return pl.enqueueProduct(ctx, m)
}

// enqueueProduct enqueues the product. Of a gated one in two launches it enqueues the second.
func (pl *Plan) enqueueProduct(ctx context.Context, m kernel.Memory) error {
	switch {
	case pl.needsPacking():
		return pl.enqueuePacked(ctx, m)
	case pl.Config.Tile.SplitK > 1:
		return pl.enqueueSplitK(ctx, m)
	}
	return pl.launch(ctx, pl.Kernel, pl.args(&pl.Config, m))
}

// args returns the kernel arguments of the product in configuration c.
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
	return pl.launcher().Launch(ctx, f, l)
}

// launcher returns the stream of the plan, or the device for its default stream.
func (pl *Plan) launcher() device.Stream {
	if pl.stream != nil {
		return pl.stream
	}
	return pl.backend.Device
}

// Rows returns the rows to copy between a matrix with layout host and its copy with layout dev.
// The gaps between the rows are not copied: on the host they can belong to someone else.
func Rows(host, dev gemm.Layout) device.Rows {
	bytes := host.Type.Bytes
	return device.Rows{Count: host.Rows, Width: bytes(host.Cols), HostPitch: bytes(host.LD), DevicePitch: bytes(dev.LD)}
}

// Sentinel wraps an error of the device in the matching error of package gemm, if there is one.
func Sentinel(err error) error {
	switch {
	case errors.Is(err, device.ErrOutOfMemory):
		return device.WithKind(gemm.ErrOutOfMemory, err)
	case errors.Is(err, device.ErrNoDevice), errors.Is(err, device.ErrLost):
		return device.WithKind(gemm.ErrNoDevice, err)
	}
	return err
}
