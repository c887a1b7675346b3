package gemmtest

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"

	"tilework/dtype"
	"tilework/internal/gemm"
	"tilework/internal/ref"
)

// errSkipped skips a case that is outside the declared limits.
var errSkipped = errors.New("not declared")

// trial is the state of one case.
type trial struct {
	ctx  context.Context
	impl *Implementation
	opt  *Options
	rng  *rand.Rand
	n    int // case number
	turn int // determines the types and transposes of the product; consecutive numbers, from a random one on

	drawn    form   // of the last drawn product
	what     string // description of the product for failure messages
	measured []measurement
	err      error
}

// measurement holds the errors of the result of a product.
type measurement struct {
	problem    *Problem
	comparison ref.Comparison
}

// choose returns a random element of values.
func choose[T any](t *trial, values ...T) T { return values[t.rng.IntN(len(values))] }

// kind restricts the products of a check. The zero value allows any product without an epilogue.
type kind struct {
	floats   bool      // only floating-point arithmetic
	integers bool      // only integer arithmetic
	scales   bool      // with block scales
	zeros    bool      // only int8 and uint8, also one of each
	nonempty bool      // no size is zero
	large    bool      // as large as Volume allows
	alpha    []float64 // values to choose from; nil selects small integers
	beta     []float64 // likewise
	// epilogue draws the epilogue. nil means none.
	epilogue func(t *trial, p Pair) Epilogue
	// form is the name of the forms of this kind with Options.FewForms. Kinds of the same name have
	// the same forms.
	form string
}

// Names of forms.
const (
	plainForm    = "" // no epilogue, no block scales, not a batch
	epilogueForm = "epilogue"
	scalesForm   = "scales"
	zerosForm    = "zeros"
	batchForm    = "batch"
)

// draws is the number of attempts to draw a product within the declared limits before the case is
// skipped.
const draws = 100

// product draws a supported product with matrices of poison.
func (t *trial) product(k kind) (*operands, error) {
	pairs := t.pairs(k)
	if len(pairs) == 0 {
		return nil, errSkipped
	}
	forms := t.forms(k, pairs)
	if t.opt.FewForms {
		forms = t.fewForms(k, t.opt.fewPairs(pairs))
	}
	for f := range forms {
		if p := t.draw(k, f); t.impl.supports(&p) {
			t.what = describe(&p)
			return newOperands(t.rng, p), nil
		}
	}
	return nil, errSkipped
}

// pairs returns the declared pairs that k allows.
func (t *trial) pairs(k kind) (pairs []Pair) {
	for _, p := range t.impl.pairs() {
		integer, short := p.integer(), p.In == dtype.F8E4M3 || p.In == dtype.F8E5M2
		if !(k.floats && integer || k.integers && !integer || k.scales && !short || k.zeros && p.In.Signed() != dtype.I8 ||
			p.In == dtype.U8 && (k.form == batchForm || k.form == epilogueForm && t.opt.FewForms)) { // it has no batches
			pairs = append(pairs, p)
		}
	}
	if k.zeros && t.opt.FewForms && len(pairs) > 0 {
		pairs = []Pair{choose(&trial{rng: t.opt.random("pair with zero points", 0)}, pairs...)}
	}
	return pairs
}

// draw draws a product of kind k and form f.
func (t *trial) draw(k kind, f form) Problem {
	t.drawn = f
	m, n, kk := t.sizes(k)
	alpha, beta := k.alpha, k.beta
	if alpha == nil {
		alpha = []float64{1, 1, 1, -1, 2, 3}
	}
	if beta == nil {
		beta = []float64{0, 0, 1, -1, 2}
	}
	if f.epilogue.Gated {
		beta = []float64{0}
	}
	in, inB, out := f.pair.In, f.pair.In, f.pair.Out
	switch {
	case f.mixed && in == dtype.I8:
		inB = dtype.U8
	case f.mixed:
		inB = dtype.I8
	}
	p := newProblem(complex(choose(t, alpha...), 0), t.layout(in, m, kk, f.transA), t.layout(inB, kk, n, f.transB),
		complex(choose(t, beta...), 0), t.layout(out, m, n, false), f.epilogue)
	if f.epilogue.Gated {
		p.Layouts[gemm.Up] = t.layout(in, kk, n, f.transB)
	}
	if f.epilogue.Residual {
		p.Layouts[gemm.Residual] = t.layout(out, m, n, false)
	}
	if k.scales {
		p = t.scaled(p)
	}
	return p
}

// scaled returns p with block scales.
func (t *trial) scaled(p Problem) Problem {
	rows, steps, cols := p.M, gemm.ScaleBlocks(p.K), p.N
	if t.drawn.coarseA {
		rows = gemm.ScaleBlocks(rows)
	}
	if t.drawn.coarseB {
		cols = gemm.ScaleBlocks(cols)
	}
	p.Layouts[gemm.ScaleA] = t.layout(dtype.F32, rows, steps, t.coin())
	p.Layouts[gemm.ScaleB] = t.layout(dtype.F32, steps, cols, t.coin())
	if _, err := p.Complete(); err != nil {
		panic(fmt.Sprintf("gemmtest: drew invalid scales: %v", err))
	}
	return p
}

// epilogue draws an epilogue for a pair of types, often a simple one.
func (t *trial) epilogue(pair Pair) Epilogue {
	integer := pair.integer()
	var activations []gemm.Activation
	for _, a := range gemm.Activations() {
		if a.Info().Integer || !integer {
			activations = append(activations, a)
		}
	}
	e := Epilogue{Bias: choose(t, BiasNone, BiasRow, BiasCol), Activation: choose(t, activations...)}
	if t.rng.IntN(2) == 0 {
		return e
	}
	try := func(change func(e *Epilogue)) {
		changed := e
		if change(&changed); t.rng.IntN(5) < 2 && pair.accepts(changed) {
			e = changed
		}
	}
	try(func(e *Epilogue) { e.Bias, e.Gated = BiasNone, true })
	for o := range gemm.Operands {
		if e.ReadFlag(o) != nil {
			try(func(e *Epilogue) { *e.ReadFlag(o) = true })
		}
	}
	try(func(e *Epilogue) { e.Saturate = true })
	return e
}

// accepts reports whether a product of p's types can have epilogue e.
func (p Pair) accepts(e Epilogue) bool {
	one := func(t dtype.Type) Layout { return gemm.Dense(t, 1, 1) }
	_, _, err := gemm.New(1, one(p.In), one(p.In), 0, one(p.Out), e)
	return err == nil
}

// newProblem is like gemm.New but panics on errors.
func newProblem(alpha complex128, a, b Layout, beta complex128, c Layout, e Epilogue) Problem {
	p, _, err := gemm.New(alpha, a, b, beta, c, e)
	if err != nil {
		panic(fmt.Sprintf("gemmtest: drew an invalid product: %v", err))
	}
	return p
}

// layout returns a layout for a rows×cols op(matrix), often with padding.
func (t *trial) layout(ty dtype.Type, rows, cols int, trans bool) Layout {
	if trans {
		rows, cols = cols, rows
	}
	l := gemm.Dense(ty, rows, cols)
	l.LD = t.drawn.alignment.ld(l.LD + choose(t, 0, 0, 1, 1+t.rng.IntN(9), 64))
	l.Trans = trans
	return l
}

// sizes draws M, N and K. They are mostly small: most boundary cases are small, and many small
// cases find more faults than a few large ones.
func (t *trial) sizes(k kind) (int, int, int) {
	volume := t.impl.volume()
	if k.large {
		edge := max(1, int(math.Cbrt(float64(volume))))
		size := func() int { return t.drawn.alignment.size(edge - t.rng.IntN(edge/8+1)) }
		return size(), size(), size()
	}
	switch r := t.rng.IntN(100); {
	case r >= 12:
		volume = min(volume, 1<<12)
	case r >= 2:
		volume = min(volume, 1<<15)
	}
	s := []int{t.size(), t.size(), t.size()}
	if k.scales && t.rng.IntN(2) == 0 { // several scale blocks along K and along M or N
		s = []int{1 + t.rng.IntN(8), 1 + t.rng.IntN(8), 1 + t.rng.IntN(3*gemm.ScaleBlock)}
		s[t.rng.IntN(2)] += t.rng.IntN(2) * gemm.ScaleBlock
	}
	for i := range s {
		if k.nonempty {
			s[i] = max(s[i], 1)
		}
		s[i] = t.drawn.alignment.size(s[i])
	}
	for s[0]*s[1]*s[2] > volume {
		i := t.rng.IntN(3)
		s[i] = t.drawn.alignment.size(min(s[i], 1+t.rng.IntN(8)))
	}
	return s[0], s[1], s[2]
}

// size draws one size: zero, tiny, near a tile size, near a power of two, prime, large or
// arbitrary.
func (t *trial) size() int {
	switch r := t.rng.IntN(100); {
	case r < 3:
		return 0
	case r < 30:
		return 1 + t.rng.IntN(8)
	case r < 55 && len(t.impl.Tiles) > 0:
		return max(0, choose(t, t.impl.Tiles...)*(1+t.rng.IntN(2))-1+t.rng.IntN(3))
	case r < 70:
		return 4<<t.rng.IntN(5) - 1 + t.rng.IntN(3)
	case r < 80:
		return choose(t, 11, 13, 17, 23, 29, 37, 53, 61, 97, 127)
	case r < 85:
		return 100 + t.rng.IntN(400)
	}
	return 1 + t.rng.IntN(64)
}

// describe describes all parameters of a product on one line.
func describe(p *Problem) string {
	var s strings.Builder
	fmt.Fprintf(&s, "%v", p)
	for _, m := range []struct {
		name string
		l    Layout
	}{{"A", p.Layouts[gemm.A]}, {"B", p.Layouts[gemm.B]}, {"C", p.Layouts[gemm.C]}} {
		if m.l.Trans {
			fmt.Fprintf(&s, ", %s transposed", m.name)
		}
		fmt.Fprintf(&s, ", ld%s %d", strings.ToLower(m.name), m.l.LD)
	}
	fmt.Fprintf(&s, ", alpha %v, beta %v", real(p.Alpha), real(p.Beta))
	if p.Epilogue != (Epilogue{}) {
		fmt.Fprintf(&s, ", %v", p.Epilogue)
	}
	if p.Epilogue.Residual {
		fmt.Fprintf(&s, ", ldresidual %d", p.Layouts[gemm.Residual].LD)
	}
	if p.Epilogue.Gated {
		fmt.Fprintf(&s, ", ldup %d", p.Layouts[gemm.Up].LD)
	}
	return s.String()
}

// fillExact sets the inputs to integers that are small enough for all sums, in any order, and all
// elements of C to be exact. If K is too large even for terms of ±1, part of A is zero. It returns
// the largest magnitudes of A and B, which are those of zero points too.
func (t *trial) fillExact(o *operands) (a, b float64) {
	p := &o.p
	in, out := p.In().Info(), p.Out().Info()
	largest := min(p.Accum().Info().Exact, p.ScaleType().Info().Exact, out.Exact)
	if e := t.impl.accuracy(p).Exact; e > 0 {
		largest = min(largest, e)
	}
	if p.Epilogue.Gated {
		largest = math.Floor(math.Sqrt(largest)) // limit of each of the two factors
	}
	// Half of the range is for the sum of products, a quarter for β·C and a quarter for the bias and
	// the residual. Scales are ±1.
	quarter, exact := largest/4, in.Exact
	if r := t.impl.accuracy(p).Operand; r > 0 {
		exact = min(exact, 1/r) // rounding the operands must not change them
	}
	terms := max(1, math.Floor(2*quarter/max(1, math.Abs(real(p.Alpha)))))
	if p.Shifted() {
		terms = max(1, math.Floor(terms/4)) // A and B less their zero points are twice as large
	}
	product := max(1, math.Floor(terms/float64(max(p.K, 1))))
	a = math.Floor(min(math.Exp2(t.rng.Float64()*math.Log2(product)), exact))
	b = min(math.Floor(product/a), exact)
	if t.rng.IntN(2) == 0 {
		a, b = b, a
	}
	limits := map[*matrix]float64{
		o.of[gemm.A]: a, o.of[gemm.B]: b,
		o.of[gemm.C]:    math.Floor(quarter / max(1, math.Abs(real(p.Beta)))),
		o.of[gemm.Bias]: quarter, o.of[gemm.RowZero]: a, o.of[gemm.ColZero]: b,
	}
	if residual := o.of[gemm.Residual]; residual != nil {
		limits[o.of[gemm.Bias]], limits[residual] = math.Floor(quarter/2), math.Floor(quarter/2)
	}
	if up := o.of[gemm.Up]; up != nil {
		limits[up] = b
	}
	o.fillInputs(func(m *matrix, i, j int) float64 {
		if m == o.of[gemm.A] && float64(p.K) > terms && t.rng.Float64()*float64(p.K) > terms/2 {
			return 0
		}
		if limit, ok := limits[m]; ok {
			return t.whole(limit)
		}
		return choose(t, 1.0, -1)
	})
	return a, b
}

// whole returns a random integer in [-limit, limit].
func (t *trial) whole(limit float64) float64 {
	n := int64(limit)
	return float64(t.rng.Int64N(2*n+1) - n)
}

// call calls the implementation and checks that it writes only elements of C.
func (t *trial) call(ctx context.Context, o *operands) error {
	for _, m := range o.matrices() {
		m.remember()
	}
	err := t.gemm(ctx, &o.p, o.buffers())
	for _, m := range o.matrices() {
		if err := m.checkUntouched(m == o.of[gemm.C]); err != nil {
			return err
		}
	}
	return err
}

// gemm calls the implementation and converts a panic to an error.
func (t *trial) gemm(ctx context.Context, p *Problem, b Buffers) error {
	return guarded(func() error { return t.impl.Gemm(ctx, p, b) })
}

// guarded calls f and converts a panic to an error.
func guarded(f func() error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("panic: %v", r)
		}
	}()
	return f()
}

// exactly computes o and checks that all elements equal the reference.
func (t *trial) exactly(o *operands) error {
	want := ref.Values(&o.p, o.buffers())
	if err := t.call(t.ctx, o); err != nil {
		return err
	}
	return want.Exactly(o.of[gemm.C].bytes())
}

// within computes o and checks that its errors are within the bounds for rounding.
func (t *trial) within(o *operands) error {
	want := ref.Gemm(&o.p, o.buffers())
	if err := t.call(t.ctx, o); err != nil {
		return err
	}
	c := want.Compare(o.of[gemm.C].bytes(), t.impl.accuracy(&o.p))
	t.measured = append(t.measured, measurement{&o.p, c})
	return c.Err()
}
