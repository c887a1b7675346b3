package call

import (
	"cmp"
	"context"
	"fmt"

	"tilework/internal/dispatch"
	"tilework/internal/gemm"
)

// runOnHost computes the product of matrices on the host, there or on a GPU and back, unless its
// operands are invalid.
func (k *Call) runOnHost(ctx context.Context, invalid error) error {
	switch {
	case invalid != nil:
		return invalid
	case k.grouped():
		return k.runGroups(ctx)
	case k.batched():
		return k.runBatch(ctx)
	}
	if err := k.planProduct(ctx); err != nil {
		return err
	}
	return k.product.Run(ctx)
}

func (k *Call) describeOnHost(ctx context.Context, invalid error) (Description, error) {
	switch err := cmp.Or(invalid, ctx.Err()); {
	case err != nil:
		return Description{}, err
	case k.grouped():
		whole, ends, err := k.planGroups(ctx)
		if err == nil && len(ends) == 0 {
			err = fmt.Errorf("%w: a plan of no groups", gemm.ErrShape)
		}
		return describeHost(whole, err)
	case k.batched():
		return k.describeBatch(ctx)
	}
	err := k.planProduct(ctx)
	return describeHost(&k.product.Job, err)
}

func describeHost(p *dispatch.Job, err error) (Description, error) {
	if err != nil {
		return Description{}, err
	}
	return Description{Problem: p.Problem, Device: p.Device().String(), Kernel: p.Kernel(), Detail: p.Detail(),
		Why: p.Why(), Threads: p.Threads(), Compile: p.CompileTime()}, nil
}

func (k *Call) describeBatch(ctx context.Context) (Description, error) {
	batch, err := k.planBatch(ctx)
	if err == nil && len(batch) == 0 {
		err = fmt.Errorf("%w: a plan of an empty batch", gemm.ErrShape)
	}
	if err != nil {
		return Description{}, err
	}
	d, err := describeHost(batch[0].Product, nil)
	if division := dispatch.Division(batch); division != "" {
		d.Detail += "; " + division
	}
	return d, err
}

// Assemble returns the product of matrices on the host, not planned yet: its problem and its
// buffers. The caller may give more operands and assemble it again. It sets the memory of C in the
// buffers if that was not given.
func (k *Call) Assemble() (*dispatch.Job, error) {
	if err := k.check(); err != nil {
		return nil, err
	}
	p := k.product
	if p.kept {
		p.Job.Reset()
		k.request(&p.Request)
		p.kept = false
	}
	p.Packed = k.operands[gemm.B].Packed
	return &p.Job, k.assemble(&p.Job, &k.Layouts, &k.Memory)
}

// assemble sets the problem and the buffers of p, the product of matrices A, B and C on the host.
func (x *Options) assemble(p *dispatch.Job, layouts *[gemm.C + 1]gemm.Layout, memory *[gemm.C + 1][]byte) error {
	swapped, err := x.complete(&p.Problem, layouts)
	if err != nil {
		return err
	}
	setMemory(&p.Buffers, memory, swapped)
	for s := x.given &^ matrices; s != 0; s &= s - 1 {
		o := s.first()
		at := o
		if swapped {
			at = o.Transposed()
		}
		p.Buffers[at] = x.operands[o].Host
	}
	switch {
	case swapped && p.Packed != nil:
		return fmt.Errorf("%w: a transposed C with a packed B", gemm.ErrUnsupported)
	case x.Tile != nil:
		p.Tile, err = x.Tile(layouts[gemm.C], memory[gemm.C], swapped)
	}
	return err
}

// setMemory sets the memory of A, B and C, for the product of the transposes if swapped is set.
func setMemory(b *gemm.Buffers, memory *[gemm.C + 1][]byte, swapped bool) {
	b[gemm.A], b[gemm.B], b[gemm.C] = memory[gemm.A], memory[gemm.B], memory[gemm.C]
	if swapped {
		b[gemm.A], b[gemm.B] = b[gemm.B], b[gemm.A]
	}
}

// plan plans the product p of matrices on the host.
func (x *Options) plan(ctx context.Context, p *dispatch.Job, layouts *[gemm.C + 1]gemm.Layout,
	memory *[gemm.C + 1][]byte) error {
	if err := x.assemble(p, layouts, memory); err != nil {
		return err
	}
	return p.Decide(ctx)
}

// planProduct plans a single product.
func (k *Call) planProduct(ctx context.Context) error {
	p := k.product
	if p.kept {
		setMemory(&p.Buffers, &k.Memory, k.Layouts[gemm.C].Trans)
		return nil
	}
	p.Packed = k.operands[gemm.B].Packed
	if err := k.plan(ctx, &p.Job, &k.Layouts, &k.Memory); err != nil {
		return err
	}
	if p.kept = k.isPlain() && p.IsRepeatable(); p.kept {
		p.alpha, p.beta, p.layouts, p.settings = k.alpha, k.beta, k.Layouts, k.Settings
	}
	return nil
}

// planBatch plans the products of a batch: those with equal layouts by one plan.
func (k *Call) planBatch(ctx context.Context) ([]dispatch.Member, error) {
	a, b, c := k.operands[gemm.A].Batch, k.operands[gemm.B].Batch, k.operands[gemm.C].Batch
	for i := range c {
		p, err := k.planMember(ctx, &a[i], &b[i], &c[i])
		if err != nil {
			return nil, fmt.Errorf("product %d of the batch: %w", i, err)
		}
		m := dispatch.Member{Product: &p.Job, A: a[i].Host, B: b[i].Host, C: c[i].Host}
		if c[i].Layout.Trans {
			m.A, m.B = m.B, m.A
		}
		k.members = append(k.members, m)
	}
	return k.members, nil
}

// maxSearched is the number of plans among which one for a member of a batch is searched.
const maxSearched = 8

// planMember returns a plan for a product of a batch: an earlier one with equal layouts, or a new
// one if there is none. A product that is verified or calls a function for its tiles has its own.
func (k *Call) planMember(ctx context.Context, a, b, c *Matrix) (*planned, error) {
	layouts := [gemm.C + 1]gemm.Layout{gemm.A: a.Layout, gemm.B: b.Layout, gemm.C: c.Layout}
	if !k.Verify && k.Tile == nil {
		for n := len(k.shared) - 1; n >= max(0, len(k.shared)-maxSearched); n-- {
			if p := k.shared[n]; p.layouts == layouts {
				return p, nil
			}
		}
	}
	p := k.newShared()
	p.Request, p.layouts = k.product.Request, layouts
	return p, k.plan(ctx, &p.Job, &layouts, &[gemm.C + 1][]byte{gemm.A: a.Host, gemm.B: b.Host, gemm.C: c.Host})
}

// newShared returns an empty plan for members of a batch, if possible one of an earlier batch.
func (k *Call) newShared() *planned {
	n := len(k.shared)
	if n == cap(k.shared) || k.shared[:n+1][n] == nil {
		k.shared = append(k.shared, new(planned))
	} else {
		k.shared = k.shared[:n+1]
	}
	return k.shared[n]
}

// resetBatch drops the plans and the memory of a batch. It keeps some memory for the next one.
func (k *Call) resetBatch() {
	for _, p := range k.shared {
		p.Reset()
	}
	clear(k.members)
	k.shared, k.members = k.shared[:0], k.members[:0]
	if cap(k.members) > maxKept {
		k.members = nil
	}
	if cap(k.shared) > len(k.plans) {
		k.shared = nil
	}
}

func (k *Call) runBatch(ctx context.Context) error {
	batch, err := k.planBatch(ctx)
	if err != nil {
		return err
	}
	return dispatch.RunMembers(ctx, batch)
}

// planGroups plans the product of all groups of rows as if they had one B, and returns their ends.
func (k *Call) planGroups(ctx context.Context) (*dispatch.Job, []int32, error) {
	ends, err := k.groupEnds()
	switch {
	case err != nil:
		return nil, nil, err
	case k.Tile != nil:
		return nil, nil, fmt.Errorf("%w: a function for the tiles of groups", gemm.ErrUnsupported)
	case k.given.has(gemm.Up) || k.given.has(gemm.ScaleA):
		return nil, nil, fmt.Errorf("%w: a gated product or block scales with groups of rows", gemm.ErrUnsupported)
	case len(ends) == 0:
		return nil, nil, nil
	}
	b := &k.operands[gemm.B].Batch[0]
	all := k.Layouts
	all[gemm.B] = b.Layout
	if _, err := k.complete(new(gemm.Problem), &all); err != nil {
		return nil, nil, err
	}
	whole := new(dispatch.Job)
	return whole, ends, k.planGroup(ctx, whole, 0, int(ends[len(ends)-1]), b)
}

// planGroup plans the product of rows start to end of A and C.
func (k *Call) planGroup(ctx context.Context, p *dispatch.Job, start, end int, b *Matrix) error {
	x := k.Options // with the rows of the group
	x.given &^= 1 << gemm.GroupEnds
	for s := x.given &^ matrices; s != 0; s &= s - 1 {
		o := s.first()
		switch v := &x.operands[o]; {
		case x.Epilogue.VectorDim(o) == gemm.BiasRow:
			v.Layout.Trans = true
			v.Layout, v.Host = rowsOf(v.Layout, v.Host, start, end)
		case o == gemm.Residual:
			v.Layout, v.Host = rowsOf(v.Layout, v.Host, start, end)
		}
	}
	layouts, memory := k.Layouts, k.Memory
	for _, o := range []gemm.Operand{gemm.A, gemm.C} {
		layouts[o], memory[o] = rowsOf(layouts[o], memory[o], start, end)
	}
	layouts[gemm.B], memory[gemm.B] = b.Layout, b.Host
	p.Request = k.product.Request
	return x.plan(ctx, p, &layouts, &memory)
}

// rowsOf returns rows start to end of a matrix.
func rowsOf(l gemm.Layout, memory []byte, start, end int) (gemm.Layout, []byte) {
	part, offset, _ := l.Sub(start, 0, end-start, l.OpCols()) // the matrix has these rows
	return part, memory[l.Type.Bytes(offset):][:part.Bytes()]
}

// runGroups computes the groups in one launch where the plan's GPU has a kernel for that, and as a
// batch elsewhere.
func (k *Call) runGroups(ctx context.Context) error {
	whole, ends, err := k.planGroups(ctx)
	if err != nil || len(ends) == 0 {
		return cmp.Or(err, ctx.Err())
	}
	b := k.operands[gemm.B].Batch
	if memory, alike := sameLayout(b); alike && !k.Layouts[gemm.C].Trans {
		if handled, err := dispatch.RunGroups(ctx, whole, memory, ends); handled {
			return err
		}
	}
	k.product.Request.Device = whole.Device()
	groups := make([]dispatch.Job, len(ends))
	start := 0
	for g := range groups {
		if err := k.planGroup(ctx, &groups[g], start, int(ends[g]), &b[g]); err != nil {
			return fmt.Errorf("group %d: %w", g, err)
		}
		start = int(ends[g])
	}
	return dispatch.RunBatch(ctx, groups)
}

// sameLayout returns the memory of matrices, and whether all have the same layout.
func sameLayout(all []Matrix) (memory [][]byte, alike bool) {
	for i := range all {
		if all[i].Layout != all[0].Layout {
			return nil, false
		}
		memory = append(memory, all[i].Host)
	}
	return memory, true
}
