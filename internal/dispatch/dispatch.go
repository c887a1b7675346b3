// Package dispatch decides where and how a product is computed, and runs it. A [Request] becomes a
// [Plan], which describes the decision. The list of backends is in backends.go.
//
// Dispatch uses a requested device or kernel or refuses the product. It never replaces it.
package dispatch

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"tilework/internal/backend"
	"tilework/internal/cpu"
	"tilework/internal/device/timeline"
	"tilework/internal/dispatch/auto"
	"tilework/internal/dispatch/tuned"
	"tilework/internal/gemm"
)

// Request describes a product and how to compute it. Dispatch chooses the fields that are zero,
// except for Problem.
type Request struct {
	Problem gemm.Problem
	Device  backend.DeviceName
	Kernel  string // a name, which a tile may follow: "tiled:16"
	Threads int    // the maximum number of goroutines
	// GPUMemory is [backend.Options.GPUMemory].
	GPUMemory int
	// Choice, if not nil, replaces Kernel and any tuned choice. Tuning measures with it.
	Choice *backend.Choice
	// Packed is B if it is already packed. Run then ignores the B of its buffers.
	Packed *Packed
	// Tile is called for each finished tile of C; see [backend.Plan.CallTile].
	Tile func(i, j, rows, cols int)
	// Once reports whether the process computes only this product, as a command does. The choice of
	// a device then includes the time to open it.
	Once bool
	// Verify makes Run check the result; see [Plan.Verified]. Within is
	// [verify.Options.Within].
	Verify bool
	Within float64
	// Timed makes Run measure its time; see [Plan.Took].
	Timed bool
	// Progress is called with the finished and the total amount of work, at most ten times per second
	// and at last when all is finished, from the goroutine that runs the plan. Some backends do not
	// call it.
	Progress func(done, total int64)
}

// Plan describes the chosen device and kernel. Run runs it. A plan may be run several times, but
// not by several goroutines at once.
type Plan struct {
	Request

	plan     backend.Plan // before Decide nil, or one whose memory can be used again
	on       *target
	options  backend.Options // here, because a local variable would escape to the heap
	reason   tuned.Reason
	tunings  uint64        // [tuned.Changes] before the search for a tuned choice
	decision auto.Decision // the choice of the device, if dispatch chose it by estimated time
	// place is the reason for the device of a row-invariant product, if dispatch chose it.
	place  string
	serial bool // whether to run on one goroutine, as part of a batch
	paced  *pacer
	took   time.Duration
	report *Report

	whole *Plan // the plan that this is a part of, or nil
	area  gemm.Area
}

// Device returns the chosen device, which is never auto.
func (pl *Plan) Device() backend.DeviceName { return pl.on.device }

// Kernel returns the name of the chosen kernel.
func (pl *Plan) Kernel() string { return pl.plan.KernelName() }

// Threads returns the number of goroutines that compute, or 0 if none does.
func (pl *Plan) Threads() int { return pl.plan.Workers() }

// Detail describes the kernel's parameters.
func (pl *Plan) Detail() string { return pl.plan.Detail() }

// Why returns the reason for the choice of the device and the kernel.
func (pl *Plan) Why() string {
	why := pl.reason.Why(pl.plan.Why())
	if device := cmp.Or(pl.place, pl.decision.String()); device != "" {
		return device + "; " + why
	}
	return why
}

// Took returns the time of the last Run without compilation and verification. It is 0 unless
// [Request.Timed] is set: reading the clock takes as long as a product of 8×8 matrices.
func (pl *Plan) Took() time.Duration { return pl.took }

// CompileTime returns the time to compile the kernels, which happens once in a process. It is 0
// before that, and for kernels that are not compiled.
func (pl *Plan) CompileTime() time.Duration { return pl.plan.PrepareTime() }

// Memory returns the number of bytes of host memory that Run allocates: that of the backend's plan
// and the separately verified sums.
func (pl *Plan) Memory() int {
	p, n := &pl.Problem, pl.plan.Memory()
	if pl.Verify && !pl.checksDirectly() {
		sums := gemm.Dense(p.Accum(), p.M, p.N).Bytes()
		if n += sums; p.Epilogue.Gated {
			n += sums
		}
	}
	return n
}

// Predicted returns the predicted time of a run, or 0 if the backend does not know it.
func (pl *Plan) Predicted() time.Duration { return pl.plan.Predicted(pl.plan.Workers()) }

// RunBreakdown runs the plan once and returns the breakdown of its time on each GPU; see
// [backend.Plan].
func (pl *Plan) RunBreakdown(ctx context.Context, b gemm.Buffers) ([]timeline.Breakdown, error) {
	if err := pl.check(&b); err != nil {
		return nil, err
	}
	return pl.plan.RunBreakdown(ctx, &b)
}

// Reasoning lists the candidates for the product with the reason for or against each, one per line.
// It is empty for backends that do not list them, and if the kernel was requested or tuned.
func (pl *Plan) Reasoning() string {
	count, text := pl.plan.Reasoning()
	if count == 0 {
		return ""
	}
	return fmt.Sprintf("of %d ways to compute it on %v\n%s", count, pl.Device(), text)
}

// Program lists the copies and launches with which GPUs compute the product, one per line. It is
// empty on the CPU, and if they follow each other in one stream.
func (pl *Plan) Program() string { return pl.plan.Program() }

// New plans a product. The errors wrap ErrUnsupported or ErrNoDevice. If the request names no
// device, the first plan for which the choice matters measures for up to a second, and returns the
// context's error if that ends meanwhile.
func New(ctx context.Context, r Request) (*Plan, error) {
	pl := &Plan{Request: r}
	if err := pl.Decide(ctx); err != nil {
		return nil, err
	}
	return pl, nil
}

// Decide plans like [New], but in place. Only the Request of pl may be set, except that pl may be
// the plan of a [Job] after [Job.Reset]. On the CPU it then allocates nothing.
func (pl *Plan) Decide(ctx context.Context) error {
	if err := CheckThreads(pl.Request.Threads); err != nil {
		return err
	}
	if r := &pl.Request; r.Kernel == backend.DefaultKernel {
		r.Kernel, r.Choice = "", cmp.Or(r.Choice, &backend.Choice{})
	}
	switch d := &pl.Request.Device; {
	case pl.Problem.Batch.Kind != gemm.Single:
		return fmt.Errorf("%w: %v as one product: see RunBatch and RunGroups", gemm.ErrUnsupported, &pl.Problem)
	case d.Kind != backend.Auto:
		return pl.planOn(find(d))
	case pl.Packed != nil:
		return pl.planOn(pl.Packed.on)
	case pl.Tile != nil:
		return pl.planOn(rows[0].first)
	case pl.Request.Kernel != "":
		name, _, _ := strings.Cut(pl.Request.Kernel, ":")
		return pl.planByKernel("kernel "+pl.Request.Kernel, func(k backend.Kernel) bool { return k.Name == name })
	case pl.Problem.Epilogue.Function != nil:
		return pl.planByKernel("the device function", pl.isSupported)
	case pl.Problem.Precision != gemm.Native:
		return pl.planByKernel("precision "+pl.Problem.Precision.String(), pl.isSupported)
	case pl.Problem.Invariance != gemm.NotInvariant:
		return pl.planInvariant()
	}
	defaultChooser().Choose(ctx, &pl.Problem, pl.Request.Threads, pl.Once, &pl.decision)
	if pl.decision.Err != nil && ctx.Err() != nil {
		return ctx.Err()
	}
	return pl.planAsDecided()
}

// IsRepeatable reports whether planning an equal request later would make the same decisions as
// long as Holds returns true. It returns false for products so large that planning takes hardly any
// of their time: their device depends on measurements, and their number of goroutines on
// GOMAXPROCS.
func (pl *Plan) IsRepeatable() bool {
	return pl.on == rows[0].first && pl.Problem.Flops() < auto.MinFlopsForGPU && cpu.IsSerial(&pl.Problem)
}

// Holds reports whether no choice has been tuned or removed since the product was planned.
func (pl *Plan) Holds() bool { return pl.tunings == tuned.Changes() }

// isSupported reports whether k can compute the product.
func (pl *Plan) isSupported(k backend.Kernel) bool { return k.Supports(&pl.Problem) == nil }

// planByKernel plans the product on the first backend with a kernel that fits. part is the part of
// the request that only such kernels have, for the error.
func (pl *Plan) planByKernel(part string, fits func(backend.Kernel) bool) error {
	t := automatic(fits)
	err := pl.planOn(t)
	if err != nil && t != rows[0].first {
		return fmt.Errorf("%s is for device %s: %w", part, Runners(t.device.Kind), err)
	}
	return err
}

// planAsDecided plans the product on the device of pl.decision or, if that refuses it, on the CPU.
func (pl *Plan) planAsDecided() error {
	if pl.decision.Device.IsGPU() {
		if pl.decision.Refused = pl.planOn(find(&pl.decision.Device)); pl.decision.Refused == nil {
			return nil
		}
	}
	return pl.planOn(rows[0].first)
}

// planInvariant plans a row-invariant product on the first GPU, or on the CPU if there is none.
// Which of them is faster depends on the number of rows.
func (pl *Plan) planInvariant() error {
	for i := range rows {
		if r := &rows[i]; r.first.device.IsGPU() && r.automatic && r.first.Open() == nil {
			pl.place = "row-invariant products of all sizes are on the GPU"
			return pl.planOn(r.first)
		}
	}
	pl.place = "row-invariant, and there is no GPU"
	return pl.planOn(rows[0].first)
}

// CheckThreads returns an error that wraps ErrUnsupported if n is negative.
func CheckThreads(n int) error {
	if n < 0 {
		return fmt.Errorf("%w: %d threads: want 1 or more, or 0 for all", gemm.ErrUnsupported, n)
	}
	return nil
}

// planOn plans the product on a backend, with the tuned choice unless the request makes one.
func (pl *Plan) planOn(t *target) error {
	r := &pl.Request
	pl.tunings = tuned.Changes()
	pl.options.Threads, pl.options.Kernel, pl.options.GPUMemory = r.Threads, r.Kernel, r.GPUMemory
	if r.Packed != nil {
		if err := r.checkPacked(t); err != nil {
			return err
		}
		pl.options.Packed = r.Packed.Packed
	}
	switch {
	case r.Choice != nil:
		pl.options.Choice = *r.Choice
	case r.Kernel == "" && r.Packed == nil && t.tunable != nil:
		pl.reason.Tuned = t.tuned.Find(t.tunable, &r.Problem)
	}
	var plan backend.Plan
	var err error
	if pl.reason.Tuned != nil {
		pl.options.Choice, pl.options.SameBits = pl.reason.Choice, pl.reason.Repeated
		if plan, pl.reason.Unfit = t.Plan(&r.Problem, &pl.options, pl.plan); pl.reason.Unfit != nil {
			pl.options.Choice, pl.options.SameBits = backend.Choice{}, false
		}
	}
	if plan == nil {
		if plan, err = t.Plan(&r.Problem, &pl.options, pl.plan); err != nil {
			return err
		}
	}
	if r.Tile != nil || r.Progress != nil {
		if err := pl.setCallbacks(plan, t); err != nil {
			return err
		}
	}
	pl.plan, pl.on = plan, t
	return nil
}

// setCallbacks makes plan call the functions of the request.
func (pl *Plan) setCallbacks(plan backend.Plan, on *target) error {
	r := &pl.Request
	if r.Tile != nil && !plan.CallTile(r.Tile) {
		return fmt.Errorf("%w: a Go function for each tile on device %v: only the CPU runs it", gemm.ErrUnsupported, on)
	}
	if r.Progress != nil {
		pl.paced = &pacer{report: r.Progress}
		plan.ReportProgress(pl.paced.update)
	}
	return nil
}

// Run computes the product and, with Verify, checks the result. The errors are those of
// [gemm.Buffers.Check] and of the device, ErrVerify and the context's.
func (pl *Plan) Run(ctx context.Context, b *gemm.Buffers) error {
	if err := pl.check(b); err != nil {
		return err
	}
	if pl.Verify {
		return pl.runVerified(ctx, *b)
	}
	return pl.compute(ctx, b)
}

func (pl *Plan) compute(ctx context.Context, b *gemm.Buffers) error {
	if pl.Timed {
		if err := pl.plan.Prepare(ctx); err != nil {
			return err
		}
		start := time.Now()
		defer func() { pl.took = time.Since(start) }()
	}
	if pl.Progress != nil && pl.paced != nil {
		pl.paced.last = now()
	}
	if pl.serial {
		return pl.plan.RunSerial(ctx, b)
	}
	return pl.plan.Run(ctx, b)
}
