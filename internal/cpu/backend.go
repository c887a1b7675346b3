package cpu

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"sync"
	"time"

	"tilework/internal/backend"
	"tilework/internal/cache"
	"tilework/internal/gemm"
	"tilework/internal/host"
)

// Backend is the CPU as a [backend.Backend].
type Backend struct{}

var (
	_ backend.Packer  = Backend{}
	_ backend.Tunable = Backend{}
)

// Kernels implements [backend.Backend].
func (Backend) Kernels() []backend.Kernel {
	var all []backend.Kernel
	for _, k := range kernels {
		all = append(all, backend.Kernel{
			Name: k.Name, Kind: backend.CPU, Adds: k.Adds, Needs: k.ISA, Available: k.Available(),
			Types: k.Types(), Tiles: k.Tiles(), Supports: k.checkProblem, Accuracy: k.Accuracy,
		})
	}
	return all
}

// checkProblem implements [backend.Kernel.Supports].
func (k *Kernel) checkProblem(p *gemm.Problem) error {
	if err := checkProblem(p); err != nil {
		return err
	}
	if !k.Multiplies(p.In()) {
		return k.errNoArithmetic(p.In())
	}
	return nil
}

// Open implements [backend.Backend].
func (Backend) Open() error { return nil }

// Plan implements [backend.Backend].
func (Backend) Plan(p *gemm.Problem, o *backend.Options, reuse backend.Plan) (backend.Plan, error) {
	pl, ok := reuse.(*Plan)
	if !ok {
		pl = new(Plan)
	}
	if err := pl.Decide(p, o); err != nil {
		pl.Reset()
		return nil, err
	}
	return pl, nil
}

// String implements [backend.Backend].
func (Backend) String() string { return backend.CPU.String() }

// Pack implements [backend.Packer].
func (Backend) Pack(ctx context.Context, l gemm.Layout, b []byte, o *backend.Options) (backend.Packed, error) {
	packed, err := Pack(ctx, l, b, o)
	if err != nil {
		return nil, err
	}
	return packed, nil
}

// TuningKey implements [backend.Tunable].
func (Backend) TuningKey() *backend.TuningKey { return tuningKey() }

var tuningKey = sync.OnceValue(func() *backend.TuningKey { return newTuningKey(os.Getenv(EnvISA)) })

// newTuningKey returns the key of the choices tuned with limit as the value of EnvISA.
func newTuningKey(limit string) *backend.TuningKey {
	return &backend.TuningKey{
		Device: fmt.Sprintf("cpu %s/%s %s", runtime.GOOS, runtime.GOARCH, host.CPUName()),
		Build:  fmt.Sprintf("%s, %s=%s", cache.Build(), EnvISA, limit),
	}
}

// IsTuned implements [backend.Tunable]. The matrices must be dense.
func (Backend) IsTuned(l gemm.Layout) bool { return l.LD == max(l.Cols, 1) }

// KernelName implements [backend.Plan].
func (pl *Plan) KernelName() string { return pl.Kernel.Name }

// Workers implements [backend.Plan].
func (pl *Plan) Workers() int { return pl.Threads }

// Accuracy implements [backend.Plan].
func (pl *Plan) Accuracy(p *gemm.Problem) gemm.Accuracy { return pl.Kernel.Accuracy(p) }

// Predicted implements [backend.Plan]. The time on several threads is not known.
func (pl *Plan) Predicted(threads int) time.Duration {
	if threads > 1 || pl.Kernel.naive || pl.packed != nil {
		return 0
	}
	return time.Duration(pl.Kernel.tiles(pl.Problem.Accum()).predict(pl.Problem, pl.method))
}

// Reset implements [backend.Plan].
func (pl *Plan) Reset() backend.Plan {
	*pl = Plan{}
	return pl
}

// CallTile implements [backend.Plan].
func (pl *Plan) CallTile(f func(i, j, rows, cols int)) bool {
	pl.onTile = f
	return true
}

// ReportProgress implements [backend.Plan].
func (pl *Plan) ReportProgress(f func(done, total int64)) { pl.progress = f }

// serialPlans holds plans for [Plan.RunSerial], because a local copy would escape to the heap.
var serialPlans = sync.Pool{New: func() any { return new(Plan) }}

// RunSerial implements [backend.Plan].
func (pl *Plan) RunSerial(ctx context.Context, b *gemm.Buffers) error {
	if pl.Threads == 1 {
		return pl.Run(ctx, b)
	}
	serial := serialPlans.Get().(*Plan)
	defer func() {
		serial.Reset()
		serialPlans.Put(serial)
	}()
	*serial = *pl
	serial.Threads = 1
	return serial.Run(ctx, b)
}
