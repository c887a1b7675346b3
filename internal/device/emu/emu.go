// Package emu is an emulated GPU behind the seam of package device: the very text
// that a driver would compile runs on the processor, so that every GPU path works,
// and is tested, where there is no GPU.
//
// A launch runs to its end, or its context's, before Launch returns; what goes wrong in
// it is Launch's own error. That changes while there are streams beside the device's
// own: work then runs late, in an order that is decided by chance wherever the waits
// between the streams leave it open. Unlike a GPU, the device goes on after a kernel's
// fault.
package emu

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"sync/atomic"

	"tilework/internal/device"
	"tilework/internal/model"
	"tilework/ptx"
	"tilework/ptx/emu"
	"tilework/ptx/emu/check"
)

// Options configure the emulated GPU; the zero value is an H200 that nobody watches.
type Options struct {
	Model *model.Model // nil for an H200
	// Memory is how many bytes can be allocated, of this machine's memory; 0 stands
	// for 4 GiB, or what the model has if that is less.
	Memory int64
	// Seed decides the order in which warps run. Each launch gets one of its own
	// from it.
	Seed uint64
	// Workers is how many blocks run at a time; 0 leaves it to the emulator.
	Workers int
	// MaxInstructions ends a launch that executes more; 0 sets no bound.
	MaxInstructions int64
	// Watch, if set, is called before each launch, which it may give observers, and
	// what it returns after it, with the launch's outcome: the error that this
	// returns is the launch's. See [Checking].
	Watch func(l *emu.Launch) Done
	// Printf gets what kernels print; nil drops it.
	Printf io.Writer
}

// Done takes the outcome of a launch.
type Done func(p *emu.Program, s emu.Stats, err error) error

// Checking is a Watch that runs all checkers over each launch, hands on what they
// report and fails the launch if a finding is an error.
func Checking(o check.Options, report func(*check.Report)) func(l *emu.Launch) Done {
	return func(l *emu.Launch) Done {
		checks := check.New(o)
		l.Observers = append(l.Observers, checks)
		return func(p *emu.Program, s emu.Stats, err error) error {
			r := checks.Report(p, s, err)
			report(r)
			if n := r.Errors(); n > 0 && err == nil {
				err = fmt.Errorf("the checkers found %d errors in %s", n, l.Entry)
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
	*stream  // its own
	opt      Options
	info     device.Info
	memory   *emu.Memory
	launches atomic.Uint64

	turn    chan struct{} // holds an element while somebody uses what follows
	streams []*stream     // its own first
	ahead   *stream       // whose turn it is
	rng     *rand.Rand
}

var _ device.Device = (*Device)(nil)

// Open makes an emulated GPU.
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
		return nil, fmt.Errorf("%w: the emulator knows no GPU of %v", device.ErrNoDevice, target)
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
		// What was not written is only of interest to those who watch.
		memory: emu.NewMemory(emu.MemoryOptions{Limit: opt.Memory, TrackWrites: opt.Watch != nil}),
		turn:   make(chan struct{}, 1),
		rng:    rand.New(rand.NewPCG(opt.Seed, 0)),
	}
	d.stream = &stream{device: d}
	d.streams = []*stream{d.stream}
	return d, nil
}

// Info describes the GPU.
func (d *Device) Info() *device.Info { return &d.info }

// Alloc reserves n bytes.
func (d *Device) Alloc(n int) (device.Ptr, error) {
	addr, err := d.memory.Alloc(n)
	if errors.Is(err, emu.ErrOutOfMemory) {
		d.finish() // what is to be freed may be put off
		addr, err = d.memory.Alloc(n)
	}
	return device.Ptr(addr), typed(err)
}

// Free gives memory back.
func (d *Device) Free(p device.Ptr) error {
	return d.ask(context.Background(), work{do: func() error { return typed(d.memory.Free(uint64(p))) }})
}

// Used is the number of bytes that are allocated.
func (d *Device) Used() int64 {
	d.finish()
	return d.memory.Used()
}

// EncodeTensorMap encodes a map in the emulator's own form.
func (d *Device) EncodeTensorMap(m *ptx.TensorMap) ([ptx.TensorMapBytes]byte, error) {
	b, err := emu.EncodeTensorMap(m)
	if err != nil {
		err = fmt.Errorf("%w: %w", device.ErrLaunch, err)
	}
	return b, err
}

// Load decodes PTX text.
func (d *Device) Load(_ context.Context, text string) (device.Module, error) {
	m, err := ptx.Parse("kernel.ptx", text)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", device.ErrCompile, err)
	}
	if !d.info.Target.Has(m.Target) {
		return nil, fmt.Errorf("%w: it is written for %v, and %s is %v", device.ErrCompile, m.Target, d.info.Name, d.info.Target)
	}
	p, err := emu.Load(m)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", device.ErrCompile, err)
	}
	return &module{p, m}, nil
}

type module struct {
	program *emu.Program
	text    *ptx.Module
}

// Function finds a kernel.
func (m *module) Function(name string) (device.Function, error) {
	for _, f := range m.text.Funcs() {
		if f.Entry && f.Name == name {
			return &function{m.program, f}, nil
		}
	}
	return nil, fmt.Errorf("%w: no kernel %q (there are %q)", device.ErrCompile, name, m.program.Entries())
}

func (m *module) Log() string   { return "" }
func (m *module) Unload() error { return nil }

type function struct {
	program *emu.Program
	entry   *ptx.Func
}

func (f *function) Name() string { return f.entry.Name }

// Resources is the shared memory that the kernel declares.
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
		return fmt.Errorf("%w: a function of another device (%T)", device.ErrLaunch, f)
	}
	if l.Shared < 0 || l.Shared+fn.Resources().Shared > d.info.MaxShared {
		return fmt.Errorf("%w: %s: %d bytes of static and %d of dynamic shared memory, and a block of %s has at most %d",
			device.ErrLaunch, fn.Name(), fn.Resources().Shared, l.Shared, d.info.Name, d.info.MaxShared)
	}
	workers := d.opt.Workers
	if l.Cooperative {
		if err := d.checkResident(fn, l); err != nil {
			return fmt.Errorf("%w: %s: %w", device.ErrLaunch, fn.Name(), err)
		}
		workers = l.Grid.Count() // blocks that wait for each other must all run
	}
	l.Params = slices.Clone(l.Params)
	return s.ask(ctx, work{do: func() error { return d.launch(ctx, fn, l, workers) }})
}

func (d *Device) launch(ctx context.Context, fn *function, l device.Launch, workers int) error {
	launch := emu.Launch{
		Entry: fn.Name(), Grid: emu.Dim3(l.Grid), Block: emu.Dim3(l.Block), Cluster: emu.Dim3(l.Cluster), Shared: l.Shared, Params: l.Params,
		Seed: d.opt.Seed + d.launches.Add(1), MaxInstructions: d.opt.MaxInstructions,
		Workers: workers, Printf: d.opt.Printf,
	}
	var done Done
	if d.opt.Watch != nil {
		done = d.opt.Watch(&launch)
	}
	stats, err := fn.program.Run(ctx, d.memory, launch)
	if done != nil {
		err = done(fn.program, stats, err)
	}
	if err == nil || ended(err) {
		return err
	}
	return fmt.Errorf("%w: %w", device.ErrLaunch, typed(err))
}

// checkResident refuses a cooperative launch of more blocks than the GPU holds at once.
// Registers do not count here, so that a GPU may hold fewer.
func (d *Device) checkResident(fn *function, l device.Launch) error {
	o, err := d.opt.Model.Arch.Occupancy(model.Launch{Threads: l.Block.Count(), SharedBytes: l.Shared + fn.Resources().Shared})
	if err != nil {
		return err
	}
	if most := o.Blocks * d.info.SMs; l.Grid.X > most || l.Grid.Y > most || l.Grid.Z > most || l.Grid.Count() > most {
		return fmt.Errorf("a cooperative grid of %v blocks, and %s holds %d at once", l.Grid, d.info.Name, most)
	}
	return nil
}

// typed makes an error of the emulator's memory one of package device's.
func typed(err error) error {
	if errors.Is(err, emu.ErrOutOfMemory) {
		return device.Also(device.ErrOutOfMemory, err)
	}
	return err
}
