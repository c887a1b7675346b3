package gpu

import (
	"context"
	"fmt"
	"strings"
	"time"

	"tilework/internal/backend"
	"tilework/internal/cache"
	"tilework/internal/device/cuda"
	"tilework/internal/dispatch/tuned"
	"tilework/internal/gemm"
	"tilework/internal/gpu/choose"
	"tilework/internal/gpu/exec"
	"tilework/internal/gpu/kernel"
	"tilework/internal/gpu/stream"
	"tilework/internal/gpu/trial"
)

// Backend is a GPU or an emulated GPU as a [backend.Backend] for matrices in host memory. It opens
// the device when it is first used, and never closes it.
type Backend struct{ Device backend.DeviceName }

var _ backend.Tunable = Backend{}

// Kernels implements [backend.Backend].
func (Backend) Kernels() []backend.Kernel {
	var all []backend.Kernel
	for _, k := range choose.Kernels() {
		row := backend.Kernel{
			Name: k.Name, Kind: backend.GPU, Adds: k.Adds, Needs: k.Target().String(), SM: k.SM, Available: true,
			Types: k.Types(), Precisions: k.Precisions(),
			Supports: func(p *gemm.Problem) error { return k.Check(p, kernel.Tile{}, kernel.Align{}, nil) },
			Accuracy: k.Accuracy,
		}
		for _, t := range k.Tiles {
			row.Tiles = append(row.Tiles, t.M, t.N)
		}
		all = append(all, row)
	}
	return all
}

// Open implements [backend.Backend].
func (b Backend) Open() error {
	_, err := Keep(b.Device)
	return err
}

// Plan implements [backend.Backend].
func (b Backend) Plan(p *gemm.Problem, o *backend.Options, _ backend.Plan) (backend.Plan, error) {
	on, err := Keep(b.Device)
	if err != nil {
		return nil, err
	}
	options := Options(o.Kernel)
	options.SameBits = o.SameBits
	if o.Tile != "" {
		options.Tile = o.Tile
	}
	problem := *p // the caller's may be overwritten before the plan is unused
	host, err := on.Plan(&problem, options)
	if err != nil {
		return nil, err
	}
	host.Limit = o.GPUMemory
	return &plan{on: on, host: host, problem: &problem}, nil
}

// String implements [backend.Backend].
func (b Backend) String() string { return b.Device.String() }

// TuningKey implements [backend.Tunable].
func (b Backend) TuningKey() *backend.TuningKey {
	on, err := Keep(b.Device)
	if err != nil {
		return nil
	}
	return TuningKey(on.Backend)
}

// TuningKey returns the key of the choices tuned for a GPU, which all GPUs of the same model share.
// It returns nil for an emulated GPU.
func TuningKey(b *exec.Backend) *backend.TuningKey {
	info, driver := b.Device.Info(), ""
	if info.Emulated {
		return nil
	}
	if gpu, ok := b.Device.(*cuda.GPU); ok {
		driver = gpu.Details().Driver
	}
	return &backend.TuningKey{
		Device: fmt.Sprintf("gpu %s %v %d SMs", info.Name, info.Target, info.SMs),
		Build:  fmt.Sprintf("%s, driver %s", cache.Build(), driver),
	}
}

// IsTuned implements [backend.Tunable]. The plan copies matrices to the layout that was tuned.
func (Backend) IsTuned(gemm.Layout) bool { return true }

// Options returns the options of a plan for the name of a kernel, which a tile may follow:
// "tiled:16".
func Options(kernel string) exec.Options {
	name, tile, _ := strings.Cut(kernel, ":")
	return exec.Options{Kernel: name, Tile: tile}
}

// resident is an open GPU as a [backend.Tunable] for matrices in its memory.
type resident struct {
	*exec.Backend
	keepLayout bool // see [exec.Options.KeepLayout]
}

// TuningKey implements [backend.Tunable].
func (r resident) TuningKey() *backend.TuningKey { return TuningKey(r.Backend) }

// IsTuned implements [backend.Tunable].
func (r resident) IsTuned(l gemm.Layout) bool { return !r.keepLayout || l.LD == gemm.Padded(l).LD }

// PlanResident plans a product of matrices in GPU memory with the kernel of opt or, if it is empty,
// the tuned choice or else the default one, which is also that of [backend.DefaultKernel].
func PlanResident(b *exec.Backend, p *gemm.Problem, opt exec.Options) (*exec.Plan, error) {
	var why tuned.Reason
	switch opt.Kernel {
	case "":
		why.Tuned = new(tuned.Finder).Find(resident{b, opt.KeepLayout}, p)
	case backend.DefaultKernel:
		opt.Kernel = ""
	}
	var pl *exec.Plan
	if why.Tuned != nil {
		with := opt
		with.Kernel, with.Tile, with.SameBits = why.Kernel, why.Tile, why.Repeated
		pl, why.Unfit = b.Plan(p, with)
	}
	if pl == nil {
		var err error
		if pl, err = b.Plan(p, opt); err != nil {
			return nil, err
		}
	}
	pl.Why = why.Why(pl.Why)
	return pl, nil
}

// KeepRepeated stores the choice that repeated calls of a product of matrices in GPU memory found.
// It leaves out row-invariant products, as stored choices do not distinguish them from others, and
// products with a choice that tuning found. If the choice cannot be stored, only this process uses
// it.
func KeepRepeated(b *exec.Backend, x trial.Outcome) {
	p, on, key := x.Standard.Problem(), resident{b, true}, TuningKey(b)
	if key == nil || p.Invariance != gemm.NotInvariant || !tuned.IsTunable(on, p) {
		return
	}
	if known := new(tuned.Finder).Find(on, p); known != nil && !known.Repeated {
		return
	}
	choice := func(pl *exec.Plan) backend.Choice {
		return backend.Choice{Kernel: pl.Kernel.Name, Tile: pl.Config.Tile.String()}
	}
	_ = tuned.For(key).Keep(tuned.Tuned{
		Form: tuned.FormOf(p), Choice: choice(x.Best), Device: b.Device.Info().Name, Default: choice(x.Standard),
		Seconds: x.Seconds, Before: x.StandardSeconds, Gain: x.StandardSeconds / x.Seconds,
		Date: time.Now().UTC().Truncate(time.Second), Repeated: true,
	})
}

// plan is a planned product of matrices in host memory.
type plan struct {
	backend.BasePlan
	on       *stream.Backend
	host     *stream.Plan
	problem  *gemm.Problem
	progress func(done, total int64)
}

// Prepare implements [backend.Plan].
func (pl *plan) Prepare(ctx context.Context) error { return pl.host.Compile(ctx) }

// PrepareTime implements [backend.Plan].
func (pl *plan) PrepareTime() time.Duration { return pl.host.CompileTime() }

// ReportProgress implements [backend.Plan]. Only emulated GPUs report their progress.
func (pl *plan) ReportProgress(f func(done, total int64)) {
	if pl.on.Info().Emulated {
		pl.progress = f
	}
}

// Run implements [backend.Plan].
func (pl *plan) Run(ctx context.Context, b *gemm.Buffers) error {
	if pl.progress == nil {
		return pl.host.Run(ctx, *b)
	}
	return stream.RunReported(ctx, []*stream.Plan{pl.host}, pl.progress, func(ctx context.Context) error {
		return pl.host.Run(ctx, *b)
	})
}

// KernelName implements [backend.Plan].
func (pl *plan) KernelName() string { return pl.host.Kernel.Name }

// Detail implements [backend.Plan].
func (pl *plan) Detail() string { return pl.host.Detail() }

// Why implements [backend.Plan].
func (pl *plan) Why() string { return pl.host.Why }

// Memory implements [backend.Plan]. An emulated GPU has copies of the matrices.
func (pl *plan) Memory() int {
	if !pl.on.Device.Info().Emulated {
		return 0
	}
	n := 0
	for o := range gemm.Bias { // the vectors are small
		l := pl.problem.Layout(o)
		n += l.Bytes()
	}
	return n
}

// Accuracy implements [backend.Plan].
func (pl *plan) Accuracy(p *gemm.Problem) gemm.Accuracy { return pl.host.Kernel.Accuracy(p) }

// CanRunBatch implements [backend.Plan].
func (pl *plan) CanRunBatch() bool { return true }

// RunBatch implements [backend.Plan].
func (pl *plan) RunBatch(ctx context.Context, kernel string, all []gemm.Buffers) error {
	return pl.on.RunBatch(ctx, pl.problem, Options(kernel), pl.host.Limit, all)
}

// RunGroups implements [backend.Plan].
func (pl *plan) RunGroups(ctx context.Context, kernel string, b *gemm.Buffers, bs [][]byte, ends []int32) error {
	return pl.on.RunGroups(ctx, pl.problem, Options(kernel), pl.host.Limit, *b, bs, ends)
}

// Reasoning implements [backend.Plan].
func (pl *plan) Reasoning() (count int, text string) {
	all := pl.host.Considered()
	if len(all) == 0 {
		return 0, ""
	}
	return len(all), choose.Reasoning(all)
}

// Program implements [backend.Plan].
func (pl *plan) Program() string { return stream.Program([]*stream.Plan{pl.host}) }

// Order implements [backend.Plan].
func (pl *plan) Order() string { return pl.host.Order() }

// Choice implements [backend.Plan].
func (pl *plan) Choice() backend.Choice {
	return backend.Choice{Kernel: pl.host.Kernel.Name, Tile: pl.host.Config.Tile.String()}
}

// Part implements [backend.Plan].
func (pl *plan) Part(p *gemm.Problem, row, col int) (backend.Plan, error) {
	return &plan{on: pl.on, host: pl.host.PartOf(p, row, col), problem: p}, nil
}
