package gemmtest

import (
	"errors"
	"fmt"
	"math"

	"tilework/dtype"
	"tilework/internal/gemm"
)

// CheckInfo holds the name and the description of a check.
type CheckInfo struct{ Name, About string }

// check is one property that every implementation must have.
type check struct {
	CheckInfo
	share float64            // fraction of Options.Cases
	trial func(*trial) error // one case
	// declared, if set, reports whether the implementation declares the property.
	declared func(*Implementation) bool
}

// checks is the suite.
var checks = []check{
	{CheckInfo: CheckInfo{"exact",
		"with integers small enough for exact sums, C equals the reference except for the signs of zeros"},
		share: 1, trial: (*trial).exact},
	{CheckInfo: CheckInfo{"wrap",
		"integer sums that overflow int32 wrap around"},
		share: 0.05, trial: (*trial).wrap},
	{CheckInfo: CheckInfo{"bound",
		"with random numbers, each element is within its error bound, and the RMS error is within that of rounding"},
		share: 0.15, trial: (*trial).bound},
	{CheckInfo: CheckInfo{"unread",
		"alpha = 0 does not read A and B, and beta = 0 does not read C, even if they hold NaNs"},
		share: 0.05, trial: (*trial).unread},
	{CheckInfo: CheckInfo{"nonfinite",
		"NaNs and infinities propagate to exactly the right elements; zeros are not skipped; alpha multiplies finished sums"},
		share: 0.1, trial: (*trial).nonfinite},
	{CheckInfo: CheckInfo{"memory",
		"only elements of C are written: no padding, no memory around C and no inputs (every other check tests this too)"},
		share: 0.05, trial: (*trial).memory},
	{CheckInfo: CheckInfo{"repeat",
		"repeating a product gives the same bits"},
		share: 0.02, trial: (*trial).repeat},
	{CheckInfo: CheckInfo{"transpose",
		"(AB)ᵀ = BᵀAᵀ, with integers"},
		share: 0.05, trial: (*trial).transpose},
	{CheckInfo: CheckInfo{"split",
		"a product assembled from blocks of M, N and K equals the whole product, with integers"},
		share: 0.05, trial: (*trial).split},
	{CheckInfo: CheckInfo{"linear",
		"A(B₁ + B₂) = AB₁ + AB₂, with integers"},
		share: 0.05, trial: (*trial).linear},
	{CheckInfo: CheckInfo{"epilogue",
		"scales, a bias along rows or columns, each activation, a gate, a residual and saturation"},
		share: 0.15, trial: (*trial).epilogues},
	{CheckInfo: CheckInfo{"scales",
		"block scales of 8-bit floats: per row, per column and per block, in all layouts"},
		share: 0.1, trial: (*trial).scales},
	{CheckInfo: CheckInfo{"zeros",
		"int8, uint8 and one of each, with and without zero points of rows and columns: every sum is exact, and wraps"},
		share: 0.1, trial: (*trial).zeros},
	{CheckInfo: CheckInfo{"batch",
		"strided batches and grouped products: each product equals the reference, and no memory between them is written"},
		share: 0.15, trial: (*trial).batch, declared: func(i *Implementation) bool { return i.Batch != nil }},
	{CheckInfo: CheckInfo{"refuse",
		"problems outside the declared limits return ErrUnsupported and leave C unchanged"},
		share: 0.05, trial: (*trial).refuse},
	{CheckInfo: CheckInfo{"concurrent",
		"concurrent products of several goroutines are independent"},
		share: 0.01, trial: (*trial).concurrent, declared: func(i *Implementation) bool { return i.Concurrent }},
	{CheckInfo: CheckInfo{"cancel",
		"a cancelled context ends the product soon, and nothing is written after the return"},
		share: 0.01, trial: (*trial).cancel, declared: func(i *Implementation) bool { return i.Cancels }},
}

// Checks returns all checks in the order in which they run.
func Checks() []CheckInfo {
	all := make([]CheckInfo, len(checks))
	for i, c := range checks {
		all[i] = c.CheckInfo
	}
	return all
}

// exact computes a product of small integers.
func (t *trial) exact() error {
	o, err := t.product(kind{})
	if err != nil {
		return err
	}
	t.fillExact(o)
	return t.exactly(o)
}

// wrap computes a product whose integer sums overflow.
func (t *trial) wrap() error {
	factors := []float64{1, -1, 3, 65537, math.MaxInt32, -math.MaxInt32}
	o, err := t.product(kind{integers: true, nonempty: true, alpha: factors, beta: append(factors, 0)})
	if err != nil {
		return err
	}
	o.fillInputs(func(m *matrix, _, _ int) float64 {
		v := int32(t.rng.Uint32())
		if t.rng.IntN(4) == 0 {
			v = choose(t, int32(math.MinInt32), math.MaxInt32)
		}
		return narrowed(m.layout.Type, v)
	})
	return t.exactly(o)
}

// narrowed returns the element of an integer type that the highest bits of v are.
func narrowed(ty dtype.Type, v int32) float64 {
	if ty == dtype.U8 {
		return float64(uint32(v) >> 24)
	}
	return float64(v >> (32 - ty.Bits()))
}

// bound computes a product of random numbers.
func (t *trial) bound() error {
	o, err := t.product(kind{floats: true, alpha: []float64{1, 1, 1, -1, 0.1, 1.7},
		beta: []float64{0, 0, 1, 0.3, -0.7}})
	if err != nil {
		return err
	}
	t.fillRandom(o)
	return t.within(o)
}

// fillRandom sets the inputs to random numbers of one of several distributions.
func (t *trial) fillRandom(o *operands) {
	in := o.p.In().Info()
	// whole limits integer operands. Narrow results overflow if all operands are large.
	whole := choose(t, 1, 8, in.Max)
	if in.Integer {
		in = o.p.ScaleType().Info()
	}
	// wide and deep are exponents. Sums of products of numbers within 2^±wide do not overflow.
	// Products of numbers near 2^deep are below the normal range.
	wide := int(math.Log2(math.Sqrt(min(in.Max, o.p.Out().Info().Max)))/2) - 2
	if o.p.Epilogue.Gated {
		wide /= 2
	}
	deep := int(math.Log2(in.Tiny)) / 2
	uniform := func() float64 { return t.rng.Float64()*2 - 1 }
	number := choose(t,
		uniform,
		uniform,
		t.rng.Float64, // positive, so sums grow
		t.rng.NormFloat64,
		func() float64 { return math.Ldexp(uniform(), t.rng.IntN(2*wide+1)-wide) },
	)
	// Sums below the normal range show only in a C without a bias or an old value. So they are drawn
	// more often than others, and with an old value of 0.
	subnormal := t.rng.IntN(8) < 3
	if subnormal {
		number = func() float64 { return math.Ldexp(uniform(), deep+t.rng.IntN(9)-4) }
	}
	o.fillInputs(func(m *matrix, _, _ int) float64 {
		switch {
		case subnormal && m == o.of[gemm.C]:
			return 0
		case m.layout.Type.Info().Integer:
			return t.whole(whole)
		}
		return number()
	})
}

// unread computes a product with alpha or beta 0 and poison in the operands that must not be read.
func (t *trial) unread() error {
	o, err := t.product(kind{alpha: []float64{0, 0, 1, -2}, beta: []float64{0, 0, 1, 2}})
	if err != nil {
		return err
	}
	t.fillExact(o)
	if o.p.Beta == 0 {
		old := choose(t, math.NaN(), math.Inf(1), math.Inf(-1), 1e4)
		o.of[gemm.C].fill(func(int, int) float64 { return old })
	}
	return t.exactly(o)
}

// nonfinite computes a product with NaNs and infinities.
func (t *trial) nonfinite() error {
	if t.rng.IntN(4) == 0 {
		return t.finished()
	}
	nan, inf := math.NaN(), math.Inf(1)
	o, err := t.product(kind{
		floats: true, nonempty: true,
		alpha: []float64{1, 1, 1, 1, -1, 2, nan}, beta: []float64{0, 0, 1, 1, -1, nan},
		epilogue: func(t *trial, pair Pair) Epilogue {
			if t.rng.IntN(4) > 0 {
				return Epilogue{Bias: choose(t, BiasNone, BiasNone, BiasRow, BiasCol),
					Activation: choose(t, gemm.ActNone, gemm.ActNone, gemm.ActReLU)}
			}
			e := t.epilogue(pair)
			if !e.Activation.Info().Integer {
				e.Activation = gemm.ActReLU
			}
			return e
		},
	})
	if err != nil {
		return err
	}
	o.fillInputs(func(*matrix, int, int) float64 { return t.whole(2) })
	for range 1 + t.rng.IntN(3) {
		m := choose(t, o.matrices()...)
		if m.layout.Len() > 0 && !(m == o.of[gemm.C] && o.p.Beta == 0) && !m.layout.Type.Info().Integer {
			m.set(t.rng.IntN(m.layout.OpRows()), t.rng.IntN(m.layout.OpCols()), choose(t, nan, inf, -inf))
		}
	}
	return t.exactly(o)
}

// finished computes a product whose result is finite, although alpha times the sum of the first
// half of K overflows the accumulator if K has more than some terms and A has negative elements.
func (t *trial) finished() error {
	o, err := t.product(kind{floats: true, nonempty: true, alpha: []float64{2}, beta: []float64{0, 0, 1, -1}})
	if err != nil {
		return err
	}
	largest := min(o.p.Out().Info().Max, o.p.ScaleType().Info().Max)
	alpha := math.Ldexp(float64(1-2*t.rng.IntN(2)), math.Ilogb(largest)-1)
	o.p.Alpha = complex(alpha, 0)
	sign := func(i int) float64 { return 1 - 2*float64(i/3%2) }
	o.fillInputs(func(m *matrix, i, j int) float64 {
		switch half := o.p.K / 2; {
		case m == o.of[gemm.C]:
			return alpha * t.whole(1)
		case m == o.of[gemm.B] && m.layout.Type == dtype.U8:
			return 1
		case m == o.of[gemm.B]:
			return sign(j)
		case m.layout.Type == dtype.U8: // no terms cancel, so there is one
			return float64(1 - min(j, 1))
		case j < half, j == 2*half:
			return sign(i)
		case j == o.p.K-1:
			return 0 // so that the sum is ±1 also if K is even
		default:
			return -sign(i)
		}
	})
	return t.exactly(o)
}

// memory computes a product with random bits in all memory, including padding and guards. A write
// of any value outside C then changes memory.
func (t *trial) memory() error {
	o, err := t.product(kind{nonempty: true})
	if err != nil {
		return err
	}
	for _, m := range o.matrices() {
		for i := range m.all {
			m.all[i] = byte(t.rng.Uint32())
		}
	}
	return t.call(t.ctx, o)
}

// repeat computes a product four times.
func (t *trial) repeat() error {
	o, err := t.product(kind{nonempty: true, large: t.n%8 == 0})
	if err != nil {
		return err
	}
	o.fillInputs(func(*matrix, int, int) float64 { return t.rng.NormFloat64() * 10 })
	var first []byte
	for n := range 4 {
		if err := t.call(t.ctx, o); err != nil {
			return err
		}
		again := append([]byte(nil), o.of[gemm.C].bytes()...)
		if n > 0 && string(again) != string(first) {
			return fmt.Errorf("the bits of run %d differ from the first run", n+1)
		}
		first = again
		o.of[gemm.C].restore()
	}
	return nil
}

// transpose compares a product with the product of the transposed operands.
func (t *trial) transpose() error {
	o, err := t.product(kind{})
	if err != nil {
		return err
	}
	t.fillExact(o)
	q := &operands{p: newProblem(o.p.Alpha, o.p.B().T(), o.p.A().T(), o.p.Beta, t.layout(o.p.Out(), o.p.N, o.p.M, false),
		Epilogue{})}
	q.of[gemm.A], q.of[gemm.B], q.of[gemm.Bias] = o.of[gemm.B], o.of[gemm.A], o.of[gemm.Bias]
	if !t.impl.supports(&q.p) {
		return errSkipped
	}
	q.of[gemm.C] = newMatrix(t.rng, "C", q.p.Layouts[gemm.C])
	q.of[gemm.C].fill(func(i, j int) float64 { return o.of[gemm.C].at(j, i) })
	if err := t.call(t.ctx, o); err != nil {
		return err
	}
	if err := t.call(t.ctx, q); err != nil {
		return fmt.Errorf("transposed product: %w", err)
	}
	return same(o.of[gemm.C], func(i, j int) float64 { return q.of[gemm.C].at(j, i) }, "the transposed product")
}

// same compares C with the values of another product, which name describes.
func same(c *matrix, other func(i, j int) float64, name string) error {
	for i := range c.layout.Rows {
		for j := range c.layout.Cols {
			x, y := c.at(i, j), other(i, j)
			if x != y && (x == x || y == y) {
				return fmt.Errorf("element C[%d,%d] is %v, in %s it is %v", i, j, x, name, y)
			}
		}
	}
	return nil
}

// split compares a product with one assembled from blocks.
func (t *trial) split() error {
	o, err := t.product(kind{})
	if err != nil {
		return err
	}
	t.fillExact(o)
	p := o.p
	whole := newOperands(t.rng, p)
	whole.of[gemm.A], whole.of[gemm.B] = o.of[gemm.A], o.of[gemm.B]
	if p.Beta != 0 {
		whole.of[gemm.C].fill(o.of[gemm.C].at)
	}
	if err := t.call(t.ctx, whole); err != nil {
		return err
	}
	o.of[gemm.C].remember()
	m, n, k := t.cut(p.M), t.cut(p.N), t.cut(p.K)
	for _, rows := range [][2]int{{0, m}, {m, p.M}} {
		for _, cols := range [][2]int{{0, n}, {n, p.N}} {
			beta := p.Beta
			for _, terms := range [][2]int{{0, k}, {k, p.K}} {
				a, ab := block(o.of[gemm.A], rows, terms)
				b, bb := block(o.of[gemm.B], terms, cols)
				c, cb := block(o.of[gemm.C], rows, cols)
				part := newProblem(p.Alpha, a, b, beta, c, Epilogue{})
				if !t.impl.supports(&part) {
					return errSkipped
				}
				if err := t.gemm(t.ctx, &part, Buffers{gemm.A: ab, gemm.B: bb, gemm.C: cb}); err != nil {
					return fmt.Errorf("rows %v, columns %v, terms %v: %w", rows, cols, terms, err)
				}
				beta = 1
			}
		}
	}
	if err := o.of[gemm.C].checkUntouched(true); err != nil {
		return err
	}
	return same(o.of[gemm.C], whole.of[gemm.C].at, "the whole product")
}

// block returns the layout and the memory of a block of op(matrix).
func block(m *matrix, rows, cols [2]int) (Layout, []byte) {
	if m.layout.Trans {
		rows, cols = cols, rows
	}
	l := m.layout
	l.Rows, l.Cols = rows[1]-rows[0], cols[1]-cols[0]
	if l.Len() == 0 {
		return l, nil
	}
	b := m.bytes()[l.Type.Bytes(rows[0]*l.LD+cols[0]):]
	return l, b[:l.Bytes():l.Bytes()]
}

// linear compares a product with the sum of two products.
func (t *trial) linear() error {
	o, err := t.product(kind{beta: []float64{0}})
	if err != nil {
		return err
	}
	t.fillExact(o)
	p1, p2 := *o, *o
	p2.p.Beta = 1
	if !t.impl.supports(&p2.p) {
		return errSkipped
	}
	p1.of[gemm.B], p2.of[gemm.B] = newMatrix(t.rng, "B₁", o.p.Layouts[gemm.B]), newMatrix(t.rng, "B₂", o.p.Layouts[gemm.B])
	p1.of[gemm.C] = newMatrix(t.rng, "C", o.p.Layouts[gemm.C])
	p2.of[gemm.C] = p1.of[gemm.C]
	if o.p.ReadsAB() { // the parts of an element do not exceed it, so sums stay exact
		p1.of[gemm.B].fill(func(i, j int) float64 { return math.Trunc(o.of[gemm.B].at(i, j) * t.rng.Float64()) })
		p2.of[gemm.B].fill(func(i, j int) float64 { return o.of[gemm.B].at(i, j) - p1.of[gemm.B].at(i, j) })
	}
	for _, q := range []*operands{o, &p1, &p2} {
		if err := t.call(t.ctx, q); err != nil {
			return err
		}
	}
	return same(o.of[gemm.C], p2.of[gemm.C].at, "the sum of two products")
}

// epilogues computes a product with a random epilogue.
func (t *trial) epilogues() error {
	o, err := t.product(kind{
		nonempty: true, alpha: []float64{1, 1, -1}, beta: []float64{0, 1},
		epilogue: (*trial).epilogue, form: epilogueForm,
	})
	if err != nil {
		return err
	}
	if o.p.Epilogue.Activation.Info().Integer && t.rng.IntN(2) == 0 || o.p.ScaleType().Info().Integer {
		t.fillExact(o)
		return t.exactly(o)
	}
	t.fillRandom(o)
	return t.within(o)
}

// scales computes a product with block scales.
func (t *trial) scales() error {
	o, err := t.product(kind{
		scales: true, alpha: []float64{1, 1, -1, 0}, beta: []float64{0, 0, 1, -0.5},
		epilogue: func(t *trial, pair Pair) Epilogue {
			if t.rng.IntN(4) > 0 {
				return Epilogue{}
			}
			return t.epilogue(pair)
		}, form: scalesForm,
	})
	if err != nil {
		return err
	}
	if o.p.Epilogue.Activation.Info().Integer && t.rng.IntN(2) == 0 {
		o.p.Beta = complex(math.Round(real(o.p.Beta)), 0)
		t.fillExact(o)
		return t.exactly(o)
	}
	t.fillRandom(o)
	return t.within(o)
}

// zeros computes a product of int8 and uint8 with zero points.
func (t *trial) zeros() error {
	o, err := t.product(kind{
		zeros: true, alpha: []float64{1, 1, -1, 3, 0}, beta: []float64{0, 1},
		epilogue: func(t *trial, pair Pair) Epilogue {
			e := Epilogue{Bias: choose(t, BiasNone, BiasNone, BiasRow, BiasCol)}
			if t.rng.IntN(4) == 0 {
				e = t.epilogue(pair)
			}
			e.Gated, e.RowZero, e.ColZero = false, t.coin(), t.coin()
			return e
		}, form: zerosForm,
	})
	if err != nil {
		return err
	}
	integer := o.p.ScaleType().Info().Integer
	if !integer && !o.p.Epilogue.Activation.Info().Integer {
		t.fillRandom(o)
		return t.within(o)
	}
	if a, b := t.fillExact(o); integer || t.coin() {
		// The zero points of an operand are equal, or in the range of its type, or any numbers.
		most := choose(t, 0.0, 1, 127, 255, math.MaxInt32)
		if !integer {
			most = min(most, zerosLimit(&o.p, max(a, b)))
		}
		equal := t.whole(most)
		for _, m := range []*matrix{o.of[gemm.RowZero], o.of[gemm.ColZero]} {
			if m != nil {
				uniform := t.coin()
				m.fill(func(int, int) float64 {
					if uniform {
						return equal
					}
					return t.whole(most)
				})
			}
		}
	}
	return t.exactly(o)
}

// zerosLimit returns the largest zero points, at most 255, with which the sums of p, whose A and B
// are at most largest, take half of the range in which floats are exact.
func zerosLimit(p *Problem, largest float64) float64 {
	half := p.ScaleType().Info().Exact / 2
	room := math.Sqrt(half / (max(1, math.Abs(real(p.Alpha))) * float64(max(p.K, 1))))
	return min(max(math.Floor(room)-largest, 0), 255)
}

// refuse calls the implementation with a product that it does not support.
func (t *trial) refuse() error {
	pairs := Pairs()
	for range draws {
		k := kind{epilogue: func(t *trial, _ Pair) Epilogue {
			return Epilogue{Bias: choose(t, BiasNone, BiasRow, BiasCol),
				Activation: choose(t, gemm.ActNone, gemm.ActReLU)}
		}}
		p := t.draw(k, t.form(k, pairs, t.rng.IntN(4*len(pairs))))
		if t.impl.supports(&p) {
			continue
		}
		t.what = describe(&p)
		o := newOperands(t.rng, p)
		t.fillExact(o)
		err := t.call(t.ctx, o)
		if !errors.Is(err, ErrUnsupported) {
			return fmt.Errorf("product outside the declared limits: got error %v, want ErrUnsupported", err)
		}
		return o.of[gemm.C].checkUntouched(false)
	}
	return errSkipped
}
