// Package call computes products of operands whose element types are known at run time. It is below
// package tilework, which gives operands and options types of Go, and below the command, whose
// matrices are read from files.
//
// A [Call] makes a [gemm.Problem] of its operands and options. Package dispatch computes it on the
// host or on a GPU and back. Other matrices are stored and multiplied at a [Place]: by package
// resident on one GPU or several, and by package team on all ranks.
package call

import (
	"context"
	"fmt"
	"sync"

	"tilework/dtype"
	"tilework/internal/dispatch"
	"tilework/internal/gemm"
)

// Call is the state of one product: C ← α·A·B + β·C and the options. Calls are pooled: options take
// the address of a call, so on the stack it would escape each time.
//
// The caller of [New] gives options and operands, calls Start and then one of the other methods,
// and in the end Release.
type Call struct {
	Options
	// Layouts and Memory are those of A, B and C on the host. Fields are written in place: a small
	// product waits for a struct that is copied right after its fields were written.
	Layouts [gemm.C + 1]gemm.Layout
	Memory  [gemm.C + 1][]byte

	product *planned // one of plans, also before Start
	plans   [8]planned
	members []dispatch.Member // the products of a batch
	shared  []*planned        // the plans of members, each for equal layouts
}

// planned is a product of an earlier call, or of the current one. Planning a product of 64³ takes a
// thirtieth of its time, so a call keeps the plans of small products for calls with equal operands.
type planned struct {
	// kept reports whether the product is planned for all calls with these factors and layouts, as
	// the caller gives them, these settings and no other options.
	kept        bool
	alpha, beta complex128
	layouts     [gemm.C + 1]gemm.Layout
	settings    Settings
	dispatch.Job
}

var calls = sync.Pool{New: func() any {
	k := new(Call)
	k.product = &k.plans[0]
	return k
}}

// New returns a call without operands and options.
func New() *Call { return calls.Get().(*Call) }

// Product returns operand A, B or C, to be set unless it is a valid matrix on the host; see
// [Call.GiveOther].
func (k *Call) Product(o gemm.Operand) *Operand { return &k.operands[o] }

// GiveOther gives A, B or C that is no valid matrix on the host. The caller has set it, and its
// layout in Layouts.
func (k *Call) GiveOther(o gemm.Operand) {
	k.operands[o].Layout = k.Layouts[o]
	k.given |= 1 << o
}

// GiveMatrix gives a matrix or a vector on the host. The memory of C may be given later; see
// [Call.Assemble].
func (k *Call) GiveMatrix(o gemm.Operand, l gemm.Layout, host []byte) {
	if o <= gemm.C {
		k.Layouts[o], k.Memory[o] = l, host
		return
	}
	x := k.Give(o)
	x.Layout, x.Host = l, host
}

// Start sets the factors, once the operands and options are given. It takes the plan of an equal
// product if that was kept, and may replace the plan of another one, which hash selects.
func (k *Call) Start(alpha, beta complex128) {
	k.alpha, k.beta = alpha, beta
	a, b := &k.Layouts[gemm.A], &k.Layouts[gemm.B]
	const odd = 0x9e3779b97f4a7c15
	hash := ((uint64(a.Rows)*odd^uint64(a.Cols))*odd ^ uint64(b.Cols)) * odd
	p := &k.plans[hash>>32%uint64(len(k.plans))]
	k.product = p
	if p.kept = p.kept && p.alpha == alpha && p.beta == beta && p.layouts == k.Layouts &&
		p.settings == k.Settings && k.isPlain() && p.Holds(); !p.kept {
		p.Reset()
		k.request(&p.Request)
	}
}

// Kept reports whether the call has the plan of an earlier one.
func (k *Call) Kept() bool { return k.product.kept }

// Release returns the call to the pool, without its references to the caller's memory.
func (k *Call) Release() {
	k.reset()
	if len(k.shared) > 0 {
		k.resetBatch()
	}
	if k.Memory = [gemm.C + 1][]byte{}; k.product.kept {
		setMemory(&k.product.Buffers, &k.Memory, false)
	} else {
		k.product.Reset()
	}
	calls.Put(k)
}

// Run computes the product.
func (k *Call) Run(ctx context.Context) error {
	if k.product.kept && k.err == nil {
		setMemory(&k.product.Buffers, &k.Memory, k.Layouts[gemm.C].Trans)
		return k.product.Run(ctx)
	}
	err := k.check()
	if p := k.place(); p != nil {
		return p.run(ctx, k, err)
	}
	return k.runOnHost(ctx, err)
}

// Describe plans the product and describes the plan. Of a batch on the host it describes the first
// product, and of groups the product of all rows.
func (k *Call) Describe(ctx context.Context) (Description, error) {
	err := k.check()
	if p := k.place(); p != nil {
		return p.describe(ctx, k, err)
	}
	return k.describeOnHost(ctx, err)
}

// grouped reports whether the product is that of groups of rows.
func (k *Call) grouped() bool { return k.given.has(gemm.GroupEnds) }

// batched reports whether the product is a batch of products.
func (k *Call) batched() bool { return k.operands[gemm.C].Kind == Batch }

// check returns the first error of the operands and options, and refuses operands that cannot be
// in one product.
func (k *Call) check() error {
	if k.given == 0 || k.err != nil {
		return k.err
	}
	plain := !k.grouped() // all operands are matrices on the host
	for s := k.given; s != 0; s &= s - 1 {
		o := s.first()
		x := &k.operands[o]
		if x.Err != nil {
			return x.Err
		}
		onHost := x.Kind == Single && x.Memory == nil
		if onHost && o.IsVector() {
			if err := k.straighten(o); err != nil {
				return err
			}
		}
		plain = plain && onHost
	}
	if plain {
		return nil
	}
	for s := k.given | matrices; s != 0; s &= s - 1 {
		o := s.first()
		if err := k.checkPlace(o); err != nil {
			return err
		}
		if err := k.checkKind(o); err != nil {
			return err
		}
	}
	return k.checkCounts()
}

// straighten makes vector o on the host one stored row. The error is ErrOverlap if C shares memory
// with the vector.
func (k *Call) straighten(o gemm.Operand) error {
	x, c := &k.operands[o], &k.operands[gemm.C]
	results := c.Batch
	if c.Kind == Single {
		results = []Matrix{{k.Layouts[gemm.C], k.Memory[gemm.C]}}
	}
	for i := range results {
		if c := &results[i]; c.Host != nil && gemm.Overlap(c.Layout, c.Host, x.Layout, x.Host) {
			return fmt.Errorf("%w: C shares memory with %s", gemm.ErrOverlap, o.Phrase())
		}
	}
	x.straighten()
	return nil
}

// checkKind refuses a batch or a packed matrix where the product needs a plain matrix.
func (k *Call) checkKind(o gemm.Operand) error {
	want := Single
	switch {
	case o == gemm.B && k.grouped(), o <= gemm.C && k.batched() && !k.grouped():
		want = Batch
	case o == gemm.B && k.operands[o].Kind == Packed:
		want = Packed
	}
	if have := k.operands[o].Kind; have != want {
		of := "a product"
		switch {
		case k.grouped():
			of = "a product of groups of rows"
		case k.batched():
			of = "a batch of products"
		}
		return fmt.Errorf("%w: %s as a %v in %s, want a %v", gemm.ErrUnsupported, o.Phrase(), have, of, want)
	}
	return nil
}

// checkCounts refuses batches of different lengths, and ends of groups that are not a vector with
// one for each matrix of B.
func (k *Call) checkCounts() error {
	a, b, c := k.operands[gemm.A].Count, k.operands[gemm.B].Count, k.operands[gemm.C].Count
	switch ends := k.operands[gemm.GroupEnds].Layout; {
	case k.grouped() && !ends.IsVector():
		return fmt.Errorf("%w: %s of %d×%d, want one row or one column", gemm.ErrShape, gemm.GroupEnds.Phrase(),
			ends.OpRows(), ends.OpCols())
	case k.grouped() && ends.Rows*ends.Cols != b:
		return fmt.Errorf("%w: groups of rows: %d, matrices of B: %d, want as many", gemm.ErrShape, ends.Rows*ends.Cols, b)
	case !k.grouped() && (a != c || b != c):
		return fmt.Errorf("%w: a batch of %d A, %d B and %d C", gemm.ErrShape, a, b, c)
	}
	return nil
}

// groupEnds returns the ends of the groups of rows, which are on the host.
func (k *Call) groupEnds() ([]int32, error) {
	x, rows := &k.operands[gemm.GroupEnds], k.Layouts[gemm.A].OpRows()
	ends := dtype.View[int32](x.Host)
	start := int32(0)
	for g, end := range ends {
		if end < start || int(end) > rows {
			return nil, fmt.Errorf("%w: group %d ends before row %d, want %d to %d, the rows of A", gemm.ErrShape, g, end, start,
				rows)
		}
		start = end
	}
	return ends, nil
}
