package tilework

import (
	"fmt"
	"sync"

	"tilework/dtype"
	"tilework/internal/dispatch"
	"tilework/internal/gemm"
	"tilework/internal/resident"
	"tilework/internal/team"
)

// call is the state of one product. Calls are pooled: options take the address of the config, so on
// the stack it would escape on every call.
type call struct {
	config
	layouts [gemm.C + 1]gemm.Layout // of A, B and C; of a device batch, of its first matrices
	memory  [gemm.C + 1][]byte      // their memory if they are matrices on the host
	product *planned                // with the factors and the options; one of plans
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
	settings    settings
	dispatch.Product
}

var calls = sync.Pool{New: func() any { return new(call) }}

// newCall returns the call for a product. Release it in the end.
func newCall[T, U, R dtype.Element](alpha float64, a Operand[T], b Operand[U], beta float64, c Operand[R],
	opts []Option) *call {
	k := calls.Get().(*call)
	k.apply(opts)
	giveProduct(&k.config, gemm.A, a, &k.layouts[gemm.A], &k.memory[gemm.A])
	giveProduct(&k.config, gemm.B, b, &k.layouts[gemm.B], &k.memory[gemm.B])
	giveProduct(&k.config, gemm.C, c, &k.layouts[gemm.C], &k.memory[gemm.C])
	k.selectProduct(complex(alpha, 0), complex(beta, 0))
	return k
}

// selectProduct sets the product of the call, with the plan of an equal one if that was kept. It
// may replace the plan of another one, which hash selects.
func (k *call) selectProduct(alpha, beta complex128) {
	a, b := &k.layouts[gemm.A], &k.layouts[gemm.B]
	const odd = 0x9e3779b97f4a7c15
	hash := ((uint64(a.Rows)*odd^uint64(a.Cols))*odd ^ uint64(b.Cols)) * odd
	p := &k.plans[hash>>32%uint64(len(k.plans))]
	k.product = p
	if p.kept = p.kept && p.alpha == alpha && p.beta == beta && p.layouts == k.layouts &&
		p.settings == k.settings && k.isPlain() && p.Holds(); !p.kept {
		p.Reset()
		k.request(&p.Request)
		p.alpha, p.beta = alpha, beta
		p.Problem.Alpha, p.Problem.Beta = alpha, beta
		copy(p.Problem.Layouts[:], k.layouts[:])
	}
	p.setMemory(k.memory[gemm.A], k.memory[gemm.B], k.memory[gemm.C])
}

func (p *planned) setMemory(a, b, c []byte) {
	p.Buffers[gemm.A], p.Buffers[gemm.B], p.Buffers[gemm.C] = a, b, c
}

// release returns the call to the pool, without its references to the caller's memory.
func (k *call) release() {
	k.reset()
	if len(k.shared) > 0 {
		k.resetBatch()
	}
	if k.memory = [gemm.C + 1][]byte{}; k.product.kept {
		k.product.setMemory(nil, nil, nil)
	} else {
		k.product.Reset()
	}
	calls.Put(k)
}

// device returns the device that holds C, or nil if C is on the host.
func (k *call) device() *resident.Device {
	if m := k.arguments[gemm.C].memory; m != nil {
		return m.Device()
	}
	return nil
}

// team returns the ranks that store C, or nil if C is on a device of this process or on the host.
func (k *call) team() *team.Team {
	if m := k.arguments[gemm.C].team; m != nil {
		return m.Team()
	}
	return nil
}

// grouped reports whether the product is that of groups of rows.
func (k *call) grouped() bool { return k.given.has(gemm.GroupEnds) }

// batched reports whether the product is a batch of products.
func (k *call) batched() bool { return k.arguments[gemm.C].kind == kindBatch }

// check returns the first error of the operands and options, and refuses operands that cannot be
// in one product.
func (k *call) check() error {
	if k.given == 0 || k.err != nil {
		return k.err
	}
	plain := !k.grouped() // all operands are matrices on the host
	for s := k.given; s != 0; s &= s - 1 {
		o := s.first()
		a := &k.arguments[o]
		if a.err != nil {
			return a.err
		}
		onHost := a.kind == kindMatrix && a.memory == nil && a.team == nil
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
	for s := k.given | product; s != 0; s &= s - 1 {
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
func (k *call) straighten(o gemm.Operand) error {
	a, c := &k.arguments[o], &k.arguments[gemm.C]
	results := c.batch
	if c.kind == kindMatrix {
		results = []hostMatrix{{layout: k.layouts[gemm.C], host: k.memory[gemm.C]}}
	}
	for i := range results {
		if c := &results[i]; gemm.Overlap(c.layout, c.host, a.layout, a.host) {
			return fmt.Errorf("%w: C shares memory with %s", ErrOverlap, o.Phrase())
		}
	}
	a.straighten()
	return nil
}

// checkPlace refuses an operand that is not on the device of C, or on the host as C is. Options may
// have operands on the host for a product on a device, and vectors for one of several ranks.
func (k *call) checkPlace(o gemm.Operand) error {
	on, ofTeam := k.arguments[o].memory, k.arguments[o].team != nil
	switch d, t := k.device(), k.team(); {
	case ofTeam && t == nil:
		return fmt.Errorf("%w: %s of several ranks and C of one: make both on one device", ErrUnsupported, o.Phrase())
	case t != nil && !ofTeam && (o <= gemm.C || on != nil):
		return fmt.Errorf("%w: C of several ranks and %s of one: make both on one device", ErrUnsupported, o.Phrase())
	case on == nil && d != nil && o <= gemm.C:
		return fmt.Errorf("%w: %s on the host and C on device %v: upload %[2]s or download C", ErrUnsupported, o.Phrase(), d)
	case on != nil && d == nil:
		return fmt.Errorf("%w: %s on device %v and C on the host: download %[2]s or upload C", ErrUnsupported, o.Phrase(),
			on.Device())
	}
	return nil
}

// checkKind refuses a batch or a packed matrix where the product needs a plain matrix.
func (k *call) checkKind(o gemm.Operand) error {
	want := kindMatrix
	switch {
	case o == gemm.B && k.grouped(), o <= gemm.C && k.batched() && !k.grouped():
		want = kindBatch
	case o == gemm.B && k.arguments[o].kind == kindPacked:
		want = kindPacked
	}
	if have := k.arguments[o].kind; have != want {
		of := "a product"
		switch {
		case k.grouped():
			of = "a product of groups of rows"
		case k.batched():
			of = "a batch of products"
		}
		return fmt.Errorf("%w: %s as a %s in %s, want a %s", ErrUnsupported, o.Phrase(), have.name(), of, want.name())
	}
	return nil
}

// checkCounts refuses batches of different lengths, and ends of groups that are not a vector with
// one for each matrix of B.
func (k *call) checkCounts() error {
	a, b, c := k.arguments[gemm.A].count, k.arguments[gemm.B].count, k.arguments[gemm.C].count
	switch ends := k.arguments[gemm.GroupEnds].layout; {
	case k.grouped() && !ends.IsVector():
		return fmt.Errorf("%w: %s of %d×%d, want one row or one column", ErrShape, gemm.GroupEnds.Phrase(), ends.OpRows(),
			ends.OpCols())
	case k.grouped() && ends.Rows*ends.Cols != b:
		return fmt.Errorf("%w: groups of rows: %d, matrices of B: %d, want as many", ErrShape, ends.Rows*ends.Cols, b)
	case !k.grouped() && (a != c || b != c):
		return fmt.Errorf("%w: a batch of %d A, %d B and %d C", ErrShape, a, b, c)
	}
	return nil
}

// groupEnds returns the ends of the groups of rows, which are on the host.
func (k *call) groupEnds() ([]int32, error) {
	a, rows := &k.arguments[gemm.GroupEnds], k.product.Problem.A().OpRows()
	ends := dtype.View[int32](a.host)
	start := int32(0)
	for g, end := range ends {
		if end < start || int(end) > rows {
			return nil, fmt.Errorf("%w: group %d ends before row %d, want %d to %d, the rows of A", ErrShape, g, end, start,
				rows)
		}
		start = end
	}
	return ends, nil
}
