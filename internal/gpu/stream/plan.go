// Package stream computes products of matrices in host memory on a GPU. It cuts a product
// into steps, and copies the panels of one step while the kernel of another runs.
package stream

import (
	"context"
	"sync"
	"time"

	"tilework/internal/device"
	"tilework/internal/device/timeline"
	"tilework/internal/gemm"
	"tilework/internal/gpu/exec"
	"tilework/internal/memo"
	"tilework/internal/program"
)

// Backend computes products of matrices in host memory on one device. It keeps streams, the
// schedules of recent products and the compiled kernels. Its methods are safe for concurrent use.
type Backend struct {
	*exec.Backend

	schedules memo.Table[scheduleKey, scheduled]

	mu   sync.Mutex
	idle []*streams // not used by a product
}

// New returns a backend on a device, which the caller closes after the backend.
func New(d device.Device) *Backend {
	return &Backend{Backend: exec.New(d)}
}

// Close closes the streams and unloads the compiled kernels.
func (b *Backend) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	var errs []error
	for _, s := range b.idle {
		errs = append(errs, s.close())
	}
	b.idle = nil
	return device.Join(append(errs, b.Backend.Close())...)
}

// Plan is a product of matrices in host memory: the plan of the same product on the device, and the
// schedule of its copies and kernels.
type Plan struct {
	*exec.Plan

	on         *Backend
	host       *gemm.Problem
	keepLayout bool
	rows, cols program.Span // the area of C that the plan computes
	devices    int          // number of devices that compute parts of C at the same time, or 0 for one
	sums       *order       // nil if the plan chooses the order of the sums

	// Limit is the number of bytes of device memory that Run may use for matrices. 0 allows nine
	// tenths of the device's memory.
	Limit int
	// Timeline, if not nil, records the work of Run.
	Timeline *timeline.Timeline
	// Finished, if not nil, is called with each part of [Plan.Work] that an emulated device has
	// finished, from any goroutine.
	Finished func(work int64)

	Steps    *schedule // nil before the first call of Schedule
	expected program.Prediction
}

// Plan selects a kernel and its configuration. The error is ErrUnsupported.
func (b *Backend) Plan(p *gemm.Problem, opt exec.Options) (*Plan, error) {
	pl, err := b.Backend.Plan(p, opt)
	if err != nil {
		return nil, err
	}
	return b.PlanOf(pl, p, opt.KeepLayout), nil
}

// PlanOf returns the plan of p that runs as pl does, which was planned for p and has the
// host's layouts on the device if keepLayout is set.
func (b *Backend) PlanOf(pl *exec.Plan, p *gemm.Problem, keepLayout bool) *Plan {
	return &Plan{Plan: pl, on: b, host: p, keepLayout: keepLayout, rows: program.First(p.M), cols: program.First(p.N)}
}

// Host returns the product with the layouts of its matrices in host memory.
func (pl *Plan) Host() *gemm.Problem { return pl.host }

// Predicted returns the predicted time of Run.
func (pl *Plan) Predicted() time.Duration {
	pl.Schedule()
	return pl.expected.Total
}

// RunBreakdown runs the plan and returns the breakdown of its time.
func (pl *Plan) RunBreakdown(ctx context.Context, b gemm.Buffers) (timeline.Breakdown, error) {
	all, err := timeline.Measure(ctx, []device.Device{pl.on.Device}, func(lines []*timeline.Timeline) error {
		timed := *pl
		timed.Timeline = lines[0]
		return timed.Run(ctx, b)
	})
	if err != nil {
		return timeline.Breakdown{}, err
	}
	return all[0], nil
}

// Backend returns the backend that made the plan.
func (pl *Plan) Backend() *Backend { return pl.on }
