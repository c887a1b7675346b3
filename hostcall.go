package tilework

import (
	"context"
	"fmt"

	"tilework/internal/dispatch"
	"tilework/internal/gemm"
)

// complete completes a problem with A, B, C and the factors. swapped reports whether it is that of
// the transposes.
func (c *config) complete(problem *gemm.Problem) (swapped bool, err error) {
	problem.Epilogue = c.epilogue
	swapped, err = problem.Complete()
	if err == nil && c.precision != gemm.Native {
		*problem, err = problem.WithPrecision(c.precision)
	}
	if err == nil && c.rowInvariant {
		*problem = problem.WithRowInvariance(swapped)
	}
	if err == nil && c.given != 0 {
		err = c.checkOperands(problem, swapped)
	}
	return swapped, err
}

// plan completes the product p of matrices on the host and decides how to compute it. The caller
// has set A, B, C and the factors.
func (c *config) plan(p *dispatch.Product) error {
	memory := &p.Buffers
	swapped, err := c.complete(&p.Problem)
	if err != nil {
		return err
	}
	if swapped {
		memory[gemm.A], memory[gemm.B] = memory[gemm.B], memory[gemm.A]
	}
	for s := c.given &^ product; s != 0; s &= s - 1 {
		o := s.first()
		if swapped {
			memory[o.Transposed()] = c.arguments[o].host
		} else {
			memory[o] = c.arguments[o].host
		}
	}
	switch {
	case swapped && p.Packed != nil:
		return fmt.Errorf("%w: a transposed C with a packed B", ErrUnsupported)
	case c.tile != nil:
		l := *p.Problem.C()
		if swapped {
			l = l.T()
		}
		if p.Tile, err = c.tile(l, memory[gemm.C], swapped); err != nil {
			return err
		}
	}
	return p.Decide()
}

// planProduct plans a single product.
func (k *call) planProduct() error {
	p := k.product
	if p.kept {
		if k.layouts[gemm.C].Trans {
			p.Buffers[gemm.A], p.Buffers[gemm.B] = p.Buffers[gemm.B], p.Buffers[gemm.A]
		}
		return nil
	}
	p.Packed = k.arguments[gemm.B].packed
	if err := k.plan(&p.Product); err != nil {
		return err
	}
	if p.kept = k.isPlain() && p.IsRepeatable(); p.kept {
		p.layouts, p.settings = k.layouts, k.settings
	}
	return nil
}

// planBatch plans the products of a batch: those with equal layouts by one plan.
func (k *call) planBatch() ([]dispatch.Member, error) {
	a, b, c := k.arguments[gemm.A].batch, k.arguments[gemm.B].batch, k.arguments[gemm.C].batch
	for i := range c {
		p, err := k.planMember(&a[i], &b[i], &c[i])
		if err != nil {
			return nil, fmt.Errorf("product %d of the batch: %w", i, err)
		}
		m := dispatch.Member{Product: &p.Product, A: a[i].host, B: b[i].host, C: c[i].host}
		if c[i].layout.Trans {
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
func (k *call) planMember(a, b, c *hostMatrix) (*planned, error) {
	layouts := [gemm.C + 1]gemm.Layout{gemm.A: a.layout, gemm.B: b.layout, gemm.C: c.layout}
	if !k.verify && k.tile == nil {
		for n := len(k.shared) - 1; n >= max(0, len(k.shared)-maxSearched); n-- {
			if p := k.shared[n]; p.layouts == layouts {
				return p, nil
			}
		}
	}
	p := k.newShared()
	p.Request, p.layouts = k.product.Request, layouts
	for o, x := range [...]*hostMatrix{gemm.A: a, gemm.B: b, gemm.C: c} {
		p.Problem.Layouts[o], p.Buffers[o] = x.layout, x.host
	}
	return p, k.plan(&p.Product)
}

// newShared returns an empty plan for members of a batch, if possible one of an earlier batch.
func (k *call) newShared() *planned {
	n := len(k.shared)
	if n == cap(k.shared) || k.shared[:n+1][n] == nil {
		k.shared = append(k.shared, new(planned))
	} else {
		k.shared = k.shared[:n+1]
	}
	return k.shared[n]
}

// resetBatch drops the plans and the memory of a batch. It keeps some memory for the next one.
func (k *call) resetBatch() {
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

func (k *call) runBatch(ctx context.Context) error {
	batch, err := k.planBatch()
	if err != nil {
		return err
	}
	return dispatch.RunMembers(ctx, batch)
}

// planGroups plans the product of all groups of rows as if they had one B, and returns their ends.
func (k *call) planGroups() (*dispatch.Product, []int32, error) {
	ends, err := k.groupEnds()
	switch {
	case err != nil:
		return nil, nil, err
	case k.tile != nil:
		return nil, nil, fmt.Errorf("%w: a function for the tiles of groups", ErrUnsupported)
	case k.given.has(gemm.Up) || k.given.has(gemm.ScaleA):
		return nil, nil, fmt.Errorf("%w: a gated product or block scales with groups of rows", ErrUnsupported)
	case len(ends) == 0:
		return nil, nil, nil
	}
	of, b := &k.product.Problem, k.arguments[gemm.B].batch
	all, swapped, err := gemm.New(of.Alpha, *of.A(), b[0].layout, of.Beta, *of.C(), k.epilogue)
	if err == nil {
		err = k.checkOperands(&all, swapped)
	}
	if err != nil {
		return nil, nil, err
	}
	whole := new(dispatch.Product)
	return whole, ends, k.planGroup(whole, 0, int(ends[len(ends)-1]), &b[0])
}

// planGroup plans the product of rows start to end of A and C.
func (k *call) planGroup(p *dispatch.Product, start, end int, b *hostMatrix) error {
	c := k.config // with the rows of the group
	c.given &^= 1 << gemm.GroupEnds
	for s := c.given &^ product; s != 0; s &= s - 1 {
		o := s.first()
		switch a := &c.arguments[o]; {
		case c.epilogue.VectorDim(o) == gemm.BiasRow:
			a.layout.Trans = true
			a.layout, a.host = rowsOf(a.layout, a.host, start, end)
		case o == gemm.Residual:
			a.layout, a.host = rowsOf(a.layout, a.host, start, end)
		}
	}
	whole := k.product
	p.Request = whole.Request
	for _, o := range []gemm.Operand{gemm.A, gemm.C} {
		p.Problem.Layouts[o], p.Buffers[o] = rowsOf(whole.Problem.Layouts[o], whole.Buffers[o], start, end)
	}
	p.Problem.Layouts[gemm.B], p.Buffers[gemm.B] = b.layout, b.host
	return c.plan(p)
}

// rowsOf returns rows start to end of a matrix.
func rowsOf(l gemm.Layout, memory []byte, start, end int) (gemm.Layout, []byte) {
	part, offset := view{shape{layout: l}}.sub(start, 0, end-start, l.OpCols())
	return part.layout, memory[l.Type.Bytes(offset):][:part.layout.Bytes()]
}

// runGroups computes the groups in one launch where the plan's GPU has a kernel for that, and as a
// batch elsewhere.
func (k *call) runGroups(ctx context.Context) error {
	whole, ends, err := k.planGroups()
	if err != nil || len(ends) == 0 {
		return firstErr(err, ctx.Err())
	}
	b := k.arguments[gemm.B].batch
	if memory, alike := sameLayout(b); alike && !k.product.Problem.C().Trans {
		if handled, err := dispatch.RunGroups(ctx, whole, memory, ends); handled {
			return err
		}
	}
	k.product.Request.Device = whole.Device()
	groups := make([]dispatch.Product, len(ends))
	start := 0
	for g := range groups {
		if err := k.planGroup(&groups[g], start, int(ends[g]), &b[g]); err != nil {
			return fmt.Errorf("group %d: %w", g, err)
		}
		start = int(ends[g])
	}
	return dispatch.RunBatch(ctx, groups)
}

// sameLayout returns the memory of matrices, and whether all have the same layout.
func sameLayout(all []hostMatrix) (memory [][]byte, alike bool) {
	for i := range all {
		if all[i].layout != all[0].layout {
			return nil, false
		}
		memory = append(memory, all[i].host)
	}
	return memory, true
}
