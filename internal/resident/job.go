package resident

import (
	"context"
	"fmt"
	"math/bits"

	"tilework/dtype"
	"tilework/internal/device"
	"tilework/internal/device/timeline"
	"tilework/internal/dispatch/tuned"
	"tilework/internal/gemm"
	"tilework/internal/gpu"
	"tilework/internal/gpu/exec"
	"tilework/internal/gpu/kernel"
	"tilework/internal/gpu/trial"
	"tilework/internal/split"
	verifygpu "tilework/internal/verify/gpu"
)

// Job is a product and its operands.
type Job struct {
	gemm.Problem      // complete
	Swapped      bool // whether the problem is that of the transposes; see [gemm.Problem.Complete]
	// Operands holds A, B and C, and the other operands that the problem reads, as the caller gives
	// them. Vectors in host memory are one stored row, and on the device any vector. Of a batch, A, B
	// and C are those of the first product, or for groups A and C hold the rows of all.
	Operands [gemm.Operands]Operand
	Kernel   string  // empty for the plan's choice
	Verify   bool    // check the result
	Within   float64 // see [verify.Options.Within]

	timelines []*timeline.Timeline // of the members while their work is measured, or nil
}

// Operand is a matrix or vector of a product: on the device or, except for A, B and C, in host
// memory, with the layout of its stored rows.
type Operand struct {
	On     Matrix
	Host   []byte
	Layout gemm.Layout
}

// inHostMemory reports whether the operand is given, and not on the device. It may be empty.
func (x *Operand) inHostMemory() bool {
	return x.On.Memory == nil && x.Layout.Type != dtype.Invalid
}

// Gemm enqueues a product and returns, usually before the product begins. The errors are
// ErrOverlap, ErrClosed, ErrUnsupported for kernels and for matrices of several devices, the
// context's, and the device's if it refuses the launch.
//
// Gemm waits only while operands in host memory are copied, for a product that is verified, which
// may return ErrVerify, and on several GPUs for a vector that is a column there.
func Gemm(ctx context.Context, p *Job) error {
	for o := range p.Operands {
		switch x := &p.Operands[o]; {
		case x.inHostMemory():
			return p.uploadAndRun(ctx, gemm.Operand(o))
		case gemm.Operand(o).IsVector() && x.On.Memory != nil && !x.On.isRow():
			return p.straightenAndRun(ctx, gemm.Operand(o))
		}
	}
	return p.with(func(x planned) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		if x.division != nil {
			return x.division.run(ctx, p, &x.blocks)
		}
		run := func(pl *exec.Plan) error { return p.enqueue(ctx, pl, nil, 0, &x.memory) }
		if p.Verify || p.timelines != nil {
			return p.timeline(0).Do(p.device().first().Device, timeline.Compute, 0, func() error {
				return run(x.product.Plan())
			})
		}
		return x.product.Enqueue(run)
	})
}

// RunBreakdown computes the product n times, one directly after the other, and returns the
// breakdown of the time of one on each GPU.
func RunBreakdown(ctx context.Context, p *Job, n int) ([]timeline.Breakdown, error) {
	if err := p.c().there("C"); err != nil {
		return nil, err
	}
	d := p.device()
	if err := d.Sync(ctx); err != nil {
		return nil, err
	}
	var devices []device.Device
	for _, m := range d.members {
		devices = append(devices, m.backend.Device)
	}
	all, err := timeline.Measure(ctx, devices, func(lines []*timeline.Timeline) error {
		q := *p
		q.timelines = lines
		for range n {
			if err := Gemm(ctx, &q); err != nil {
				return device.Join(err, d.Sync(ctx))
			}
		}
		return d.Sync(ctx)
	})
	for i := range all {
		all[i] = all[i].Of(n)
		all[i].Device = d.members[i].name.String()
	}
	return all, err
}

// timeline returns the timeline of a member, or nil.
func (p *Job) timeline(member int) *timeline.Timeline {
	if p.timelines == nil {
		return nil
	}
	return p.timelines[member]
}

// enqueue enqueues a plan with the factors of the product, or runs and verifies it. See
// [exec.Plan.EnqueueScaled].
func (p *Job) enqueue(ctx context.Context, pl *exec.Plan, s device.Stream, scratch device.Ptr,
	m *kernel.Memory) error {
	if p.Verify {
		return verifygpu.RunVerified(ctx, pl.Scaled(p.Alpha, p.Beta).In(s, scratch), *m, p.Within)
	}
	return pl.EnqueueScaled(ctx, p.Alpha, p.Beta, s, scratch, m)
}

// c returns the matrix C.
func (p *Job) c() Matrix { return p.Operands[gemm.C].On }

// device returns the device of C.
func (p *Job) device() *GPUs { return p.Operands[gemm.C].On.Memory.device }

// uploadAndRun computes the product with a copy of operand o, which is in host memory.
func (p *Job) uploadAndRun(ctx context.Context, o gemm.Operand) error {
	if err := p.c().there("C"); err != nil {
		return err
	}
	x := p.Operands[o]
	on, err := New(p.c().Memory.device, x.Layout, split.OnEach)
	if err != nil {
		return err
	}
	if err := on.CopyIn(ctx, x.Host, x.Layout); err != nil {
		return device.Join(err, on.Memory.Close())
	}
	return p.runWith(ctx, o, on)
}

// runWith computes the product with another matrix as operand o, and frees it: the device does so
// after the product.
func (p *Job) runWith(ctx context.Context, o gemm.Operand, on Matrix) error {
	q := *p
	q.Operands[o] = Operand{On: on}
	if at := p.inProblem(o); at < gemm.Bias {
		q.Layouts[at].LD = on.Layout.LD
	}
	return device.Join(Gemm(ctx, &q), on.Memory.Close())
}

// straightenAndRun computes the product with a copy of vector o, which is a column on the device.
// On several GPUs the copy goes through host memory.
func (p *Job) straightenAndRun(ctx context.Context, o gemm.Operand) error {
	if err := p.checkDevices(); err != nil {
		return err
	}
	if err := p.checkOverlap(); err != nil {
		return err
	}
	column := p.Operands[o].On
	if !p.device().Divided() {
		row, err := column.row(ctx)
		if err != nil {
			return err
		}
		return p.runWith(ctx, o, row)
	}
	row, _ := column.Layout.Row()
	memory := make([]byte, row.Bytes())
	if err := column.CopyOut(ctx, memory, gemm.Dense(row.Type, row.Cols, 1)); err != nil {
		return err
	}
	q := *p
	q.Operands[o] = Operand{Host: memory, Layout: row}
	return q.uploadAndRun(ctx, o)
}

// PlanOf returns the plan that Gemm would run. The division among several GPUs, in words, is empty
// on a single one.
func PlanOf(p *Job) (pl *exec.Plan, division string, err error) {
	err = p.with(func(x planned) error {
		pl = x.product.Described().Scaled(p.Alpha, p.Beta)
		if x.division != nil {
			division = x.division.String()
		}
		return nil
	})
	return pl, division, err
}

// planned is a planned product.
type planned struct {
	product  *trial.Product        // on the first GPU, with unit factors
	memory   kernel.Memory         // addresses of the operands on a single GPU, or offsets in their blocks
	blocks   [gemm.Operands]*block // of the operands that are on the device
	division *division             // nil on a single GPU
}

// operand returns operand o of the problem, which is that of the transposes if swapped is set.
func (p *Job) operand(o gemm.Operand, swapped bool) *Operand {
	if swapped {
		o = o.Transposed()
	}
	return &p.Operands[o]
}

// inProblem returns the operand of the problem that is the caller's operand o.
func (p *Job) inProblem(o gemm.Operand) gemm.Operand {
	if p.Swapped {
		return o.Transposed()
	}
	return o
}

// with plans the product and calls f with the plan. The operands stay allocated until f returns.
func (p *Job) with(f func(planned) error) error {
	if err := p.checkDevices(); err != nil {
		return err
	}
	d := p.device()
	if err := d.enter(); err != nil {
		return err
	}
	defer d.leave()
	var x planned
	for o := range gemm.Operands {
		if on := &p.operand(o, p.Swapped).On; on.Memory != nil {
			x.blocks[o], x.memory[o] = on.Memory.block, on.at()
		}
	}
	err := holdAll(x.blocks[:])
	if err != nil {
		return err
	}
	defer releaseAll(x.blocks[:])
	if err := p.checkOverlap(); err != nil {
		return err
	}
	if x.product, err = d.plan(&p.Problem, &x.memory, p.Kernel); err != nil {
		return err
	}
	if d.Divided() {
		if x.division, err = d.division(x.product.Plan(), p, p.Swapped); err != nil {
			return err
		}
	}
	return f(x)
}

// checkDevices returns an error unless all operands are on the device of C. Gemm copies those in
// host memory there.
func (p *Job) checkDevices() error {
	if err := p.c().there("C"); err != nil {
		return err
	}
	for o := range gemm.Operands {
		x := &p.Operands[o]
		if x.On.Memory == nil && o > gemm.C && (!p.Epilogue.Reads(p.inProblem(o)) || x.inHostMemory()) {
			continue
		}
		if x.On.Memory == nil {
			return x.On.there(o.Phrase())
		}
		switch have, want := x.On.Memory.device, p.device(); {
		case have == want:
		case have.name == want.name:
			return fmt.Errorf("%w: %s and C are on device %v opened twice: open it once for both", gemm.ErrUnsupported,
				o.Phrase(), have)
		default:
			return fmt.Errorf("%w: %s is on device %v and C on %v: download one and upload it to the other", gemm.ErrUnsupported,
				o.Phrase(), have, want)
		}
	}
	return nil
}

// checkOverlap returns ErrOverlap if C shares memory with an operand that is read. For a batch, the
// gaps between the matrices count as memory of the operand.
func (p *Job) checkOverlap() error {
	for o := range gemm.Operands {
		if o == gemm.C || p.Operands[o].On.Memory != p.Operands[gemm.C].On.Memory {
			continue
		}
		c, x := p.span(gemm.C), p.span(o)
		if gemm.OverlapAt(c.Layout, uintptr(c.Offset), x.Layout, uintptr(x.Offset)) {
			return fmt.Errorf("%w: C shares memory with %s", gemm.ErrOverlap, o.Phrase())
		}
	}
	return nil
}

// span returns the memory of an operand of all products of a batch as one row, or the matrix itself
// if all products share it. A complete problem has no rows that are too long.
func (p *Job) span(o gemm.Operand) Matrix {
	m, at := p.Operands[o].On, p.inProblem(o)
	if o > gemm.C || p.Batch.Stride[at] == 0 {
		return m
	}
	n, _ := m.Layout.Span(p.Batch.Count, p.Batch.Stride[at], "")
	m.Layout = gemm.Dense(m.Layout.Type, 1, n)
	return m
}

// planKey identifies a plan.
type planKey struct {
	problem gemm.Problem // with unit factors
	kernel  string
	align   kernel.Align
	changes uint64 // count of changes of the tuned choices
}

// plan returns the planned product on the first GPU, with unit factors. Planning takes longer than
// launching, so plans are kept.
func (d *GPUs) plan(p *gemm.Problem, m *kernel.Memory, name string) (*trial.Product, error) {
	key := planKey{p.UnitFactors(), name, alignment(m), tuned.Changes()}
	return d.plans.Get(key, func() (*trial.Product, error) {
		opt := gpu.Options(name)
		opt.KeepLayout, opt.Align = true, key.align
		kept := key.problem
		pl, err := gpu.PlanResident(d.first(), &kept, opt)
		switch {
		case err != nil:
			return nil, err
		case d.timed && name == "":
			return trial.New(d.trials, pl, func(x trial.Outcome) { gpu.KeepRepeated(d.first(), x) }), nil
		}
		return trial.Fixed(d.trials, pl), nil
	})
}

// maxAlign is the alignment of all memory of a device.
const maxAlign = 256

// alignment returns the alignment of the matrices at m, up to maxAlign. Plans do not depend on that
// of vectors.
func alignment(m *kernel.Memory) (a kernel.Align) {
	for o := range gemm.Bias {
		a[o] = 1 << bits.TrailingZeros64(uint64(m[o])|maxAlign)
	}
	return a
}
