// Package multi computes a product of matrices in host memory on several GPUs of the host. Each GPU
// computes some rows or columns of C, with the kernel and the order of the sums of the product on
// one GPU, so the result has the same bits on any number of GPUs.
package multi

import (
	"context"
	"fmt"
	"strings"
	"time"

	"tilework/internal/backend"
	"tilework/internal/device"
	"tilework/internal/device/timeline"
	"tilework/internal/gemm"
	"tilework/internal/gpu"
	"tilework/internal/gpu/stream"
	"tilework/internal/relay"
)

// Backend is a list of GPUs as a [backend.Backend]. It opens them when it is first used, and never
// closes them.
type Backend struct{ Device backend.DeviceName }

var _ backend.Tunable = Backend{}

// member is an open GPU of a list.
type member struct {
	*stream.Backend
	device backend.DeviceName
}

// open opens the GPUs of the list. The error wraps ErrNoDevice.
func (b Backend) open() (all []member, err error) {
	err = gpu.EachMember(b.Device, func(d backend.DeviceName) error {
		on, err := gpu.Keep(d)
		if err == nil {
			all = append(all, member{on, d})
		}
		return err
	})
	return all, err
}

// Kernels implements [backend.Backend].
func (b Backend) Kernels() []backend.Kernel { return gpu.Backend{}.Kernels() }

// Open implements [backend.Backend].
func (b Backend) Open() error {
	_, err := b.open()
	return err
}

// String implements [backend.Backend].
func (b Backend) String() string { return b.Device.String() }

// TuningKey implements [backend.Tunable]. The choices are those of the first GPU.
func (b Backend) TuningKey() *backend.TuningKey {
	all, err := b.open()
	if err != nil {
		return nil
	}
	return gpu.TuningKey(all[0].Backend.Backend)
}

// IsTuned implements [backend.Tunable].
func (Backend) IsTuned(gemm.Layout) bool { return true }

// minDivided is the predicted time on one GPU from which a product is divided. The goroutines and
// the streams of several GPUs cost some tenths of a millisecond. Tests change it.
var minDivided = time.Millisecond

// Plan implements [backend.Backend]. The first GPU chooses the kernel and the order of the sums.
// The product is divided only if it is then predicted to take less time.
func (b Backend) Plan(p *gemm.Problem, o *backend.Options, _ backend.Plan) (backend.Plan, error) {
	all, err := b.open()
	if err != nil {
		return nil, err
	}
	options := gpu.Options(o.Kernel)
	if o.Tile != "" {
		options.Tile = o.Tile
	}
	problem := *p // the caller's may be overwritten before the plan is unused
	first, err := all[0].Plan(&problem, options)
	if err != nil {
		return nil, err
	}
	first.Limit = o.GPUMemory
	whole := &plan{members: all, whole: first, shares: []share{{all[0].device, first}}}
	if len(all) == 1 || problem.Empty() || !problem.ReadsAB() || first.Predicted() < minDivided {
		return whole, nil
	}
	divided := &plan{members: all, whole: first}
	if divided.shares, err = divide(first, all); err != nil {
		return nil, err
	}
	if divided.Predicted(0) < first.Predicted() {
		return divided, nil
	}
	return whole, nil
}

// divide divides C among GPUs: by rows or by columns, whichever C has more of, in proportion to the
// predicted rates of the GPUs.
func divide(first *stream.Plan, all []member) (shares []share, err error) {
	plans, rates, err := onEach(first, all)
	if err != nil {
		return nil, err
	}
	total := 0.
	for _, r := range rates {
		total += r
	}
	from, sum := 0, 0.
	for i, m := range all {
		sum += rates[i]
		to := first.Cut(sum / total)
		if to > from {
			shares = append(shares, share{m.device, plans[i].Share(from, to, len(all))})
		}
		from = to
	}
	return shares, nil
}

// onEach returns the plans of the whole product on each GPU, and numbers in proportion to the
// predicted rates.
func onEach(first *stream.Plan, all []member) (plans []*stream.Plan, rates []float64, err error) {
	for _, m := range all {
		pl, err := first.On(m.Backend)
		if err != nil {
			return nil, nil, fmt.Errorf("device %v: %w", m.device, err)
		}
		plans, rates = append(plans, pl), append(rates, 1/max(pl.Predicted(), 1).Seconds())
	}
	return plans, rates, nil
}

// plan is a planned product.
type plan struct {
	backend.BasePlan
	members  []member
	whole    *stream.Plan // on the first GPU
	shares   []share
	progress func(done, total int64)
}

// share is the part of C that one GPU computes.
type share struct {
	device backend.DeviceName
	*stream.Plan
}

// Prepare implements [backend.Plan].
func (pl *plan) Prepare(ctx context.Context) error {
	return pl.each(ctx, func(ctx context.Context, s share) error { return s.Compile(ctx) })
}

// PrepareTime implements [backend.Plan]. The GPUs compile at the same time.
func (pl *plan) PrepareTime() (longest time.Duration) {
	for _, s := range pl.shares {
		longest = max(longest, s.CompileTime())
	}
	return longest
}

// ReportProgress implements [backend.Plan]. Only emulated GPUs report their progress.
func (pl *plan) ReportProgress(f func(done, total int64)) {
	if pl.whole.Backend().Info().Emulated {
		pl.progress = f
	}
}

// Run implements [backend.Plan]. The first failure ends the work of all GPUs. Run returns when none
// uses the buffers.
func (pl *plan) Run(ctx context.Context, b *gemm.Buffers) error {
	plans := make([]*stream.Plan, len(pl.shares))
	for i := range plans {
		plans[i] = pl.shares[i].Plan
	}
	if pl.progress == nil {
		return pl.run(ctx, plans, b)
	}
	return stream.RunReported(ctx, plans, pl.progress, func(ctx context.Context) error {
		return pl.run(ctx, plans, b)
	})
}

// run runs plans, those of the shares.
func (pl *plan) run(ctx context.Context, plans []*stream.Plan, b *gemm.Buffers) error {
	if len(plans) == 1 {
		return plans[0].Run(ctx, *b)
	}
	failed, err := stream.RunTogether(ctx, plans, *b)
	if err != nil && ctx.Err() == nil {
		err = fmt.Errorf("device %v: %w", pl.shares[failed].device, err)
	}
	return err
}

// RunBreakdown implements [backend.Plan].
func (pl *plan) RunBreakdown(ctx context.Context, b *gemm.Buffers) ([]timeline.Breakdown, error) {
	var devices []device.Device
	for _, s := range pl.shares {
		devices = append(devices, s.Backend().Device)
	}
	all, err := timeline.Measure(ctx, devices, func(lines []*timeline.Timeline) error {
		timed := *pl
		timed.shares = nil
		for i, s := range pl.shares {
			part := *s.Plan
			part.Timeline = lines[i]
			timed.shares = append(timed.shares, share{s.device, &part})
		}
		return timed.Run(ctx, b)
	})
	for i := range all {
		all[i].Device = pl.shares[i].device.String()
	}
	return all, err
}

// each calls f for all shares at the same time, and returns the first error with its device.
func (pl *plan) each(ctx context.Context, f func(ctx context.Context, s share) error) error {
	if len(pl.shares) == 1 {
		return f(ctx, pl.shares[0])
	}
	return Each(ctx, len(pl.shares), func(i int) backend.DeviceName { return pl.shares[i].device },
		func(ctx context.Context, i int) error { return f(ctx, pl.shares[i]) })
}

// Each calls f for 0 to n-1 at the same time. The first error ends the context of the others, and
// is returned with the device of its number.
func Each(ctx context.Context, n int, device func(int) backend.DeviceName,
	f func(ctx context.Context, i int) error) error {
	failed, err := relay.Each(ctx, n, f)
	if e := ctx.Err(); e != nil {
		return e
	}
	if err != nil {
		err = fmt.Errorf("device %v: %w", device(failed), err)
	}
	return err
}

// Program implements [backend.Plan].
func (pl *plan) Program() string {
	var plans []*stream.Plan
	for _, s := range pl.shares {
		plans = append(plans, s.Plan)
	}
	return stream.Program(plans)
}

// Predicted implements [backend.Plan].
func (pl *plan) Predicted(int) (longest time.Duration) {
	for _, s := range pl.shares {
		longest = max(longest, s.Plan.Predicted())
	}
	return longest
}

// KernelName implements [backend.Plan].
func (pl *plan) KernelName() string { return pl.whole.Kernel.Name }

// Detail implements [backend.Plan].
func (pl *plan) Detail() string {
	if len(pl.shares) == 1 {
		return pl.shares[0].Detail()
	}
	var all []string
	for _, s := range pl.shares {
		all = append(all, fmt.Sprintf("%v computes %s: %s", s.device, s.Area(), s.Detail()))
	}
	return strings.Join(all, "; ")
}

// Why implements [backend.Plan].
func (pl *plan) Why() string {
	if len(pl.shares) == 1 {
		return fmt.Sprintf("%s; one GPU is predicted to be as fast", pl.whole.Why)
	}
	return pl.whole.Why
}

// Memory implements [backend.Plan]. An emulated GPU has copies of the matrices.
func (pl *plan) Memory() (n int) {
	for _, s := range pl.shares {
		if s.Backend().Device.Info().Emulated {
			n += s.Schedule().Memory()
		}
	}
	return n
}

// Accuracy implements [backend.Plan].
func (pl *plan) Accuracy(p *gemm.Problem) gemm.Accuracy { return pl.whole.Kernel.Accuracy(p) }
