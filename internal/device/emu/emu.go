// Package emu provides an emulated GPU that implements [device.Device]. It runs the same PTX
// that the CUDA driver would compile, so every GPU code path works and can be tested without a
// GPU.
//
// While the device has no stream but its default one, Launch runs the kernel to its end and
// returns its error. With more streams, work is deferred and runs in a pseudo-random order that
// respects only the waits between the streams. Unlike a GPU, the device stays usable after a
// kernel fault.
package emu

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"

	"tilework/internal/device"
	"tilework/internal/host"
	"tilework/internal/memo"
	"tilework/internal/model"
	"tilework/internal/phrase"
	"tilework/internal/sentinel"
	"tilework/ptx"
	"tilework/ptx/emu"
	"tilework/ptx/emu/check"
)

// Options configures the emulated GPU. The zero value emulates an H200 without observers.
type Options struct {
	Model *model.Model // nil for an H200
	// Memory limits the bytes that can be allocated. They come from host memory. 0 selects
	// 4 GiB or the memory of the model, if that is smaller.
	Memory int64
	// Seed determines the order in which warps run. Each launch derives its own seed from it.
	Seed uint64
	// Workers is the number of blocks that run concurrently. 0 lets the emulator choose.
	Workers int
	// MaxInstructions aborts a launch that executes more instructions. 0 sets no limit.
	MaxInstructions int64
	// Watch, if set, is called before each launch and may add observers to it. The Done that
	// it returns is called after the launch; the error of Done is the error of the launch. See
	// [Checking].
	Watch func(l *emu.Launch) Done
	// Printf receives the output of printf in kernels. nil discards it.
	Printf io.Writer
}

// Done receives the outcome of a launch and returns the error that Launch reports.
type Done func(p *emu.Program, s emu.Stats, err error) error

// Checking returns a function for [Options].Watch that runs all checkers on each launch and
// passes their reports to report. A launch fails if a checker finds an error.
func Checking(o check.Options, report func(*check.Report)) func(l *emu.Launch) Done {
	return func(l *emu.Launch) Done {
		checks := check.New(o)
		l.Observers = append(l.Observers, checks)
		return func(p *emu.Program, s emu.Stats, err error) error {
			r := checks.Report(p, s, err)
			report(r)
			if n := r.Errors(); n > 0 && err == nil {
				err = fmt.Errorf("checkers found %s in %s", phrase.Count(n, "error"), l.Entry)
			}
			return err
		}
	}
}

const (
	defaultModel  = "h200"
	defaultMemory = 4 << 30
)

// Device is an emulated GPU.
type Device struct {
	*stream  // the default stream
	opt      Options
	info     device.Info
	memory   *emu.Memory
	launches atomic.Uint64

	mu      chan struct{} // capacity 1; held while it contains an element; guards the fields below
	streams []*stream     // the default stream first
	running *stream       // the stream that step prefers
	rng     *rand.Rand

	counting sync.Mutex        // guards copied
	copied   map[*Device]int64 // bytes of CopyPeer by source
}

var _ device.Device = (*Device)(nil)

// Open returns a new emulated GPU.
func Open(opt Options) (*Device, error) {
	if opt.Model == nil {
		m, err := model.Lookup(defaultModel)
		if err != nil {
			return nil, err
		}
		opt.Model = m
	}
	m := opt.Model
	target := ptx.Target{SM: m.Arch.SM, Suffix: "a"}
	if _, ok := target.MinVersion(); !ok {
		target.Suffix = ""
	}
	if _, ok := target.MinVersion(); !ok {
		return nil, fmt.Errorf("%w: the emulator does not support %v", sentinel.ErrNoDevice, target)
	}
	if opt.Memory == 0 {
		opt.Memory = defaultMemory
		if m.MemBytes > 0 {
			opt.Memory = min(opt.Memory, m.MemBytes)
		}
	}
	d := &Device{
		opt: opt,
		info: device.Info{
			Name: m.Name, Emulated: true, Target: target, SMs: max(m.SMs, 1), Memory: opt.Memory,
			MaxThreads: m.Arch.MaxThreadsPerBlock, MaxShared: m.Arch.SharedPerBlockOptIn,
			MaxGrid: device.Dim3{X: 1<<31 - 1, Y: 1<<16 - 1, Z: 1<<16 - 1},
		},
		// Only observers use the record of the written bytes.
		memory: emu.NewMemory(emu.MemoryOptions{
			Limit: opt.Memory, Room: host.CheckMemory, TrackWrites: opt.Watch != nil,
		}),
		mu:     make(chan struct{}, 1),
		rng:    rand.New(rand.NewPCG(opt.Seed, 0)),
		copied: map[*Device]int64{},
	}
	d.stream = &stream{device: d}
	d.streams = []*stream{d.stream}
	return d, nil
}

// Info returns the properties of the emulated GPU.
func (d *Device) Info() *device.Info { return &d.info }

// Alloc allocates n bytes.
func (d *Device) Alloc(n int) (device.Ptr, error) {
	addr, err := d.memory.Alloc(n)
	if errors.Is(err, emu.ErrOutOfMemory) {
		d.finish() // deferred work may include Free
		addr, err = d.memory.Alloc(n)
	}
	return device.Ptr(addr), typed(err)
}

// Free releases memory.
func (d *Device) Free(p device.Ptr) error {
	return d.enqueue(context.Background(), work{do: func() error { return typed(d.memory.Free(uint64(p))) }})
}

// Used returns the number of allocated bytes.
func (d *Device) Used() int64 {
	d.finish()
	return d.memory.Used()
}

// Copied returns the number of bytes that CopyPeer has copied from a device to this one.
func (d *Device) Copied(from *Device) int64 {
	d.finish()
	d.counting.Lock()
	defer d.counting.Unlock()
	return d.copied[from]
}

func (d *Device) count(from *Device, n int) {
	d.counting.Lock()
	defer d.counting.Unlock()
	d.copied[from] += int64(n)
}

// Precompile does nothing, as Load delays no call of others.
func (d *Device) Precompile(string) bool { return true }

// EncodeTensorMap encodes m in the emulator's own format.
func (d *Device) EncodeTensorMap(m *ptx.TensorMap) ([ptx.TensorMapBytes]byte, error) {
	b, err := emu.EncodeTensorMap(m)
	if err != nil {
		err = fmt.Errorf("%w: %w", device.ErrLaunch, err)
	}
	return b, err
}

// modules holds the modules of recent kernels by their PTX. A module is immutable.
var modules = memo.Table[string, *module]{Limit: 128}

// Load parses and decodes PTX.
func (d *Device) Load(_ context.Context, text string) (device.Module, error) {
	m, err := modules.Get(text, func() (*module, error) {
		m, err := ptx.Parse("kernel.ptx", text)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", device.ErrCompile, err)
		}
		p, err := emu.Load(m)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", device.ErrCompile, err)
		}
		return &module{p, m}, nil
	})
	if err != nil {
		return nil, err
	}
	if target := m.text.Target; !d.info.Target.Has(target) {
		return nil, fmt.Errorf("%w: the PTX targets %v and %s supports up to %v", device.ErrCompile, target, d.info.Name,
			d.info.Target)
	}
	return m, nil
}

type module struct {
	program *emu.Program
	text    *ptx.Module
}

// Function returns the kernel with the given name.
func (m *module) Function(name string) (device.Function, error) {
	if err := m.program.Refused()[name]; err != nil {
		return nil, fmt.Errorf("%w: %w", device.ErrCompile, err)
	}
	for _, f := range m.text.Funcs() {
		if f.Entry && f.Name == name {
			return &function{m.program, f}, nil
		}
	}
	return nil, fmt.Errorf("%w: no kernel %q: want one of %q", device.ErrCompile, name, m.program.Entries())
}

func (m *module) Log() string   { return "" }
func (m *module) Unload() error { return nil }

type function struct {
	program *emu.Program
	entry   *ptx.Func
}

func (f *function) Name() string { return f.entry.Name }

// Resources returns the shared memory that the kernel declares.
func (f *function) Resources() device.Resources {
	r := device.Resources{}
	f.entry.Body.Walk(func(s ptx.Stmt) {
		if v, ok := s.(*ptx.Var); ok && v.Space == ptx.Shared {
			r.Shared += v.Size()
		}
	})
	return r
}

// Launch runs a kernel.
func (s *stream) Launch(ctx context.Context, f device.Function, l device.Launch) error {
	d := s.device
	fn, ok := f.(*function)
	if !ok {
		return fmt.Errorf("%w: function of type %T does not belong to an emulated GPU", device.ErrLaunch, f)
	}
	if l.Shared < 0 || l.Shared+fn.Resources().Shared > d.info.MaxShared {
		return fmt.Errorf("%w: %s: block uses %d bytes of static and %d of dynamic shared memory: "+
			"%s has at most %d per block",
			device.ErrLaunch, fn.Name(), fn.Resources().Shared, l.Shared, d.info.Name, d.info.MaxShared)
	}
	workers := d.opt.Workers
	if l.Cooperative {
		if err := d.checkResident(fn, l); err != nil {
			return fmt.Errorf("%w: %s: %w", device.ErrLaunch, fn.Name(), err)
		}
		workers = l.Grid.Count() // blocks may wait for each other, so all must run
	}
	l.Params = slices.Clone(l.Params)
	return s.enqueue(ctx, work{do: func() error { return d.launch(ctx, fn, l, workers) }})
}

func (d *Device) launch(ctx context.Context, fn *function, l device.Launch, workers int) error {
	launch := emu.Launch{
		Entry: fn.Name(), Grid: emu.Dim3(l.Grid), Block: emu.Dim3(l.Block), Cluster: emu.Dim3(l.Cluster),
		Shared: l.Shared, Params: l.Params,
		Seed: d.opt.Seed + d.launches.Add(1), MaxInstructions: d.opt.MaxInstructions,
		Workers: workers, Printf: d.opt.Printf,
	}
	if l.BlockEnded != nil {
		launch.Observers = append(launch.Observers, endObserver(l.BlockEnded))
	}
	var done Done
	if d.opt.Watch != nil {
		done = d.opt.Watch(&launch)
	}
	stats, err := fn.program.Run(ctx, d.memory, launch)
	if done != nil {
		err = done(fn.program, stats, err)
	}
	if err == nil || isContextError(err) {
		return err
	}
	if errors.Is(err, emu.ErrOutOfMemory) {
		return typed(err)
	}
	return fmt.Errorf("%w: %w", device.ErrLaunch, err)
}

// endObserver is an observer that calls itself at the end of each block.
type endObserver func()

// Block implements [emu.Observer].
func (o endObserver) Block(*emu.BlockInfo) *emu.Hooks { return &emu.Hooks{End: o} }

// checkResident returns an error if a cooperative launch has more blocks than the GPU can hold at
// once. It ignores registers, so a real GPU may hold fewer.
func (d *Device) checkResident(fn *function, l device.Launch) error {
	o, err := d.opt.Model.Arch.Occupancy(model.Launch{Threads: l.Block.Count(),
		SharedBytes: l.Shared + fn.Resources().Shared})
	if err != nil {
		return err
	}
	if limit := o.Blocks * d.info.SMs; l.Grid.X > limit || l.Grid.Y > limit || l.Grid.Z > limit || l.Grid.Count() > limit {
		return fmt.Errorf("cooperative grid has %v blocks: %s holds %d at once", l.Grid, d.info.Name, limit)
	}
	return nil
}

// typed converts an error of the emulator's memory to one of package device.
func typed(err error) error {
	if errors.Is(err, emu.ErrOutOfMemory) {
		return device.WithKind(device.ErrOutOfMemory, err)
	}
	return err
}
