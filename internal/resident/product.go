package resident

import (
	"context"
	"fmt"
	"math/bits"

	"tilework/dtype"
	"tilework/internal/device"
	"tilework/internal/dispatch"
	"tilework/internal/dispatch/tuned"
	"tilework/internal/gemm"
	"tilework/internal/gpu/exec"
	"tilework/internal/gpu/kernel"
)

// Product is what [Gemm] computes: C ← Alpha·A·B + Beta·C, with what the epilogue does to it.
type Product struct {
	Alpha, Beta float64
	A, B, C     Matrix
	Epilogue    gemm.Epilogue
	// Bias is one stored row, if the epilogue has one, unless HostBias is that row on
	// the host.
	Bias     Matrix
	HostBias []byte
	// Extras are what else the epilogue reads, and block scales.
	Extras [gemm.Extras]Extra
	Kernel string  // empty for the plan's choice
	Verify bool    // check the result
	Within float64 // see [ref.VerifyOptions.Within]
	// Precision is the arithmetic, the zero value being the elements' own.
	Precision gemm.Precision
	// Batch, unless it is zero, makes the product one of many: A, B and C are the first
	// one's, or of groups A and C have the rows of all.
	Batch gemm.Batch
	// Ends is a stored row that says of each group which row, an int32, is the first behind it.
	Ends Matrix
}

// Extra is an operand of an epilogue, or block scales: a vector in one stored row, or a matrix,
// on the device or else on the host, where its stored rows lie as Layout says.
type Extra struct {
	On     Matrix
	Host   []byte
	Layout gemm.Layout
}

// layout is how the operand lies, wherever it is.
func (e *Extra) layout() gemm.Layout {
	if e.On.Memory != nil {
		return e.On.Layout
	}
	return e.Layout
}

// Gemm asks for a product and returns, usually before it has begun. The errors are
// those of [gemm.New], ErrOverlap, ErrClosed, ErrUnsupported for matrices of several
// devices, the context's and, of what the device refuses at once, the device's.
//
// It waits only while a bias of the host's, or what else the epilogue reads, is copied, and
// for a product that is verified, whose error may be ErrVerify then.
func Gemm(ctx context.Context, p *Product) error {
	if len(p.HostBias) > 0 {
		return withBias(ctx, p)
	}
	for x := range p.Extras {
		if len(p.Extras[x].Host) > 0 {
			return p.withExtra(ctx, gemm.Extra(x))
		}
	}
	return p.with(func(pl *exec.Plan, m kernel.Memory) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		if p.Verify {
			return verified(ctx, pl, m, p.Within)
		}
		return pl.Enqueue(ctx, m)
	})
}

// withBias computes a product with a bias of the host's.
func withBias(ctx context.Context, p *Product) error {
	l := gemm.Dense(p.C.Layout.Type, 1, len(p.HostBias)/p.C.Layout.Type.Size())
	return p.lend(ctx, p.HostBias, l, func(q *Product, bias Matrix) { q.Bias, q.HostBias = bias, nil })
}

// withExtra computes a product of which that operand is the host's.
func (p *Product) withExtra(ctx context.Context, x gemm.Extra) error {
	e := p.Extras[x]
	return p.lend(ctx, e.Host, e.Layout, func(q *Product, on Matrix) { q.Extras[x] = Extra{On: on} })
}

// lend computes a product with an operand of the host's on the device, where set puts it
// into the product.
func (p *Product) lend(ctx context.Context, host []byte, l gemm.Layout, set func(q *Product, on Matrix)) error {
	if err := p.C.there("C"); err != nil {
		return err
	}
	on, err := New(p.C.Memory.device, l)
	if err != nil {
		return err
	}
	if err = on.CopyIn(ctx, host, l); err == nil {
		q := *p
		set(&q, on)
		err = Gemm(ctx, &q)
	}
	// The device lets go of it after the product.
	return device.Join(err, on.Memory.Close())
}

// PlanOf is what Gemm would run.
func PlanOf(p *Product) (pl *exec.Plan, err error) {
	err = p.with(func(found *exec.Plan, _ kernel.Memory) error {
		pl = found
		return nil
	})
	return pl, err
}

// with plans the product and has f use the plan and the memory.
func (p *Product) with(f func(*exec.Plan, kernel.Memory) error) error {
	problem, swapped, err := gemm.New(p.Alpha, p.A.Layout, p.B.Layout, p.Beta, p.C.Layout, p.Epilogue)
	if err == nil {
		problem, err = problem.In(p.Precision)
	}
	if err == nil {
		problem, err = p.together(problem, swapped)
	}
	if err == nil && p.Epilogue.Residual {
		l := p.Extras[gemm.Residual].layout()
		if swapped {
			l = l.T()
		}
		problem, err = problem.Plus(l)
	}
	if up := &p.Extras[gemm.Up]; err == nil && p.Epilogue.Gated {
		problem, err = problem.GatedBy(up.layout())
	}
	if a, b := p.Extras[gemm.ScaleA].layout(), p.Extras[gemm.ScaleB].layout(); err == nil && a.Type != dtype.Invalid {
		problem, err = problem.Scaled(a, b, swapped)
	}
	problem.DataLen = p.Extras[gemm.Data].layout().Cols
	if err != nil {
		return err
	}
	bias, ends := p.Bias, p.Ends
	if bias.Memory == nil {
		bias = p.C // which no kernel takes for one: there is none, or it is yet to come
	}
	if ends.Memory == nil {
		ends = p.C
	}
	if err := p.checkDevices(bias, ends); err != nil {
		return err
	}
	d := p.C.Memory.device
	if err := d.enter(); err != nil {
		return err
	}
	defer d.leave()
	all := [5 + gemm.Extras]*block{p.A.Memory.block, p.B.Memory.block, p.C.Memory.block, bias.Memory.block, ends.Memory.block}
	blocks := all[:5]
	for _, e := range p.Extras {
		if e.On.Memory != nil {
			blocks = append(blocks, e.On.Memory.block)
		}
	}
	if err := holdAll(blocks...); err != nil {
		return err
	}
	defer func() {
		for _, b := range blocks {
			b.release()
		}
	}()
	if err := p.checkOverlap(); err != nil {
		return err
	}
	m := kernel.Memory{A: p.A.at(), B: p.B.at(), C: p.C.at(), Bias: bias.at(), Ends: ends.at()}
	if swapped {
		m.A, m.B = m.B, m.A
	}
	for x, e := range p.Extras {
		to := gemm.Extra(x)
		if swapped {
			to = to.Transposed()
		}
		if e.On.Memory != nil {
			m.Extras[to] = e.On.at()
		}
	}
	pl, err := d.plan(&problem, m, p.Kernel)
	if err != nil {
		return err
	}
	return f(pl, m)
}

// together is the problem with the product's batch; swapped says that A and B have changed
// places in it.
func (p *Product) together(problem gemm.Problem, swapped bool) (gemm.Problem, error) {
	b := p.Batch
	switch {
	case b.Kind == gemm.Strided && swapped:
		b.A, b.B = b.B, b.A
		return problem.Strided(b.Count, b)
	case b.Kind == gemm.Strided:
		return problem.Strided(b.Count, b)
	case b.Kind == gemm.Grouped && swapped:
		return problem, fmt.Errorf("%w: groups of the rows of a transposed C: they do not lie one behind the other", gemm.ErrUnsupported)
	case b.Kind == gemm.Grouped:
		return problem.Grouped(b.Count, b.B)
	}
	return problem, nil
}

func (p *Product) checkDevices(bias, ends Matrix) error {
	if err := p.C.there("C"); err != nil {
		return err
	}
	for _, x := range p.operands(bias, ends, new([4 + gemm.Extras]operand)) {
		if err := x.m.there(x.name); err != nil {
			return err
		}
		switch have, want := x.m.Memory.device, p.C.Memory.device; {
		case have == want:
		case have.name == want.name:
			return fmt.Errorf("%w: %s and C are on device %v opened twice: open it once for both", gemm.ErrUnsupported, x.name, have)
		default:
			return fmt.Errorf("%w: %s is on device %v and C on %v: download one and upload it to the other", gemm.ErrUnsupported, x.name, have, want)
		}
	}
	return nil
}

// operand is a matrix and its name.
type operand struct {
	name string
	m    Matrix
}

// operands are what the product reads, in a list that takes no memory, with that bias and
// those ends of groups. Of a batch all that lies between the first matrix and the last is A's,
// or B's.
func (p *Product) operands(bias, ends Matrix, list *[4 + gemm.Extras]operand) []operand {
	all := append(list[:0], operand{"A", p.whole(p.A, p.Batch.A)}, operand{"B", p.whole(p.B, p.Batch.B)},
		operand{"the bias", bias}, operand{"the groups' ends", ends})
	for x := range gemm.Extra(gemm.Extras) {
		if p.Epilogue.Has(x) || p.Extras[x].On.Memory != nil {
			all = append(all, operand{x.String(), p.Extras[x].On})
		}
	}
	return all
}

// checkOverlap refuses a C that shares memory with what is read.
func (p *Product) checkOverlap() error {
	c := p.whole(p.C, p.Batch.C)
	for _, x := range p.operands(p.Bias, p.Ends, new([4 + gemm.Extras]operand)) {
		if x.m.Memory == c.Memory && gemm.OverlapAt(c.Layout, uintptr(c.Offset), x.m.Layout, uintptr(x.m.Offset)) {
			return fmt.Errorf("%w: C shares memory with %s", gemm.ErrOverlap, x.name)
		}
	}
	return nil
}

// whole is the memory of all matrices of a batch, the first of which is m, one every stride
// elements, which together has checked; m itself if there is but one.
func (p *Product) whole(m Matrix, stride int) Matrix {
	if stride == 0 {
		return m
	}
	n, _ := m.Layout.Span(p.Batch.Count, stride, "")
	m.Layout = gemm.Dense(m.Layout.Type, 1, n)
	return m
}

// planKey is what a plan depends on.
type planKey struct {
	problem gemm.Problem // with factors of 1 instead of those that are not 0
	kernel  string
	align   kernel.Align
	changes uint64 // of what was tuned
}

// mostPlans bounds what a device remembers.
const mostPlans = 1024

// plan is the plan of a product. To plan takes longer than to launch, so that plans
// are kept.
func (d *Device) plan(p *gemm.Problem, m kernel.Memory, name string) (*exec.Plan, error) {
	key := planKey{*p, name, kernel.Align{A: align(m.A), B: align(m.B), C: align(m.C), D: align(m.Extras[gemm.Residual]), Up: align(m.Extras[gemm.Up])}, tuned.Changes()}
	if p.Alpha != 0 {
		key.problem.Alpha = 1
	}
	if p.Beta != 0 {
		key.problem.Beta = 1
	}
	d.mu.Lock()
	pl := d.plans[key]
	d.mu.Unlock()
	if pl == nil {
		opt := dispatch.GPUOptions(name)
		opt.KeepLayout, opt.Align = true, key.align
		kept := key.problem
		var err error
		if pl, err = dispatch.PlanGPU(d.backend, &kept, opt); err != nil {
			return nil, err
		}
		d.mu.Lock()
		if len(d.plans) >= mostPlans {
			clear(d.plans)
		}
		d.plans[key] = pl
		d.mu.Unlock()
	}
	if p.Alpha == key.problem.Alpha && p.Beta == key.problem.Beta {
		return pl, nil
	}
	return pl.Scaled(p.Alpha, p.Beta), nil
}

// align is the largest power of two, up to what all memory of a device has, that an
// address is a multiple of.
func align(p device.Ptr) int { return 1 << bits.TrailingZeros64(uint64(p)|256) }
