package main

import (
	"fmt"
	"math"

	"github.com/mmcloughlin/avo/attr"
	"github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// epilogueFuncs writes the functions for the epilogue, which run on a tile of C in the cache.
func (g *generator) epilogueFuncs() {
	g.epilogueFunc("BiasCol", perCol, "adds v[j] to every element of column j", g.lightRows,
		func(x, v group) { g.each(g.add, v, x, x) })
	g.epilogueFunc("BiasRow", perRow, "adds v[i] to every element of row i", g.lightRows,
		func(x, v group) { g.each(g.add, v, x, x) })
	g.epilogueFunc("Add", perElement, "adds v[i*ldv+j] to every element", rowsOfTwoMatrices,
		func(x, v group) { g.each(g.add, v, x, x) })
	g.epilogueFunc("ReLU", noInput, "replaces every element x by max(x, 0)", g.lightRows,
		func(x, _ group) { g.relu(x) })
	if g.maths == nil {
		return
	}
	g.epilogueFunc("ScaleCol", perCol, "multiplies every element of column j by v[j]", g.lightRows,
		func(x, v group) { g.each(g.mul, v, x, x) })
	g.epilogueFunc("ScaleRow", perRow, "multiplies every element of row i by v[i]", g.lightRows,
		func(x, v group) { g.each(g.mul, v, x, x) })
	g.epilogueFunc("Scale", scalarInput, "multiplies every element by v[0]", g.lightRows,
		func(x, v group) { g.each(g.mul, v, x, x) })
	if g.fromInt32 != nil {
		g.epilogueFunc("FromInt32", scalarInput, "replaces every element, the bits of an int32, by that number times v[0]",
			g.lightRows, func(x, v group) {
				g.each(g.fromInt32, x, x)
				g.each(g.mul, v, x, x)
			})
	}
	g.epilogueFunc("Times", perElement, "multiplies every element by v[i*ldv+j]", rowsOfTwoMatrices,
		func(x, v group) { g.each(g.mul, v, x, x) })
	g.epilogueFunc("GELU", noInput, "replaces every element x by x·Φ(x), Φ the normal distribution function",
		g.activationRows, func(x, _ group) { g.gelu(x) })
	g.epilogueFunc("GELUTanh", noInput, "replaces every element x by x/2·(1 + tanh(√(2/π)·(x + 0.044715·x³)))",
		g.activationRows, func(x, _ group) { g.geluTanh(x) })
	g.epilogueFunc("SiLU", noInput, "replaces every element x by x/(1 + e⁻ˣ)", g.activationRows,
		func(x, _ group) { g.silu(x) })
}

// sideInput is the set of numbers that an epilogue function receives besides the tile.
type sideInput int

const (
	noInput     sideInput = iota // none
	scalarInput                  // one
	perRow                       // one per row
	perCol                       // one per column
	perElement                   // one per element
)

// rowsOfTwoMatrices is the number of rows of two matrices whose addresses fit the registers.
const rowsOfTwoMatrices = 4

// group is one register per row, for several rows that are computed together. Each operation on a
// row waits for the previous one on that row, so a single row would leave the core waiting most of
// the time.
type group []reg.Register

// newGroup returns a group of as many registers as x has.
func (g *generator) newGroup(x group) group { return g.vectors(len(x)) }

// each applies an instruction to every register of a group. An operand is a group or shared by all
// rows.
func (g *generator) each(op instruction, operands ...any) {
	var n int
	for _, o := range operands {
		if rows, ok := o.(group); ok {
			n = len(rows)
		}
	}
	for i := range n {
		var ops []operand.Op
		for _, o := range operands {
			if rows, ok := o.(group); ok {
				o = rows[i]
			}
			ops = append(ops, o.(operand.Op))
		}
		op(g.Context, ops...)
	}
}

// epilogueFunc writes one function over the elements of a tile: several rows at once, then the
// remaining rows one by one. apply transforms vectors x, given the matching elements v of the
// input. Masked last columns get the same treatment.
func (g *generator) epilogueFunc(name string, with sideInput, does string, rowsAtOnce int, apply func(x, v group)) {
	name += g.suffix()
	extra := ""
	switch with {
	case noInput:
	case perElement:
		extra = ", v *T, ldv int"
	default:
		extra = ", v *T"
	}
	g.function(name, "m, n int, c *T, ldc int"+extra,
		fmt.Sprintf("%s %s.", name, does), "c is a tile of m×n elements, in rows ldc elements apart.")
	c, ldc := g.param("c"), g.stride("ldc")
	var v reg.GPVirtual
	if with != noInput {
		v = g.param("v")
	}
	var ldv reg.GPVirtual
	if with == perElement {
		ldv = g.stride("ldv")
	}
	tail := g.param("n")
	g.ANDQ(operand.I32(g.lanes()-1), tail)
	count := g.GP64()
	g.MOVQ(tail, count)
	mask := g.mask(g, count)
	whole := g.param("n")
	g.SHRQ(operand.U8(log2(g.lanes())), whole)

	rows := func(label string, count int) {
		at, from, left := g.GP64(), g.GP64(), g.GP64()
		g.MOVQ(c, at)
		lines := strides(g.Context, at, ldc, count)
		x, y := group(g.vectors(count)), group(g.vectors(count))
		var inputs []operand.Mem // addresses of the inputs for a vector of each row, if they vary along it
		switch with {
		case scalarInput:
			for i := range y {
				g.broadcast(g.Context, operand.Mem{Base: v}, y[i])
			}
		case perRow:
			for i := range y {
				g.broadcast(g.Context, operand.Mem{Base: v, Disp: i * g.size}, y[i])
			}
			g.ADDQ(operand.I32(count*g.size), v)
		case perCol:
			g.MOVQ(v, from)
			for range count {
				inputs = append(inputs, operand.Mem{Base: from})
			}
		case perElement:
			g.MOVQ(v, from)
			inputs = strides(g.Context, from, ldv, count)
			for range count {
				g.ADDQ(ldv, v)
			}
		}
		g.MOVQ(whole, left)
		g.loop(label+"_vectors", left, func() {
			for i := range x {
				g.move(g.Context, lines[i], x[i])
			}
			if inputs != nil {
				for i := range y {
					g.move(g.Context, inputs[i], y[i])
				}
				g.ADDQ(operand.I32(g.vectorBytes), from)
			}
			apply(x, y)
			for i := range x {
				g.move(g.Context, x[i], lines[i])
			}
			g.ADDQ(operand.I32(g.vectorBytes), at)
		})
		g.TESTQ(tail, tail)
		g.JZ(operand.LabelRef(label + "_next"))
		for i := range x {
			g.load(g, lines[i], mask, x[i])
			if inputs != nil {
				g.load(g, inputs[i], mask, y[i])
			}
		}
		apply(x, y)
		for i := range x {
			g.store(g, x[i], mask, lines[i])
		}
		g.Label(label + "_next")
		for range count {
			g.ADDQ(ldc, c)
		}
	}
	m := g.param("m")
	if rowsAtOnce > 1 {
		groups := g.GP64()
		g.MOVQ(m, groups)
		g.SHRQ(operand.U8(log2(rowsAtOnce)), groups)
		g.loop("rows", groups, func() { rows("rows", rowsAtOnce) })
		g.ANDQ(operand.I32(rowsAtOnce-1), m)
	}
	g.loop("row", m, func() { rows("row", 1) })
	g.VZEROUPPER()
	g.RET()
}

// maths holds further instructions of a floating-point type, and the constants for functions as
// accurate as the type.
type maths struct {
	min, sub, div, and  instruction
	shift, addBits      instruction
	mulAdd              instruction // x·y + z into y's register
	negMulSub           instruction // −x·y − z into z's register
	fromInt32           instruction // converts int32; nil for elements of another size
	negMulAdd           instruction // z − x·y into z's register
	fractionBits        int         // bits of the mantissa
	expTerms, erfcTerms int
	minExp, maxExp      float64 // e^minExp counts as zero and e^maxExp as infinite; both are normal numbers with a margin
}

var (
	maths32 = &maths{
		min: (*build.Context).VMINPS, sub: (*build.Context).VSUBPS, div: (*build.Context).VDIVPS,
		and:   (*build.Context).VANDPS,
		shift: (*build.Context).VPSLLD, addBits: (*build.Context).VPADDD,
		mulAdd: (*build.Context).VFMADD213PS, negMulAdd: (*build.Context).VFNMADD231PS,
		negMulSub:    (*build.Context).VFNMSUB231PS,
		fromInt32:    (*build.Context).VCVTDQ2PS,
		fractionBits: 23, expTerms: 7, erfcTerms: 10, minExp: -70, maxExp: 80,
	}
	maths64 = &maths{
		min: (*build.Context).VMINPD, sub: (*build.Context).VSUBPD, div: (*build.Context).VDIVPD,
		and:   (*build.Context).VANDPD,
		shift: (*build.Context).VPSLLQ, addBits: (*build.Context).VPADDQ,
		mulAdd: (*build.Context).VFMADD213PD, negMulAdd: (*build.Context).VFNMADD231PD,
		negMulSub:    (*build.Context).VFNMSUB231PD,
		fractionBits: 52, expTerms: 12, erfcTerms: 20, minExp: -690, maxExp: 690,
	}
)

// relu computes max(x, 0). x is the second source, so that a NaN stays a NaN.
func (g *generator) relu(x group) {
	zero := g.vector(g.Context)
	g.zero(zero)
	g.each(g.max, x, zero, x)
}

// gelu computes x·Φ(x) = max(x, 0) − |x|·erfc(|x|/√2)/2. For x < 0 this form keeps small values
// accurate.
func (g *generator) gelu(x group) {
	far := g.newGroup(x) // |x|, limited to where the tail is not zero, because ∞·0 would be NaN
	g.each(g.and, g.absMask(), x, far)
	g.clamp(far, g.maths.min, math.Sqrt(-2*g.minExp))
	g.relu(x)

	// With y = |x|/√2, erfc(y) = e^(−y²)·P(t − 1), t = 1/(1 + y/erfcScale). The exponential depends
	// on neither the polynomial nor the division, which halves the time.
	t, one := g.newGroup(x), g.vector(g.Context)
	g.each(g.move, g.constant(1/math.Sqrt2/erfcScale), t)
	g.each(g.mulAdd, g.constant(1), far, t)
	g.move(g.Context, g.constant(1), one)
	g.each(g.div, t, one, t)
	half := g.newGroup(x)
	g.each(g.mul, g.constant(0.5), far, half)
	g.each(g.mul, half, far, far)
	e := g.expOfMinus(far)
	g.each(g.mul, e, half, half)

	g.each(g.add, g.constant(-1), t, t)
	p := g.polynomial(t, erfcPolynomial(math.Sqrt(-g.minExp), g.erfcTerms))
	g.each(g.negMulAdd, half, p, x)
}

// geluTanh computes x/2·(1 + tanh z) = x/(1 + e^(-2z)), z = √(2/π)·(x + 0.044715·x³).
func (g *generator) geluTanh(x group) {
	z, square := g.newGroup(x), g.newGroup(x)
	g.each(g.mul, x, x, square)
	scale := 2 * math.Sqrt(2/math.Pi)
	g.each(g.move, g.constant(0.044715*scale), z)
	g.each(g.mulAdd, g.constant(scale), square, z)
	g.each(g.mul, x, z, z)
	g.timesSigmoid(x, z)
}

// silu computes x/(1 + e^(-x)).
func (g *generator) silu(x group) {
	z := g.newGroup(x)
	g.each(g.move, x, z)
	g.timesSigmoid(x, z)
}

// timesSigmoid computes x/(1 + e^(-z)) and overwrites z. It first makes an infinite x finite,
// because −∞ times a sigmoid that tends to 0 must be 0.
func (g *generator) timesSigmoid(x, z group) {
	g.clamp(z, g.max, -g.maxExp)
	g.clamp(z, g.maths.min, -g.minExp)
	e := g.expOfMinus(z)
	g.each(g.add, g.constant(1), e, e)
	g.clamp(x, g.max, -1e4)
	g.each(g.div, e, x, x)
}

// expOfMinus computes e^(-x) for -maxExp ≤ x ≤ -minExp, to about a roundoff times 1 + |x|. It
// overwrites x.
func (g *generator) expOfMinus(x group) group {
	// n is the integer next to -x/ln 2. Adding 1.5·2^fractionBits leaves n in the lowest bits of
	// the sum, from where a shift moves it to the exponent of the result.
	weight := math.Ldexp(1.5, g.fractionBits)
	bits, n := g.newGroup(x), g.newGroup(x)
	g.each(g.move, g.constant(weight), bits)
	g.each(g.fma, g.constant(-math.Log2E), x, bits)
	unit := g.vector(g.Context)
	g.move(g.Context, g.constant(weight), unit)
	g.each(g.sub, unit, bits, n)
	g.each(g.negMulSub, g.constant(math.Ln2), n, x)
	e := g.polynomial(x, expPolynomial(g.expTerms))
	g.each(g.shift, operand.U8(g.fractionBits), bits, bits)
	g.each(g.addBits, bits, e, e)
	return e
}

// clamp applies min or max with a constant. x is their second source, so that a NaN stays a NaN.
func (g *generator) clamp(x group, which instruction, to float64) {
	bound := g.vector(g.Context)
	g.move(g.Context, g.constant(to), bound)
	g.each(which, x, bound, x)
}

// polynomial computes Σ c[i]·xⁱ with Horner's rule in x², separately for even and odd terms, which
// halves the latency.
func (g *generator) polynomial(x group, c []float64) group {
	even, odd, square := g.newGroup(x), g.newGroup(x), g.newGroup(x)
	g.each(g.mul, x, x, square)
	sums, last := []group{even, odd}, len(c)-1
	for i := last; i >= 0; i-- {
		if i > last-2 {
			g.each(g.move, g.constant(c[i]), sums[i%2])
		} else {
			g.each(g.mulAdd, g.constant(c[i]), square, sums[i%2])
		}
	}
	g.each(g.fma, x, odd, even)
	return even
}

// constant returns a vector of copies of v in memory.
func (g *generator) constant(v float64) operand.Mem {
	if g.size == 4 {
		return g.repeated(uint64(math.Float32bits(float32(v))) * (1<<32 + 1))
	}
	return g.repeated(math.Float64bits(v))
}

// absMask returns a vector that selects all bits except the signs.
func (g *generator) absMask() operand.Mem {
	if g.size == 4 {
		return g.repeated(^uint64(1<<63 | 1<<31))
	}
	return g.repeated(^uint64(1 << 63))
}

func (g *generator) repeated(bits uint64) operand.Mem {
	at, ok := g.constants[bits]
	if !ok {
		at = g.StaticGlobal(fmt.Sprintf("constant%d", len(g.constants)))
		g.DataAttributes(attr.RODATA | attr.NOPTR)
		for range g.vectorBytes / 8 {
			g.AppendDatum(operand.U64(bits))
		}
		g.constants[bits] = at
	}
	return at
}

// scaledErfc returns erfc(y)·e^(y²). For large y, where the factors are far apart, it uses the
// continued fraction (Abramowitz and Stegun, 7.1.14).
func scaledErfc(y float64) float64 {
	if y < 2 {
		return math.Erfc(y) * math.Exp(y*y)
	}
	const depth = 200 // the error is e⁻⁸⁰ at y = 2
	rest := y
	for n := depth; n > 0; n-- {
		rest = y + float64(n)/2/rest
	}
	return 1 / (math.Sqrt(math.Pi) * rest)
}

// erfcScale is the y for which t is 1/2. Of the values from 1 to 4 this one needs the fewest terms.
const erfcScale = 3

// erfcPolynomial returns the coefficients of erfc(y)·e^(y²) in t − 1, for y from 0 to end. At y =
// 0, where errors count most, the polynomial is exactly 1.
func erfcPolynomial(end float64, terms int) []float64 {
	half := (1 - 1/(1+end/erfcScale)) / 2 // half the range of t − 1
	c := interpolate(terms, func(s float64) float64 {
		t := 1 + half*(s-1)
		return scaledErfc(erfcScale * (1/t - 1))
	})
	// Convert powers of s to powers of s − 1, by Horner's rule, and those to powers of t − 1.
	for i := range c {
		for j := terms - 2; j >= i; j-- {
			c[j] += c[j+1]
		}
	}
	c[0] = 1
	for i := range c {
		c[i] /= math.Pow(half, float64(i))
	}
	return c
}

// expPolynomial returns the coefficients of eˣ for |x| ≤ ln 2/2. The polynomial is exactly 1 at 0.
func expPolynomial(terms int) []float64 {
	c := interpolate(terms, func(s float64) float64 { return math.Exp(s * math.Ln2 / 2) })
	c[0] = 1
	for i := range c {
		c[i] /= math.Pow(math.Ln2/2, float64(i))
	}
	return c
}

// interpolate returns the coefficients of 1, s, s², … of a polynomial close to f in [-1, 1]. It is
// a Chebyshev series from 16 points per term, whose rounding errors average out.
func interpolate(terms int, f func(s float64) float64) []float64 {
	points := 16 * terms
	chebyshev := make([]float64, terms)
	for j := range points {
		cosine := func(times int) float64 { // of a multiple of the point's angle
			return math.Cos(math.Pi * float64(times*(2*j+1)%(4*points)) / float64(2*points))
		}
		value := f(cosine(1))
		for m := range chebyshev {
			chebyshev[m] += 2 / float64(points) * value * cosine(m)
		}
	}
	chebyshev[0] /= 2
	// Tₘ₊₁ = 2s·Tₘ − Tₘ₋₁, with T₀ = 1 and T₋₁ = T₁ = s.
	sum, now, last := make([]float64, terms), make([]float64, terms), make([]float64, terms)
	now[0], last[1] = 1, 1
	for _, c := range chebyshev {
		next := make([]float64, terms)
		for i := range terms {
			sum[i] += c * now[i]
			if next[i] -= last[i]; i > 0 {
				next[i] += 2 * now[i-1]
			}
		}
		now, last = next, now
	}
	return sum
}
