// Package dispatch decides where and how a product is computed, and computes it:
// one [Request] in, one [Plan] out that says what was chosen and why.
//
// What was asked for by name is used or refused, never replaced.
package dispatch

import (
	"context"
	"fmt"
	"time"

	"tilework/internal/backend"
	"tilework/internal/cpu"
	"tilework/internal/dispatch/auto"
	"tilework/internal/dispatch/tuned"
	"tilework/internal/gemm"
	"tilework/internal/gpu/stream"
)

// Request is what a caller asks for. The zero value of each field but Problem
// leaves the choice to the plan.
type Request struct {
	Problem gemm.Problem
	Device  backend.Device
	Kernel  string
	Threads int
	// Choice, if not nil, is how a product on the processor is computed: tuning measures
	// with it.
	Choice *tuned.Choice
	// Packed is B, if the processor is to multiply by one that was packed for it; the
	// buffers then have no other.
	Packed *Packed
	// Tile is called for each tile of C that is final, by the goroutine of the processor
	// that computed it; see [cpu.Options].
	Tile func(i, j, rows, cols int)
	// Once says that this is all that the process computes, as it is of a command: what
	// it takes to begin with a device then counts where the choice is left to the plan.
	Once bool
	// Verify checks the result after the fact; see [Plan.Verified]. Within is
	// [verify.Options.Within].
	Verify bool
	Within float64
	// Timed has the product timed on the processor too; see [Plan.Took].
	Timed bool
	// Progress is called now and then, from the goroutine that runs the plan.
	Progress func(done, total int64)
}

// Plan says what will run and why; Run runs it. A plan may be run again, but not by
// two goroutines at once.
type Plan struct {
	Request
	Device  backend.Device // resolved: never "auto"
	Kernel  string
	Threads int // goroutines that compute; 0 on a GPU

	cpu    cpu.Plan
	tuned  tuning        // what was tuned for it, on the processor
	gpu    *stream.Plan  // nil on the processor
	choice auto.Decision // what decided for the device, where that was left to the plan
	took   time.Duration
	report *Report
}

// Detail is the kernel's parameters, in words.
func (pl *Plan) Detail() string {
	if pl.gpu != nil {
		return pl.gpu.Detail()
	}
	return pl.cpu.Detail()
}

// Why says what decided.
func (pl *Plan) Why() string {
	why := func() string { return pl.tuned.why(pl.cpu.Why()) }
	if pl.gpu != nil {
		why = func() string { return pl.gpu.Why }
	}
	if device := pl.choice.String(); device != "" {
		return device + "; " + why()
	}
	return why()
}

// Took is how long the product took in the last Run, without compiling the kernel and
// without verification; 0 on the processor unless [Request.Timed] was asked for, as to
// look at the clock costs as much as a product of 8³.
func (pl *Plan) Took() time.Duration { return pl.took }

// CompileTime is how long it took to compile the kernel, once in this process; 0 before
// that, and on the processor.
func (pl *Plan) CompileTime() time.Duration {
	if pl.gpu == nil {
		return 0
	}
	return pl.gpu.CompileTime()
}

// Memory returns the bytes of the host's memory that Run allocates: the workspace of the CPU or
// the emulated GPU's copies of the matrices, and the sums that are verified apart.
func (pl *Plan) Memory() int {
	p, n := &pl.Problem, 0
	switch {
	case pl.gpu == nil:
		n = pl.cpu.Memory()
	case pl.Device.Kind == "emu":
		for o := range gemm.Bias { // the matrices; vectors are small
			n += p.Layout(o).Bytes()
		}
	}
	if pl.Verify && !pl.checksDirectly() {
		sums := gemm.Dense(p.Accum(), p.M, p.N).Bytes()
		if n += sums; p.Epilogue.Gated {
			n += sums
		}
	}
	return n
}

// New plans a product. The errors are ErrUnsupported and ErrNoDevice. Where the device
// is left to it, the first plan that this matters for measures, for up to a second.
func New(r Request) (*Plan, error) {
	pl := &Plan{Request: r}
	if err := pl.Decide(); err != nil {
		return nil, err
	}
	return pl, nil
}

// Decide is [New] for a plan that is there already and has nothing but its Request. On
// the processor it allocates nothing.
func (pl *Plan) Decide() error {
	if err := CheckThreads(pl.Request.Threads); err != nil {
		return err
	}
	switch {
	case pl.Problem.Batch.Kind != gemm.Single:
		return fmt.Errorf("%w: %v as one product: see RunBatch and RunGroups", gemm.ErrUnsupported, &pl.Problem)
	case pl.Packed != nil || pl.Tile != nil:
		if err := pl.checkHost(); err != nil {
			return err
		}
		return pl.onCPU()
	case pl.Request.Device.IsGPU():
		return pl.onGPU(pl.Request.Device)
	case pl.Request.Device.Kind == "cpu":
		return pl.onCPU()
	case pl.Request.Kernel != "":
		return pl.byKernel()
	case pl.Problem.Epilogue.Function != nil:
		if err := pl.onGPU(backend.Device{Kind: "gpu"}); err != nil {
			return fmt.Errorf("%v is for GPUs, real or emulated (device emu): %w", pl.Problem.Epilogue.Function, err)
		}
		return nil
	case pl.Problem.Precision != gemm.Native:
		if err := pl.onGPU(backend.Device{Kind: "gpu"}); err != nil {
			return fmt.Errorf("precision %v is for GPUs, real or emulated (device emu): %w", pl.Problem.Precision, err)
		}
		return nil
	}
	theChooser().Choose(&pl.Problem, pl.Request.Threads, pl.Once, &pl.choice)
	return pl.asChosen()
}

// CheckThreads refuses a number of threads that is none. The error is ErrUnsupported.
func CheckThreads(n int) error {
	if n < 0 {
		return fmt.Errorf("%w: %d threads (want 1 or more, or 0 for all)", gemm.ErrUnsupported, n)
	}
	return nil
}

// onCPU plans the product on the processor.
func (pl *Plan) onCPU() error {
	if p := pl.Problem.Precision; p != gemm.Native {
		return fmt.Errorf("%w: precision %v on the processor (want %v, or a GPU)", gemm.ErrUnsupported, p, gemm.Native)
	}
	if f := pl.Problem.Epilogue.Function; f != nil {
		return fmt.Errorf("%w: %v on the processor, which takes functions of tiles", gemm.ErrUnsupported, f)
	}
	if err := pl.planCPU(); err != nil {
		return err
	}
	pl.Device, pl.Kernel, pl.Threads = backend.Device{Kind: "cpu"}, pl.cpu.Kernel.Name, pl.cpu.Threads
	return nil
}

// Run computes the product and, if asked to, verifies it. The errors are those
// of [gemm.Buffers.Check], ErrVerify and the context's.
func (pl *Plan) Run(ctx context.Context, b gemm.Buffers) error { return pl.run(ctx, &b) }

func (pl *Plan) run(ctx context.Context, b *gemm.Buffers) error {
	if err := pl.check(b); err != nil {
		return err
	}
	if pl.Verify {
		return pl.runVerified(ctx, *b)
	}
	return pl.compute(ctx, b)
}

func (pl *Plan) compute(ctx context.Context, b *gemm.Buffers) error {
	if pl.gpu == nil && !pl.Timed {
		return pl.cpu.Run(ctx, b)
	}
	if pl.gpu != nil {
		if err := pl.gpu.Compile(ctx); err != nil {
			return err
		}
	}
	start := time.Now()
	defer func() { pl.took = time.Since(start) }()
	if pl.gpu != nil {
		return pl.gpu.Run(ctx, *b)
	}
	return pl.cpu.Run(ctx, b)
}
