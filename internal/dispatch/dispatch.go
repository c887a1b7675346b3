// Package dispatch decides where and how a product is computed, and computes it:
// one [Request] in, one [Plan] out that says what was chosen and why.
//
// What was asked for by name is used or refused, never replaced.
package dispatch

import (
	"context"
	"fmt"
	"time"

	"tilework/internal/cpu"
	"tilework/internal/gemm"
	"tilework/internal/gpu"
)

// Request is what a caller asks for. The zero value of each field but Problem
// leaves the choice to the plan.
type Request struct {
	Problem *gemm.Problem
	Device  Device
	Kernel  string
	Threads int
	// Once says that this is all that the process computes, as it is of a command: what
	// it takes to begin with a device then counts where the choice is left to the plan.
	Once bool
	// Verify checks the result after the fact; see [Plan.Verified].
	Verify bool
	// Progress is called now and then, from the goroutine that runs the plan.
	Progress func(done, total int64)
}

// Plan says what will run and why; Run runs it. A plan may be run again, but not by
// two goroutines at once.
type Plan struct {
	Request
	Device  Device // resolved: never "auto"
	Kernel  string
	Threads int    // goroutines that compute; 0 on a GPU
	Detail  string // the kernel's parameters, in words
	Why     string // what decided

	gpu    *gpu.Plan // nil on the processor
	run    func(ctx context.Context, b gemm.Buffers) error
	took   time.Duration
	report *Report
}

// Took is how long the product took in the last Run, without compiling the kernel and
// without verification.
func (pl *Plan) Took() time.Duration { return pl.took }

// CompileTime is how long it took to compile the kernel, once in this process; 0 before
// that, and on the processor.
func (pl *Plan) CompileTime() time.Duration {
	if pl.gpu == nil {
		return 0
	}
	return pl.gpu.CompileTime()
}

// New plans a product. The errors are ErrUnsupported and ErrNoDevice. Where the device
// is left to it, the first plan that this matters for measures, for up to a second.
func New(r Request) (*Plan, error) {
	switch {
	case r.Device.IsGPU():
		return newGPU(r)
	case r.Device.Kind == "cpu":
		return newCPU(r)
	}
	return automatic(r)
}

// newCPU plans a product on the processor.
func newCPU(r Request) (*Plan, error) {
	if p := r.Problem.Precision; p != gemm.Native {
		return nil, fmt.Errorf("%w: precision %v on the processor (want %v, or a GPU)", gemm.ErrUnsupported, p, gemm.Native)
	}
	p, err := cpu.NewPlan(r.Problem, cpu.Options{Kernel: r.Kernel, Threads: r.Threads, Progress: r.Progress})
	if err != nil {
		return nil, err
	}
	return &Plan{Request: r, Device: r.Device, Kernel: p.Kernel.Name, Threads: p.Threads, Detail: p.Detail, Why: p.Why, run: p.Run}, nil
}

// Run computes the product and, if asked to, verifies it. The errors are those
// of [gemm.Buffers.Check], ErrVerify and the context's.
func (pl *Plan) Run(ctx context.Context, b gemm.Buffers) error {
	if err := b.Check(pl.Problem); err != nil {
		return err
	}
	if pl.Verify {
		return pl.runVerified(ctx, b)
	}
	return pl.compute(ctx, b)
}

func (pl *Plan) compute(ctx context.Context, b gemm.Buffers) error {
	if pl.gpu != nil {
		if err := pl.gpu.Compile(ctx); err != nil {
			return err
		}
	}
	start := time.Now()
	err := pl.run(ctx, b)
	pl.took = time.Since(start)
	return err
}
